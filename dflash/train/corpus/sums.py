"""Maths tasks: word problems of two to four steps, each worked out on its own line."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from dflash.train.corpus import words
from dflash.train.corpus.task import Task


@dataclass(slots=True)
class _Problem:
    """A story told so far: its sentences, its worked lines and what is left in hand."""

    name: str
    thing: str
    total: int
    told: list[str] = field(default_factory=list)
    worked: list[str] = field(default_factory=list)


_STARTS = (
    "{name} has {n} {thing}.",
    "{name} starts with {n} {thing}.",
    "In the morning {name} has {n} {thing}.",
    "There are {n} {thing} in {name}'s bag.",
    "{name} owns {n} {thing}.",
    "{name} puts {n} {thing} on a shelf.",
)
_GAINS = (
    ("{other} gives {name} {n} more.", "{other} gives {n} more"),
    ("Then {name} finds {n} more {thing}.", "{name} finds {n} more"),
    ("{name} buys {n} more.", "{name} buys {n} more"),
    ("{name} wins {n} {thing} in a game.", "{name} wins {n} more"),
    ("Later {other} brings {n} {thing}.", "{other} brings {n} more"),
    ("{name} gets {n} more from {other}.", "{name} gets {n} more"),
)
_LOSSES = (
    ("{name} gives {n} to {other}.", "{name} gives away {n}"),
    ("Then {name} loses {n} of them.", "{name} loses {n}"),
    ("{name} sells {n} {thing} at the market.", "{name} sells {n}"),
    ("{other} borrows {n} of them.", "{other} borrows {n}"),
    ("{n} of them are broken and thrown away.", "{n} are thrown away"),
    ("{name} leaves {n} {thing} at home.", "{name} leaves {n} at home"),
)
_PACKS = (
    ("{name} buys {k} {box} with {n} {thing} in each.", "{k} {box} with {n} each"),
    ("Then {k} {box} of {n} {thing} each arrive.", "{k} {box} of {n} each"),
    ("{other} brings {k} {box}, each with {n} {thing}.", "{k} {box} with {n} each"),
)
_BOXES = "boxes bags packs baskets crates trays".split()
_SHARES = (
    "{name} shares them equally among {k} friends. How many {thing} does each friend get?",
    "They are packed into {k} equal parcels. How many {thing} are in each parcel?",
    "All {thing} are divided equally between {k} rooms. How many are in each room?",
)
_ASKS = (
    "How many {thing} does {name} have now?",
    "How many {thing} does {name} have in the end?",
    "How many {thing} are left?",
    "Work out how many {thing} {name} has at the end.",
)


def _product(k: int, n: int) -> str:
    """The product of a digit and a number, tens first: ``4 * 23 = 80 + 12 = 92``."""
    tens, ones = n // 10 * 10, n % 10
    if tens and ones:
        return f"{k} * {n} = {k * tens} + {k * ones} = {k * n}"
    return f"{k} * {n} = {k * n}"


def _worked(total: int, sign: str, n: int) -> str:
    """A sum or difference, one place at a time: ``38 + 45 = 78 + 5 = 83``."""
    parts = [digit * place for place in (100, 10, 1) if (digit := n // place % 10)]
    steps = [f"{total} {sign} {n}"]
    for at, part in enumerate(parts):
        total += part if sign == "+" else -part
        rest = sum(parts[at + 1 :])
        steps.append(f"{total} {sign} {rest}" if rest else str(total))
    return " = ".join(steps)


def _gain(rng: random.Random, problem: _Problem, other: str) -> None:
    n = rng.randint(2, 99)
    said, why = rng.choice(_GAINS)
    names = {"name": problem.name, "other": other, "n": n, "thing": problem.thing}
    problem.told.append(said.format(**names))
    problem.worked.append(f"{why.format(**names)}: {_worked(problem.total, '+', n)}")
    problem.total += n


def _loss(rng: random.Random, problem: _Problem, other: str) -> None:
    n = rng.randint(1, min(99, problem.total - 1))
    said, why = rng.choice(_LOSSES)
    names = {"name": problem.name, "other": other, "n": n, "thing": problem.thing}
    problem.told.append(words.upper_first(said.format(**names)))
    problem.worked.append(f"{why.format(**names)}: {_worked(problem.total, '-', n)}")
    problem.total -= n


def _packs(rng: random.Random, problem: _Problem, other: str) -> None:
    k, n = rng.randint(2, 9), rng.randint(2, 40)
    said, why = rng.choice(_PACKS)
    names = {
        "name": problem.name,
        "other": other,
        "n": n,
        "k": k,
        "thing": problem.thing,
        "box": rng.choice(_BOXES),
    }
    problem.told.append(said.format(**names))
    problem.worked.append(f"{why.format(**names)}: {_product(k, n)}")
    problem.worked.append(f"Add them: {_worked(problem.total, '+', k * n)}")
    problem.total += k * n


def _share(rng: random.Random, problem: _Problem) -> bool:
    """End with an equal division where the total allows one."""
    fits = [k for k in range(2, 10) if problem.total % k == 0]
    if not fits:
        return False
    k = rng.choice(fits)
    told = rng.choice(_SHARES).format(name=problem.name, k=k, thing=problem.thing)
    problem.told.append(told)
    problem.worked.append(f"Share equally: {problem.total} / {k} = {problem.total // k}")
    problem.total //= k
    return True


def draw(rng: random.Random) -> Task:
    """One word problem; every number stays under 1000."""
    name, *others = words.distinct(rng, words.given_name, 4)
    start = rng.randint(5, 99)
    problem = _Problem(name, rng.choice(words.COUNTED), start)
    problem.told.append(rng.choice(_STARTS).format(name=name, n=start, thing=problem.thing))
    problem.worked.append(f"{name} starts with {start} {problem.thing}.")
    for other in others[: rng.choice((1, 2, 2, 3))]:
        steps = [_gain]
        if problem.total > 2:
            steps.append(_loss)
        if problem.total < 600:
            steps.append(_packs)
        rng.choice(steps)(rng, problem, other)
    if rng.random() < 0.25 and _share(rng, problem):
        ending = f"Each one gets {problem.total} {problem.thing}."
    else:
        problem.told.append(rng.choice(_ASKS).format(name=name, thing=problem.thing))
        ending = f"{name} has {problem.total} {problem.thing}."
    lines = [words.upper_first(line) for line in problem.worked]
    answer = "\n".join([*lines, ending, f"The answer is {problem.total}."])
    return Task(" ".join(problem.told), answer)


def drill(rng: random.Random) -> Task:
    """Bare sums, four at once: a word problem holds too few for the sums to be learned from it."""
    asked, lines = [], []
    for _ in range(4):
        total, n = rng.randint(3, 99 if rng.random() < 0.5 else 700), rng.randint(2, 99)
        if rng.random() < 0.3:
            line = _product(rng.randint(2, 9), rng.randint(2, 40))
        elif rng.random() < 0.5 and total > 2:
            line = _worked(total, "-", rng.randint(1, min(99, total - 1)))
        else:
            line = _worked(total, "+", rng.randint(100, 360) if rng.random() < 0.3 else n)
        asked.append(line.partition(" = ")[0])
        lines.append(line)
    return Task("Work out: " + ", ".join(asked), "\n".join(lines))
