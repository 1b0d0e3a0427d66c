"""Marks answers: right or wrong, by the rules of each kind. Code is run, away from this process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

from dflash.train.corpus.task import Task

TIME_LIMIT_S = 10.0
_TERM = re.compile(r"(\d+)(?: ([-+*/]) (\d+))?")

# Runs in a fresh interpreter: no site packages, few builtins, no more than a little memory and time.
_RUNNER = """
import json, sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
    resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
except ImportError:
    pass
job = json.load(sys.stdin)
allowed = ("abs all any bool dict enumerate filter float int isinstance len list map max min range "
           "reversed round set sorted str sum tuple zip").split()
names = {"__builtins__": {name: getattr(__builtins__, name) for name in allowed}}
try:
    exec(job["code"], names)
    right = all(names[job["function"]](*args) == want for args, want in job["checks"])
except Exception:
    right = False
print("right" if right else "wrong")
"""


def is_right(kind: str, task: Task, text: str) -> bool:
    """Whether ``text`` answers ``task`` rightly; for a story, whether it keeps the prompt's words."""
    return {
        "chat": _keeps_words,
        "code": _passes_checks,
        "math": _adds_up,
        "json": _same_json,
        "translate": _same_text,
        "edit": _same_text,
    }[kind](task, text)


def _same_text(task: Task, text: str) -> bool:
    return text.strip() == task.answer


def _keeps_words(task: Task, text: str) -> bool:
    return all(re.search(rf"\b{re.escape(word)}\b", text) for word in task.keep)


def _same_json(task: Task, text: str) -> bool:
    try:
        return list(json.loads(text).items()) == list(json.loads(task.answer).items())
    except (json.JSONDecodeError, AttributeError):
        return False


def _adds_up(task: Task, text: str) -> bool:
    """The final answer is right, and so is every sum on the way to it."""
    lines = text.strip().splitlines()
    sums = [line.rpartition(": ")[2].split(" = ") for line in lines if " = " in line]
    right = all(_agree(terms) for terms in sums)
    return right and lines[-1:] == task.answer.splitlines()[-1:]


def _agree(terms: list[str]) -> bool:
    values = {_value(term) for term in terms}
    return len(values) == 1 and None not in values


def _value(term: str) -> int | None:
    """The value of ``12`` or ``3 * 4``; ``None`` for anything else and for uneven divisions."""
    match = _TERM.fullmatch(term)
    if match is None:
        return None
    a, sign, b = int(match[1]), match[2], int(match[3] or 0)
    if sign == "/":
        return a // b if b and a % b == 0 else None
    return {None: a, "+": a + b, "-": a - b, "*": a * b}[sign]


def _passes_checks(task: Task, text: str) -> bool:
    if "__" in text or "import" in text:  # nothing in the corpus needs either
        return False
    checks = [[list(args), want] for args, want in task.checks]
    if any(isinstance(want, dict) for _, want in task.checks):
        return _passes_dict_checks(task, text)
    return _run(text, task.function, checks)


def _passes_dict_checks(task: Task, text: str) -> bool:
    """JSON turns number keys into strings, so dictionaries are compared as sorted pairs."""
    wrapper = f"\ndef checked(items):\n    return [list(pair) for pair in sorted({task.function}(items).items())]\n"
    checks = [
        [list(args), [list(pair) for pair in sorted(want.items())]] for args, want in task.checks
    ]
    return _run(text + wrapper, "checked", checks)


def _run(code: str, function: str, checks: list[list[Any]]) -> bool:
    job = json.dumps({"code": code, "function": function, "checks": checks})
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _RUNNER],
            input=job, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return done.stdout.strip() == "right"
