"""``python -m advisor recommend``: options in, a recommendation out. Knows no rule."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from advisor.answer import recommend_for
from advisor.exports import yaml_file
from advisor.gather import Request
from advisor.schema import ENGINES, TASKS, Estimate, Finding, Recommendation
from dflash.errors import DFlashError

HELP = "Recommend block size, taps, window and mask; say whether DFlash pays."
_SUFFIX = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_PARAMS = re.compile(r"(\d+(?:\.\d+)?(?:e\+?\d{1,3})?)([kmbt]?)", re.IGNORECASE)
_MIN_PARAMS, _MAX_PARAMS = 10_000, 1e15
MAX_TOKENS = 10**9
_MAX_LOSERS = 3  # printed; the JSON has them all
_SAID_FIRST = ("draft.resembles-published", "draft.none-yet")  # whose draft it is, if anyone's
_EXPORT_HELP = (
    f"For {', '.join(ENGINES)}: save it with --output rec.yaml, then "
    "python -m advisor export --from rec.yaml --to ENGINE."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``recommend``."""
    add = parser.add_argument
    add("--params", type=params, metavar="N", help="parameters of the target: 4e9, 4B, 135M")
    add("--prompt-tokens", type=tokens, metavar="N", help="length of a typical prompt")
    add("--max-new-tokens", type=positive, metavar="N", help="length of a typical answer")
    add("--target", help="config.json, folder, catalogue id or hub id")
    add("--draft", help="config.json, folder, catalogue id or hub id")
    add("--tokenizer", help="tokenizer_config.json, generation_config.json or a folder")
    add("--hardware", metavar="ID", help="a machine of presets/hardware, or auto for this one")
    add("--task", choices=TASKS, help="kind of text")
    add("--concurrency", type=positive, default=1, metavar="N", help="sequences at once")
    add("--temperature", type=temperature, default=0.0, metavar="T", help="0 is greedy")
    add("--mode", choices=("serve", "train"), help="serve a draft, or train one")
    add("--policy", choices=("evidence", "guide"), default="evidence", help="who is followed")
    add("--engine", choices=ENGINES, help="the engine that will run it")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--tau-per-position", metavar="FILE", help="JSON [p1, p2, ...], measured")
    group.add_argument("--tau", type=tau, metavar="X", help="measured tau; X@B says at which block")
    add("--costs", metavar="FILE", help="JSON with ar_step_s, draft_s and verify_s, measured")
    add("--output", metavar="FILE.yaml", help="save the recommendation, to export or reopen it")
    add("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print the recommendation. Returns 0, or 1 when a finding is an error."""
    names = {field.name for field in dataclasses.fields(Request)}
    given = {name: value for name, value in vars(args).items() if name in names}
    measured = given.pop("tau", None)
    if measured is not None:
        given["tau"], given["tau_block_size"] = measured
    answer = recommend_for(Request(**given))
    if args.output:
        _save(Path(args.output), yaml_file.dump(answer))
    text = json.dumps(as_json(answer), allow_nan=False, indent=1) if args.json else as_text(answer)
    sys.stdout.write(printable(text) + "\n")
    return 1 if any(finding.severity == "error" for finding in answer.findings) else 0


def as_json(answer: Recommendation) -> dict[str, Any]:
    """The contract's JSON; what goes beyond it comes after."""
    return dataclasses.asdict(answer)


def as_text(answer: Recommendation) -> str:
    """The recommendation for a person to read."""
    first = [finding for finding in answer.findings if finding.id in _SAID_FIRST]
    lines = [f"{answer.verdict.upper()}: {answer.headline}", *_finding_lines(first), ""]
    for name, knob in answer.knobs.items():
        value = "none" if knob.value is None and knob.rung else knob.value
        shown = "unknown" if value is None else str(value)
        free = "" if knob.tunable else ", fixed"
        lines.append(f"{name:20} {shown}  [{knob.rung or 'unknown'}{free}]")
        lines.append(f"{'':20} {knob.reason}")
        others = [f"{rung} says {_none(said)}" for rung, said in knob.rungs.items()]
        if len(others) > 1:
            lines.append(f"{'':20} {', '.join(others)}")
    lines.append("")
    lines += [_estimate_line(name, value) for name, value in answer.estimate.items()]
    lines.append(_estimate_line("break_even_tau", answer.break_even_tau))
    if answer.training:
        planned = (_planned_line(name, value) for name, value in answer.training.items())
        lines += ["", "The draft to train:", *planned]
    if answer.alternatives:
        lines += ["", "Instead of it:", *_best_losers(answer)]
    lines += _finding_lines([f for f in answer.findings if f not in first])
    return "\n".join([*lines, "", *_next_step(answer)])


def _finding_lines(findings: Sequence[Finding]) -> list[str]:
    lines = []
    for finding in findings:
        lines += ["", f"{finding.severity.upper()} {finding.id}: {finding.message}"]
        lines += [f"  {finding.hint}"] if finding.hint else []
    return lines


def _best_losers(answer: Recommendation) -> list[str]:
    """The fastest few of them, in order of block size."""
    ranked = sorted(answer.alternatives, key=lambda a: -(a.speedup or 0.0))
    best = [a for a in answer.alternatives if a in ranked[:_MAX_LOSERS]]
    lines = [f"  block size {a.block_size}: {a.reason}" for a in best]
    more = len(ranked) - len(best)
    return [*lines, f"  and {more} more (--json shows all)"] if more else lines


def _next_step(answer: Recommendation) -> list[str]:
    """The command to run, with TARGET and DRAFT for what has no name that an engine could load."""
    if answer.mode == "train" or "vllm" not in answer.exports:
        return [_EXPORT_HELP]
    notes = " ".join(n for n in answer.export_notes.get("vllm", ()) if n.startswith("Replace "))
    command = ["To run it, with vLLM for one:", f"  {answer.exports['vllm']}"]
    return [*command, *([f"  {notes}"] if notes else []), _EXPORT_HELP]


def printable(text: str) -> str:
    """The text with whatever this terminal cannot show escaped, rather than a traceback."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def params(text: str) -> int:
    """Read a parameter count: 4e9, 4B, 135M."""
    match = _PARAMS.fullmatch(text.strip())
    number = float(match[1]) * _SUFFIX[match[2].lower()] if match else math.nan
    if not _MIN_PARAMS <= number <= _MAX_PARAMS:
        raise argparse.ArgumentTypeError(f"{_short(text)} is no parameter count like 4e9 or 4B")
    return round(number)


def tokens(text: str) -> int:
    """Read a number of tokens, 0 or more."""
    return _whole(text, 0)


def positive(text: str) -> int:
    """Read a whole number from 1."""
    return _whole(text, 1)


def temperature(text: str) -> float:
    """Read a temperature, 0 or more."""
    number = _finite(text)
    if not 0 <= number <= 100:
        raise argparse.ArgumentTypeError(f"{_short(text)} is no temperature of 0 to 100")
    return number


def tau(text: str) -> tuple[float, int | None]:
    """Read a tau, bonus token included: X, or X@B with the block size it was measured at."""
    value, at, block = text.partition("@")
    number, size = _finite(value), _whole(block, 2) if at else None
    if number < 1 or (size is not None and number > size) or number > 4096:
        limit = f"the block size {size}" if size else "the block size"
        raise argparse.ArgumentTypeError(f"{_short(text)} is no tau: it lies between 1 and {limit}")
    return number, size


def _whole(text: str, least: int) -> int:
    stripped = text.strip()
    is_number = stripped.isascii() and stripped.isdigit() and len(stripped) <= 40
    if not (is_number and least <= int(stripped) <= MAX_TOKENS):
        raise argparse.ArgumentTypeError(
            f"{_short(text)} is not a whole number from {least} to {MAX_TOKENS}"
        )
    return int(stripped)


def _finite(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{_short(text)} is not a finite number")
    return number


def _save(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DFlashError(f"{path} cannot be written: {error.strerror or error}.") from error


def _estimate_line(name: str, estimate: Estimate) -> str:
    if estimate.value is None:
        return f"{name:20} unknown: {estimate.basis}"
    span = ""
    if estimate.low is not None and estimate.high is not None and estimate.low != estimate.high:
        span = f" ({estimate.low:.4g} to {estimate.high:.4g})"
    shown = f"{estimate.value:.4g}{span} {estimate.unit}"
    return f"{name:20} {shown}  [{estimate.source}] {estimate.basis}"


def _planned_line(name: str, figure: dict[str, Any]) -> str:
    """A figure of the training plan, whose settings have a rung and whose costs a source."""
    source: Any = figure.get("rung") or figure.get("source") or "unknown"
    basis = figure.get("reason") or figure.get("basis") or ""
    return _estimate_line(name, Estimate(figure["value"], figure.get("unit", ""), source, basis))


def _none(value: Any) -> str:
    return "none" if value is None else str(value)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
