"""Code tasks: small Python functions, put together from a loop, a condition and a change of value.

The checks of a task come from the same parts as plain Python callables, never from the answer's text.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dflash.train.corpus.task import Task


@dataclass(frozen=True, slots=True)
class _Condition:
    """A test on one item: how the prompt says it, how the code says it, and what it means."""

    said: str  # fits after "the numbers that ..."
    code: str  # an expression of ``{x}``
    holds: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class _Change:
    """A new value made from one item."""

    said: str  # fits after "of", as in "the sum of ..."
    code: str
    value: Callable[[Any], Any]


def _number_condition(rng: random.Random) -> _Condition:
    n, k = rng.randint(2, 99), rng.randint(2, 12)
    low = rng.randint(1, 40)
    high = low + rng.randint(5, 59)
    digit = rng.randint(0, 9)
    return rng.choice(
        (
            _Condition("are even", "{x} % 2 == 0", lambda x: x % 2 == 0),
            _Condition("are odd", "{x} % 2 == 1", lambda x: x % 2 == 1),
            _Condition("are positive", "{x} > 0", lambda x: x > 0),
            _Condition("are negative", "{x} < 0", lambda x: x < 0),
            _Condition("are not zero", "{x} != 0", lambda x: x != 0),
            _Condition(f"are greater than {n}", f"{{x}} > {n}", lambda x: x > n),
            _Condition(f"are less than {n}", f"{{x}} < {n}", lambda x: x < n),
            _Condition(f"are at least {n}", f"{{x}} >= {n}", lambda x: x >= n),
            _Condition(f"are at most {n}", f"{{x}} <= {n}", lambda x: x <= n),
            _Condition(f"are not equal to {n}", f"{{x}} != {n}", lambda x: x != n),
            _Condition(f"are divisible by {k}", f"{{x}} % {k} == 0", lambda x: x % k == 0),
            _Condition(f"are not divisible by {k}", f"{{x}} % {k} != 0", lambda x: x % k != 0),
            _Condition(f"end in {digit}", f"{{x}} % 10 == {digit}", lambda x: x % 10 == digit),
            _Condition(
                f"are between {low} and {high}",
                f"{low} <= {{x}} <= {high}",
                lambda x: low <= x <= high,
            ),
        )
    )


def _word_condition(rng: random.Random) -> _Condition:
    n, letter = rng.randint(2, 9), rng.choice("abcdefghiklmnoprstuw")
    return rng.choice(
        (
            _Condition(f"are longer than {n} letters", f"len({{x}}) > {n}", lambda x: len(x) > n),
            _Condition(f"are shorter than {n} letters", f"len({{x}}) < {n}", lambda x: len(x) < n),
            _Condition(f"have exactly {n} letters", f"len({{x}}) == {n}", lambda x: len(x) == n),
            _Condition(
                f'start with "{letter}"',
                f'{{x}}.startswith("{letter}")',
                lambda x: x.startswith(letter),
            ),
            _Condition(
                f'end with "{letter}"', f'{{x}}.endswith("{letter}")', lambda x: x.endswith(letter)
            ),
            _Condition(
                f'contain the letter "{letter}"', f'"{letter}" in {{x}}', lambda x: letter in x
            ),
            _Condition(
                f'do not contain the letter "{letter}"',
                f'"{letter}" not in {{x}}',
                lambda x: letter not in x,
            ),
        )
    )


def _number_change(rng: random.Random) -> _Change:
    n, k = rng.randint(1, 99), rng.randint(2, 12)
    return rng.choice(
        (
            _Change("the squares of", "{x} * {x}", lambda x: x * x),
            _Change("the cubes of", "{x} ** 3", lambda x: x**3),
            _Change("the doubles of", "2 * {x}", lambda x: 2 * x),
            _Change("the absolute values of", "abs({x})", abs),
            _Change("the negatives of", "-{x}", lambda x: -x),
            _Change(f"{k} times", f"{k} * {{x}}", lambda x: k * x),
            _Change(f"{n} plus", f"{{x}} + {n}", lambda x: x + n),
            _Change(f"{n} minus", f"{n} - {{x}}", lambda x: n - x),
            _Change(f"the remainders by {k} of", f"{{x}} % {k}", lambda x: x % k),
        )
    )


_WORD_CHANGES = (
    _Change("the lengths of", "len({x})", len),
    _Change("the first letters of", "{x}[0]", lambda x: x[0]),
    _Change("the last letters of", "{x}[-1]", lambda x: x[-1]),
    _Change("the upper case forms of", "{x}.upper()", str.upper),
    _Change("the reversed forms of", "{x}[::-1]", lambda x: x[::-1]),
)
_PLAIN = _Change("", "{x}", lambda x: x)

_NUMBER_NAMES = (("numbers", "number"), ("values", "value"), ("items", "item"), ("scores", "score"),
                 ("prices", "price"), ("ages", "age"), ("points", "point"), ("sizes", "size"))  # fmt: skip
_WORD_NAMES = (("words", "word"), ("names", "name"), ("cities", "city"), ("labels", "label"),
               ("titles", "title"), ("tags", "tag"))  # fmt: skip
_VERBS = "find get pick compute handle process work_out do make".split()
_TAILS = "result part some special chosen wanted group them all_of_them".split()
_SAMPLE_WORDS = (
    "apple sun table window sky egg banana kite moon garden river stone abc so it house tree bread lamp "
    "wonderful train on ink pot elephant cup nest old umbrella rat map dog"
).split()
_FRAMES = (
    "Write a Python function {name} that takes {source} and {does}.",
    "Write a function called {name} in Python. It takes {source} and {does}.",
    "I need a Python function named {name}. Given {source}, it {does}.",
    "Please write Python code: a function {name} that takes {source} and {does}.",
    "Define {name} in Python. It gets {source} and {does}.",
    "Code a Python function {name} which takes {source} and {does}.",
)


@dataclass(frozen=True, slots=True)
class _Plan:
    """All parts of one function."""

    name: str
    source: str  # the parameter, as in ``numbers``
    item: str  # one element of it
    element: str  # its type
    condition: _Condition
    change: _Change


def _phrase(plan: _Plan) -> str:
    """``the squares of the numbers that are even``."""
    head = f"{plan.change.said} " if plan.change.said else ""
    return f"{head}the {plan.source} that {plan.condition.said}"


def _head(plan: _Plan, returns: str, doc: str) -> list[str]:
    return [
        f"def {plan.name}({plan.source}: list[{plan.element}]) -> {returns}:",
        f'    """Return {doc}."""',
    ]


def _loop(plan: _Plan, action: str) -> list[str]:
    return [
        f"    for {plan.item} in {plan.source}:",
        f"        if {plan.condition.code.format(x=plan.item)}:",
        f"            {action}",
    ]


def _kept(plan: _Plan, items: list[Any]) -> list[Any]:
    return [plan.change.value(item) for item in items if plan.condition.holds(item)]


def _changed_type(plan: _Plan) -> str:
    return "int" if plan.element == "int" or plan.change.code.startswith("len") else "str"


_Written = tuple[
    str, list[str], Callable[[list[Any]], Any]
]  # what it returns, its lines, its meaning


def _as_list(plan: _Plan) -> _Written:
    doc = f"a list of {_phrase(plan)}"
    new = plan.change.code.format(x=plan.item)
    body = ["    result = []", *_loop(plan, f"result.append({new})"), "    return result"]
    return (
        doc,
        [*_head(plan, f"list[{_changed_type(plan)}]", doc), *body],
        lambda items: _kept(plan, items),
    )


def _as_sum(plan: _Plan) -> _Written:
    doc = f"the sum of {_phrase(plan)}"
    new = plan.change.code.format(x=plan.item)
    body = ["    total = 0", *_loop(plan, f"total += {new}"), "    return total"]
    return doc, [*_head(plan, "int", doc), *body], lambda items: sum(_kept(plan, items))


def _as_count(plan: _Plan) -> _Written:
    doc = f"how many of the {plan.source} {plan.condition.said}"
    body = ["    count = 0", *_loop(plan, "count += 1"), "    return count"]
    return doc, [*_head(plan, "int", doc), *body], lambda items: len(_kept(plan, items))


def _as_largest(plan: _Plan) -> _Written:
    doc = f"the largest of {_phrase(plan)}, or None"
    new = plan.change.code.format(x=plan.item)
    body = [
        "    best = None",
        f"    for {plan.item} in {plan.source}:",
        f"        if {plan.condition.code.format(x=plan.item)}:",
        f"            value = {new}" if plan.item != "value" else f"            current = {new}",
    ]
    held = "value" if plan.item != "value" else "current"
    body += [
        f"            if best is None or {held} > best:",
        f"                best = {held}",
        "    return best",
    ]
    meaning = lambda items: max(_kept(plan, items), default=None)  # noqa: E731
    return doc, [*_head(plan, f"{_changed_type(plan)} | None", doc), *body], meaning


def _as_first(plan: _Plan) -> _Written:
    doc = f"the first of the {plan.source} that {plan.condition.said}, or None"
    body = [*_loop(plan, f"return {plan.item}"), "    return None"]
    meaning = lambda items: next(filter(plan.condition.holds, items), None)  # noqa: E731
    return doc, [*_head(plan, f"{plan.element} | None", doc), *body], meaning


def _as_positions(plan: _Plan) -> _Written:
    doc = f"the positions of the {plan.source} that {plan.condition.said}"
    body = [
        "    positions = []",
        f"    for index, {plan.item} in enumerate({plan.source}):",
        f"        if {plan.condition.code.format(x=plan.item)}:",
        "            positions.append(index)",
        "    return positions",
    ]
    meaning = lambda items: [i for i, item in enumerate(items) if plan.condition.holds(item)]  # noqa: E731
    return doc, [*_head(plan, "list[int]", doc), *body], meaning


def _as_dict(plan: _Plan) -> _Written:
    doc = f"a dictionary from the {plan.source} that {plan.condition.said} to their counts"
    body = [
        "    counts = {}",
        *_loop(plan, f"counts[{plan.item}] = counts.get({plan.item}, 0) + 1"),
        "    return counts",
    ]

    def meaning(items: list[Any]) -> dict[Any, int]:
        kept = [item for item in items if plan.condition.holds(item)]
        return {item: kept.count(item) for item in kept}

    return doc, [*_head(plan, f"dict[{plan.element}, int]", doc), *body], meaning


def _as_all(plan: _Plan) -> _Written:
    doc = f"True if all of the {plan.source} {plan.condition.said}, else False"
    body = [
        f"    for {plan.item} in {plan.source}:",
        f"        if not ({plan.condition.code.format(x=plan.item)}):",
        "            return False",
        "    return True",
    ]
    return (
        doc,
        [*_head(plan, "bool", doc), *body],
        lambda items: all(map(plan.condition.holds, items)),
    )


_WAYS: tuple[Callable[[_Plan], _Written], ...] = (
    _as_list, _as_list, _as_sum, _as_count, _as_largest, _as_first, _as_positions, _as_dict, _as_all,
)  # fmt: skip


def _inputs(rng: random.Random, element: str) -> list[list[Any]]:
    if element == "str":
        return [rng.choices(_SAMPLE_WORDS, k=size) for size in (0, 5, 12)]
    return [[rng.randint(-30, 130) for _ in range(size)] for size in (0, 8, 40)]


def _function_name(rng: random.Random, source: str) -> str:
    verb, tail = rng.choice(_VERBS), rng.choice(_TAILS)
    return rng.choice(
        (f"{verb}_{source}", f"{verb}_{tail}", f"{verb}_{tail}_{source}", f"{tail}_{source}")
    )


def draw(rng: random.Random) -> Task:
    """One function: sum, list, count ... of the items of a list for which a condition holds."""
    way = rng.choice(_WAYS)
    if rng.random() < 0.35:
        element, (source, item), condition = "str", rng.choice(_WORD_NAMES), _word_condition(rng)
        changes = [_PLAIN, *(_WORD_CHANGES[:1] if way in (_as_sum, _as_largest) else _WORD_CHANGES)]
        change = changes[1] if way is _as_sum else rng.choice(changes)
    else:
        element, (source, item), condition = (
            "int",
            rng.choice(_NUMBER_NAMES),
            _number_condition(rng),
        )
        change = rng.choice((_PLAIN, _number_change(rng), _number_change(rng)))
    plan = _Plan(_function_name(rng, source), source, item, element, condition, change)
    doc, lines, meaning = way(plan)
    what = "strings" if element == "str" else "integers"
    taken = rng.choice((f"a list of {what} {source}", f"the list {source} of {what}"))
    prompt = rng.choice(_FRAMES).format(name=plan.name, source=taken, does=f"returns {doc}")
    checks = tuple(((items,), meaning(items)) for items in _inputs(rng, element))
    return Task(prompt, "\n".join(lines), function=plan.name, checks=checks)
