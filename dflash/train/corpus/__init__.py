"""The demo corpus: six kinds of task, generated without end from small grammars.

A task belongs by the hash of its prompt either to training or to the held-out part, and by its seed to
one of them: whoever asks with a seed below ``TRAINING_SEED_START`` gets prompts that no training saw.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any

from dflash.train.corpus import edits, functions, records, spanish, stories, sums
from dflash.train.corpus.judge import is_right
from dflash.train.corpus.task import Task

__all__ = [
    "KINDS",
    "TRAINING_SEED_START",
    "Task",
    "draw_drills",
    "draw_tasks",
    "is_held_out",
    "is_right",
    "sample_prompts",
]

TRAINING_SEED_START = 1_000_000
_HELD_OUT_SHARE = 8  # one prompt in so many is held out
_DRAWS = {
    "chat": stories.draw,
    "code": functions.draw,
    "math": sums.draw,
    "json": records.draw,
    "translate": spanish.draw,
    "edit": edits.draw,
}
KINDS = tuple(_DRAWS)


def is_held_out(prompt: str) -> bool:
    """Whether a prompt belongs to the held-out part, by its hash alone."""
    return hashlib.sha256(prompt.encode()).digest()[0] % _HELD_OUT_SHARE == 0


def draw_tasks(kind: str, num: int, seed: int) -> list[Task]:
    """``num`` tasks of a kind: the same for the same seed.

    Seeds from ``TRAINING_SEED_START`` on draw from the training part, those below it from the
    held-out part. Raises ``ValueError`` for an unknown kind.
    """
    if kind not in _DRAWS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    rng = random.Random(f"{kind} {seed}")
    held_out = seed < TRAINING_SEED_START
    tasks: list[Task] = []
    while len(tasks) < num:
        task = _DRAWS[kind](rng)
        if is_held_out(task.prompt) == held_out:
            tasks.append(task)
    return tasks


def draw_drills(num: int, seed: int) -> list[Task]:
    """``num`` sheets of bare sums and half as many bare word lists, for training only."""
    rng = random.Random(f"drills {seed}")
    return [sums.drill(rng) for _ in range(num)] + [records.drill(rng) for _ in range(num // 2)]


def sample_prompts(kind: str, num: int, seed: int) -> list[dict[str, Any]]:
    """``num`` rows ``{"category", "turns", "answer"}`` of a kind, for prompt files."""
    return [
        {"category": kind, "turns": [task.prompt], "answer": task.answer}
        for task in draw_tasks(kind, num, seed)
    ]
