"""Training data from nothing but the target: it invents the questions, then answers them.

Knows chat templates, prompts and batched decoding. Knows no draft. Rows are JSONL and appended
batch by batch, so a killed run goes on where it stopped.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from dflash.benchmark.prompts import read_jsonl
from dflash.errors import CheckpointError, PairError
from dflash.schema import SamplingParams
from dflash.train.generation import generate_all
from dflash.train.prompts import KINDS, OPENERS, templated_prompt

logger = logging.getLogger(__name__)

_MARK = "DFLASHUSERTURN"  # survives every template unchanged; cut out again at once
_SAMPLED = SamplingParams(temperature=0.9, top_p=0.95, top_k=256, max_new_tokens=64)


@dataclass(frozen=True, slots=True)
class Row:
    """One training conversation: the rendered prompt and the target's own greedy answer."""

    kind: str
    user: str
    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]


def chat_prompt(tokenizer: PreTrainedTokenizerBase, user: str) -> list[int]:
    """Token ids of one user turn as this target expects it, ready to be answered."""
    if tokenizer.chat_template is None:
        return tokenizer(user).input_ids
    ids: Any = tokenizer.apply_chat_template(
        [{"role": "user", "content": user}], add_generation_prompt=True, return_dict=False
    )
    assert isinstance(ids, list)
    return ids


def turn_prefix(tokenizer: PreTrainedTokenizerBase, opener: str) -> list[int]:
    """Token ids up to and into a user turn, for the target to finish the turn itself."""
    if tokenizer.chat_template is None:
        start = [tokenizer.bos_token_id] if tokenizer.bos_token_id is not None else []
        return start + tokenizer(opener, add_special_tokens=False).input_ids
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": _MARK}], tokenize=False, add_generation_prompt=True
    )
    assert isinstance(rendered, str)
    if _MARK not in rendered:
        raise PairError(
            "this target's chat template does not contain the user's text.",
            "Pass your own prompts with --prompts FILE.jsonl.",
        )
    before = rendered.split(_MARK)[0]
    return tokenizer(before + opener, add_special_tokens=False).input_ids


def invent_turns(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    num: int,
    kinds: Sequence[str],
    stop_ids: frozenset[int],
    batch_size: int,
    seed: int,
) -> list[tuple[str, str]]:
    """Return ``num`` pairs of kind and user turn: half finished from openers by the target itself,
    a quarter from templates, a quarter invented freely."""
    rng = random.Random(seed)
    generator = torch.Generator(device=model.device).manual_seed(seed)
    turns: list[tuple[str, str]] = []
    starts: list[tuple[str, str]] = []
    for i in range(num):
        kind = kinds[i % len(kinds)]
        if i % 4 == 1:
            turns.append((kind, templated_prompt(kind, rng)))
        elif i % 4 == 3:
            starts.append(("free", ""))
        else:
            starts.append((kind, rng.choice(OPENERS[kind])))
    prefixes = [turn_prefix(tokenizer, opener) for _, opener in starts]
    for batch in generate_all(
        model, prefixes, sampling=_SAMPLED, stop_ids=stop_ids, batch_size=batch_size,
        generator=generator,
    ):  # fmt: skip
        for answer in batch:
            kind, opener = starts[answer.index]
            text = opener + str(tokenizer.decode(list(answer.ids), skip_special_tokens=True))
            if answer.ended and text.strip():
                turns.append((kind, text.strip()))
    rng.shuffle(turns)
    return turns


def answer_turns(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    turns: Sequence[tuple[str, str]],
    *,
    max_new_tokens: int,
    stop_ids: frozenset[int],
    batch_size: int,
) -> Iterator[list[Row]]:
    """Answer every turn greedily; yield one batch of rows after another."""
    prompts = [chat_prompt(tokenizer, user) for _, user in turns]
    for batch in generate_all(
        model, prompts, sampling=SamplingParams(max_new_tokens=max_new_tokens),
        stop_ids=stop_ids, batch_size=batch_size,
    ):  # fmt: skip
        yield [Row(*turns[a.index], tuple(prompts[a.index]), a.ids) for a in batch]


def synthesise(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    path: Path,
    *,
    num_rows: int,
    turns: Sequence[tuple[str, str]] | None = None,
    kinds: Sequence[str] = KINDS,
    max_new_tokens: int = 256,
    stop_ids: frozenset[int],
    batch_size: int = 64,
    seed: int = 0,
) -> list[Row]:
    """Fill ``path`` (JSONL) up to ``num_rows`` rows and return them all.

    ``turns`` are the user's own prompts (kind, text); without them the target invents its own.
    """
    rows = read_rows(path) if path.exists() else []
    path.parent.mkdir(parents=True, exist_ok=True)
    chunk = batch_size * 4  # answers are sorted by length within a chunk
    while len(rows) < num_rows:
        wanted = min(chunk, num_rows - len(rows))
        if turns is None:
            todo = invent_turns(
                model, tokenizer, num=max(wanted, len(kinds)), kinds=kinds, stop_ids=stop_ids,
                batch_size=batch_size, seed=seed + len(rows),
            )  # fmt: skip
        else:
            todo = list(turns[len(rows) : len(rows) + wanted])
        if not todo:
            break
        fresh: list[Row] = []
        for batch in answer_turns(
            model, tokenizer, todo, max_new_tokens=max_new_tokens, stop_ids=stop_ids,
            batch_size=batch_size,
        ):  # fmt: skip
            fresh += batch
        _append_rows(path, fresh)
        rows += fresh
        num_tokens = sum(len(row.answer_ids) for row in rows)
        logger.info("%d of %d answers, %d answer tokens", len(rows), num_rows, num_tokens)
    return rows


def read_rows(path: Path) -> list[Row]:
    """Read a rows file; a half-written last line (a kill) is dropped.

    Raises ``CheckpointError`` for a file that cannot be read, or naming the broken line.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"the training rows {path} cannot be read ({type(error).__name__}).",
            "Give the rows.jsonl of an earlier run.",
        ) from error
    rows = []
    for number, line in enumerate(lines[:-1], start=1):  # whatever follows the last newline: cut
        try:
            rows.append(_row(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise CheckpointError(
                f"{path}, line {number}, is not a training row: {error!r}.",
                "Delete the file to make the rows again.",
            ) from error
    return rows


def read_turns(path: Path) -> list[tuple[str, str]]:
    """Category and first turn of every prompt in a file as the benchmark reads it.

    Raises ``PromptError`` with the line.
    """
    return [(prompt.category, prompt.turns[0]) for prompt in read_jsonl(path)]


def _row(value: Any) -> Row:
    return Row(
        str(value["kind"]), str(value["user"]), tuple(map(int, value["prompt_ids"])),
        tuple(map(int, value["answer_ids"])),
    )  # fmt: skip


def _append_rows(path: Path, rows: Iterable[Row]) -> None:
    """Append whole lines; a cut-off last line of an earlier run is completed by its removal."""
    if path.exists():
        text = path.read_bytes()
        if not text.endswith(b"\n"):
            path.write_bytes(text[: text.rfind(b"\n") + 1])
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(row)) + "\n" for row in rows)
