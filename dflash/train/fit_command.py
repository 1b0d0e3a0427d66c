"""From "my small model" to "my draft": what ``python -m dflash.train draft`` does.

Knows how the parts of a fit follow each other: rows, mask, fresh draft, fit, checkpoint. Prints
nothing.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from dflash.errors import BlockSizeError, CheckpointError, PairError
from dflash.loading import load_target, load_tokenizer
from dflash.model import DFlashConfig, DFlashDraftModel
from dflash.pairs import local_model
from dflash.stops import stop_token_ids
from dflash.taps import build_target_layer_ids
from dflash.targets import check_taps, text_config
from dflash.train.corpus import TRAINING_SEED_START, draw_tasks
from dflash.train.generation import speed_up_attention
from dflash.train.new_draft import choose_mask_token, new_draft
from dflash.train.pretrain import matmul_dtype
from dflash.train.prompts import KINDS
from dflash.train.recipe import FitRecipe, FitReport, fit_draft
from dflash.train.synthesis import Row, read_rows, read_turns, synthesise
from dflash.whole_file import check_writable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DraftOrder:
    """What the user asked for. Unset fields are chosen from the target."""

    target: str  # folder, hub id, or the id of a known pair
    output: Path
    work: Path | None = None  # rows, states and the resumable fit; default: output + "-work"
    num_rows: int = 2000
    max_new_tokens: int = 224
    kinds: tuple[str, ...] = KINDS
    prompts: Path | None = None  # the user's own prompts, JSONL
    demo_corpus: bool = False  # prompts from the demo corpus of this project
    rows: tuple[Path, ...] = ()  # finished rows to use as well
    block_size: int = 8
    num_layers: int = 2
    num_taps: int = 5
    target_layer_ids: tuple[int, ...] | None = None
    mask_token_id: int | None = None
    batch_size: int = 64
    fit: FitRecipe = field(default_factory=FitRecipe)


def make_draft(order: DraftOrder) -> FitReport:
    """Synthesise, fit and write a draft; return the last report. Resumes what was begun.

    The checkpoint at ``order.output`` is rewritten at every report, so it can be tried early.
    Raises ``DFlashError`` children with a hint.
    """
    work = order.work or order.output.with_name(order.output.name + "-work")
    for folder in (work, order.output):
        check_writable(folder / "training.json")
    rows, turns = _given(order)
    path = local_model(order.target)
    target = frozen_target(path)
    tokenizer = load_tokenizer(path)
    taps = order.target_layer_ids or build_target_layer_ids(
        text_config(target).num_hidden_layers, order.num_taps
    )
    check_taps(target, tuple(taps))
    _check_order(order, target)
    rows += _made(order, order.num_rows - len(rows), turns, work, target, tokenizer)
    _check_enough(order, rows)
    mask = order.mask_token_id
    if mask is None:
        mask = choose_mask_token(tokenizer, target, _seen_ids(rows))
    draft = new_draft(
        target, block_size=order.block_size, num_layers=order.num_layers,
        target_layer_ids=taps, mask_token_id=mask, seed=order.fit.seed,
    )  # fmt: skip
    num_params = sum(p.numel() for p in draft.parameters())
    logger.info("fitting %d parameters, taps %s, mask %d", num_params, list(taps), mask)
    last: FitReport | None = None
    for last in fit_draft(draft, target, rows, work, recipe=order.fit):
        save_draft(draft, order.output, _facts(order, rows, last))
    assert last is not None  # fit_draft always ends with a report
    return last


def frozen_target(path: Path) -> PreTrainedModel:
    """The target, never trained, on the GPU when there is one, in the dtype that is fast there."""
    on_gpu = torch.cuda.is_available()
    model = load_target(path, torch.bfloat16 if on_gpu else matmul_dtype())
    if on_gpu:
        nn.Module.to(model, "cuda")
    model.eval().requires_grad_(False)
    speed_up_attention(model)
    return model


def save_draft(draft: DFlashDraftModel, folder: Path, facts: dict[str, Any]) -> None:
    """Write the draft in the published layout (bf16) with what is known about it beside it."""
    scratch = folder.with_name(folder.name + ".tmp")
    config = draft.config
    assert isinstance(config, DFlashConfig)
    kept = DFlashDraftModel(config).bfloat16()
    kept.load_state_dict(draft.state_dict())
    kept.save_pretrained(scratch)
    (scratch / "training.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    for file in scratch.iterdir():
        file.replace(folder / file.name)
    scratch.rmdir()


def _given(order: DraftOrder) -> tuple[list[Row], list[tuple[str, str]] | None]:
    """Finished rows, and the prompts that the others are made from if not invented."""
    rows = [row for path in order.rows for row in read_rows(path)]
    if order.prompts is not None:
        return rows, read_turns(order.prompts)
    return rows, _corpus_turns(order) if order.demo_corpus else None


def _made(
    order: DraftOrder,
    num_rows: int,
    turns: Sequence[tuple[str, str]] | None,
    work: Path,
    target: PreTrainedModel,
    tokenizer: Any,
) -> list[Row]:
    """As many self-made rows as the given ones leave to be asked for."""
    if num_rows < 1:
        return []
    return synthesise(
        target, tokenizer, work / "rows.jsonl", num_rows=num_rows, turns=turns,
        kinds=order.kinds, max_new_tokens=order.max_new_tokens,
        stop_ids=stop_token_ids(target, tokenizer), batch_size=order.batch_size,
        seed=order.fit.seed,
    )  # fmt: skip


def _check_order(order: DraftOrder, target: PreTrainedModel) -> None:
    """What would otherwise fail only after the answers were made."""
    if order.block_size < 2:
        raise BlockSizeError(
            f"a draft for block_size {order.block_size} would draft nothing.",
            "Use 2 or more; 16 is what most published drafts were trained at.",
        )
    embedding: Any = target.get_input_embeddings()
    num_rows, mask = embedding.weight.shape[0], order.mask_token_id
    if mask is not None and not 0 <= mask < num_rows:
        raise PairError(
            f"mask_token_id {mask} is outside the target's {num_rows} embedding rows.",
            f"Use 0 to {num_rows - 1}, or leave --mask-token-id out to have one chosen.",
        )


def _check_enough(order: DraftOrder, rows: Sequence[Row]) -> None:
    if len(rows) < order.fit.rows_per_step * 2:
        raise CheckpointError(
            f"{len(rows)} conversations are too few to fit a draft.",
            f"Ask for more with --num-rows, at least {order.fit.rows_per_step * 2}.",
        )


def _corpus_turns(order: DraftOrder) -> list[tuple[str, str]]:
    """Demo prompts of every kind in turn, from the part that the target was trained on."""
    share = -(-order.num_rows // len(order.kinds))
    seed = TRAINING_SEED_START + 7_000_000 + order.fit.seed
    drawn = [[(kind, t.prompt) for t in draw_tasks(kind, share, seed)] for kind in order.kinds]
    return [turn for turns in zip(*drawn, strict=True) for turn in turns]


def _seen_ids(rows: Sequence[Row]) -> set[int]:
    return {i for row in rows for i in (*row.prompt_ids, *row.answer_ids)}


def _facts(order: DraftOrder, rows: Sequence[Row], report: FitReport) -> dict[str, Any]:
    """Where this checkpoint comes from."""
    return {
        "target": order.target,
        "num_rows": len(rows),
        "num_answer_tokens": sum(len(row.answer_ids) for row in rows),
        "recipe": asdict(order.fit),
        "report": asdict(report),
        "made": time.strftime("%Y-%m-%d"),
    }
