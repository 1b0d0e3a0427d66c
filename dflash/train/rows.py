"""Training rows of the demo target: tasks as token ids, copying drills, batches of few shapes."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from dflash.train.corpus import TRAINING_SEED_START, Task, draw_drills, draw_tasks
from dflash.train.target_recipe import TargetRecipe
from dflash.train.tokenizer import END, SPECIAL_TOKENS

BEGIN_ID, END_ID, USER_ID, ASSISTANT_ID, PAD_ID = range(5)  # as SPECIAL_TOKENS has them
Row = tuple[list[int], list[int]]  # token ids of a prompt in its template and of its answer

_MIX = {"chat": 1, "code": 2, "math": 6, "json": 4, "translate": 4, "edit": 10}  # tasks per share
# Rows are padded to one of these: each shape costs a minute of compiling, and longer rows are rare.
_WIDTHS = (64, 128, 192, 288)


def encoded(tokenizer: PreTrainedTokenizerBase, task: Task) -> Row:
    """Token ids of the prompt in its template, and of the answer with its end."""
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": task.prompt}], add_generation_prompt=True, tokenize=False
    )
    encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]  # noqa: E731
    return encode(prompt), encode(task.answer + END)


@dataclass(frozen=True, slots=True)
class Batch:
    """Right-padded rows ``ids [B, S]``; ``learned [B, S]`` precede an answer token."""

    ids: Tensor
    learned: Tensor
    num_tokens: int


def chunk_batches(
    tokenizer: PreTrainedTokenizerBase, recipe: TargetRecipe, chunk: int
) -> Iterator[Batch]:
    """Freshly drawn tasks of all kinds, rows of like length together, in random order."""
    seed = TRAINING_SEED_START + 1 + chunk
    tasks = [
        task
        for kind, share in _MIX.items()
        for task in draw_tasks(kind, share * recipe.share_tasks, seed)
    ]
    rows = [encoded(tokenizer, task) for task in tasks]
    rows += [encoded(tokenizer, sheet) for sheet in draw_drills(recipe.sum_drills, seed)]
    rows += _copy_drills(
        recipe, random.Random(seed), recipe.copy_drills, longest=90, different=(2, 24)
    )
    yield from _batches(rows, recipe, random.Random(seed))


def drill_batches(recipe: TargetRecipe, chunk: int) -> Iterator[Batch]:
    """Short copying drills only: copying is learned in minutes here, in hours without them."""
    rng = random.Random(f"drills {recipe.seed} {chunk}")
    rows = _copy_drills(recipe, rng, 2000, longest=24, different=(6, 2000))
    yield from _batches(rows, recipe, rng)


def _batches(rows: list[Row], recipe: TargetRecipe, rng: random.Random) -> Iterator[Batch]:
    """Rows of like length together, in random order."""
    by_width: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        length = len(row[0]) + len(row[1])
        if length <= _WIDTHS[-1]:
            by_width[next(width for width in _WIDTHS if width >= length)].append(row)
    batches = []
    for width, alike in by_width.items():
        num = max(recipe.tokens_per_step // width, 1)
        # full batches only, so that every batch has one of a few shapes
        batches += [(alike[at : at + num], width) for at in range(0, len(alike) - num + 1, num)]
    rng.shuffle(batches)
    for group, width in batches:
        yield _batch(group, width)


def _copy_drills(
    recipe: TargetRecipe, rng: random.Random, num: int, *, longest: int, different: tuple[int, int]
) -> list[Row]:
    """Random tokens to repeat: they teach copying from the prompt, which every kind builds on.

    A row draws from a number of ``different`` tokens, the fewest and the most: where they are few,
    the token before is not enough to find the place, and many before that have to count too.
    """
    fewest, most = different
    ordinary = range(len(SPECIAL_TOKENS), recipe.vocab_size)
    drills = []
    for _ in range(num):
        known = rng.sample(ordinary, rng.randint(fewest, min(most, len(ordinary))))
        text = rng.choices(known, k=rng.randint(8, longest))
        drills.append(([BEGIN_ID, USER_ID, *text, END_ID, ASSISTANT_ID], [*text, END_ID]))
    return drills


def _batch(rows: list[Row], width: int) -> Batch:
    ids = torch.full((len(rows), width), PAD_ID)
    learned = torch.zeros(len(rows), width, dtype=torch.bool)
    for at, (prompt, answer) in enumerate(rows):
        end = len(prompt) + len(answer)
        ids[at, :end] = torch.tensor(prompt + answer)
        learned[at, len(prompt) - 1 : end - 1] = True
    return Batch(ids, learned, sum(len(prompt) + len(answer) for prompt, answer in rows))
