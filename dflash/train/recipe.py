"""Fits a draft to a target: the paper's random anchors and decaying loss, at laptop size.

Knows drafts, targets and training rows. Knows no command line. Matrices are trained with Muon,
norms with AdamW, against a clock rather than a step count, because the machine may be shared; a
killed run goes on from its last state.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from dflash.model import DFlashDraftModel
from dflash.train.acceptance import Acceptance, measure_acceptance
from dflash.train.blocks import build_blocks, default_gamma, position_weights, random_anchors
from dflash.train.forward import BlockInputs, blocks_loss, compiled_where_possible
from dflash.train.loss import scored_tokens
from dflash.train.pretrain import matmul_dtype
from dflash.train.states import StateBatch, TargetStates
from dflash.train.synthesis import Row

logger = logging.getLogger(__name__)

_STATE_FILE = "fit_state.pt"


@dataclass(frozen=True, slots=True)
class FitRecipe:
    """Everything that decides how a draft comes out, its shape apart. Rates per step."""

    minutes: float = 30.0  # of the fit's own time; the end comes with it or with ``num_steps``
    num_steps: int | None = None
    num_anchors: int = 48
    rows_per_step: int = 4
    matrix_rate: float = 0.02
    other_rate: float = 5e-3
    weight_decay: float = 0.02
    warmup_share: float = 0.03
    hard_share: float = 0.3
    gamma: float | None = None  # None: the paper's value for the block size
    num_frequent: int = 6144
    num_random: int = 1024
    num_held_out: int = 36
    report_every_s: float = 120.0
    save_every_s: float = 60.0
    compiled: bool = True  # where a C++ compiler is found; pays after a few minutes
    seed: int = 0


@dataclass(frozen=True, slots=True)
class FitReport:
    """One look at a fit in progress; ``acceptance`` is on rows that are never trained on."""

    step: int
    elapsed_s: float
    loss: float
    num_blocks: int  # trained on so far
    acceptance: Acceptance


@dataclass(slots=True)
class _Fit:
    """A fit under way."""

    draft: DFlashDraftModel
    optimizers: list[torch.optim.Optimizer]
    loss_of: Callable[..., torch.Tensor]
    step: int = 0
    seconds: float = 0.0
    num_blocks: int = 0
    losses: list[float] = field(default_factory=list)


def fit_draft(
    draft: DFlashDraftModel,  # fp32; changed in place
    target: PreTrainedModel,
    rows: Sequence[Row],
    work: Path,  # cached states and the resumable state live here
    *,
    recipe: FitRecipe,
) -> Iterator[FitReport]:
    """Train for ``recipe.minutes`` of own time; yield a report now and then and one at the end.

    Safe to abandon or kill: calling it again with the same rows and folder goes on.
    """
    device = target.device
    nn.Module.to(draft, device).train()
    states = TargetStates(target, draft.target_layer_ids, rows, work / "states")
    train, held_out = split_rows(rows, recipe.num_held_out)
    kinds = [row.kind for row in rows]
    fit = _start(draft, work, recipe)
    frequent = _frequent_tokens(rows, recipe.num_frequent)
    last_report = last_save = fit.seconds
    batches = _batches(rows, train, recipe, fit.step)
    while _progress(fit, recipe) < 1:
        started = time.perf_counter()
        _step(fit, target, states.batch(next(batches)), frequent, recipe)
        fit.seconds += time.perf_counter() - started
        if fit.seconds - last_save > recipe.save_every_s:
            _save(fit, work)
            last_save = fit.seconds
        if fit.seconds - last_report > recipe.report_every_s:
            yield _report(fit, target, states, held_out, kinds)
            last_report = fit.seconds
    _save(fit, work)
    yield _report(fit, target, states, held_out, kinds)


def split_rows(rows: Sequence[Row], num_held_out: int) -> tuple[list[int], list[int]]:
    """Indices to train on and to judge on; kinds shared evenly, no prompt on both sides."""
    by_kind: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        if len(row.answer_ids) > 1:
            by_kind.setdefault(row.kind, []).append(i)
    share = max(1, num_held_out // max(len(by_kind), 1))
    held_out = [i for indices in by_kind.values() for i in indices[:share]]
    judged = {rows[i].user for i in held_out}
    train = [i for indices in by_kind.values() for i in indices if rows[i].user not in judged]
    return train, held_out


def _start(draft: DFlashDraftModel, work: Path, recipe: FitRecipe) -> _Fit:
    """Optimizers for this draft, and where an earlier run stopped."""
    matrices = [p for p in draft.parameters() if p.dim() == 2]
    others = [p for p in draft.parameters() if p.dim() != 2]
    fit = _Fit(
        draft,
        [
            torch.optim.Muon(
                matrices, lr=recipe.matrix_rate, weight_decay=recipe.weight_decay, momentum=0.95
            ),
            torch.optim.AdamW(others, lr=recipe.other_rate, weight_decay=0.0, betas=(0.9, 0.95)),
        ],
        compiled_where_possible(blocks_loss, draft.device) if recipe.compiled else blocks_loss,
    )
    path = work / _STATE_FILE
    if path.exists():
        state = torch.load(path, weights_only=True, map_location=draft.device)
        draft.load_state_dict(state["draft"])
        for optimizer, saved in zip(fit.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        fit.step, fit.seconds, fit.num_blocks = (
            state["step"], state["seconds"], state["num_blocks"],
        )  # fmt: skip
        logger.info("going on from step %d", fit.step)
    return fit


def _save(fit: _Fit, work: Path) -> None:
    """Write the state beside the old one, then replace it: a kill leaves one of the two."""
    scratch = work / (_STATE_FILE + ".tmp")
    torch.save(
        {
            "draft": fit.draft.state_dict(),
            "optimizers": [o.state_dict() for o in fit.optimizers],
            "step": fit.step,
            "seconds": fit.seconds,
            "num_blocks": fit.num_blocks,
        },
        scratch,
    )
    scratch.replace(work / _STATE_FILE)


def _batches(
    rows: Sequence[Row], train: Sequence[int], recipe: FitRecipe, first_step: int
) -> Iterator[list[int]]:
    """Batches of rows of like length, epoch after epoch, the same for the same seed."""
    size = recipe.rows_per_step
    per_epoch = max(1, len(train) // size)
    epoch, skip = divmod(first_step, per_epoch)
    while True:
        order = list(train)
        rng = random.Random(f"{recipe.seed} {epoch}")
        rng.shuffle(order)
        chunk = size * 16
        near = [
            i
            for start in range(0, len(order), chunk)
            for i in sorted(
                order[start : start + chunk],
                key=lambda i: len(rows[i].prompt_ids) + len(rows[i].answer_ids),
            )
        ]
        batches = [near[k * size : (k + 1) * size] for k in range(per_epoch)]
        rng.shuffle(batches)
        yield from batches[skip:]
        epoch, skip = epoch + 1, 0


def _step(
    fit: _Fit,
    target: PreTrainedModel,
    batch: StateBatch,
    frequent: torch.Tensor,
    recipe: FitRecipe,
) -> None:
    """One optimizer step on ``num_anchors`` blocks of each row."""
    factor = _rate_factor(_progress(fit, recipe), recipe.warmup_share)
    for optimizer, rate in zip(
        fit.optimizers, (recipe.matrix_rate, recipe.other_rate), strict=True
    ):
        for group in optimizer.param_groups:
            group["lr"] = rate * factor
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + fit.step)
    inputs, num_blocks = _loss_inputs(
        fit.draft, target, batch, recipe.num_anchors, recipe.gamma, generator
    )
    head = target.get_output_embeddings().weight
    scored = scored_tokens(inputs.labels, frequent, len(head), recipe.num_random, generator)
    dtype = _compute_dtype(target.device)
    with torch.autocast(target.device.type, dtype, enabled=dtype == torch.bfloat16):
        loss = fit.loss_of(fit.draft, inputs, head, scored, recipe.hard_share)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(fit.draft.parameters(), 1.0)
    for optimizer in fit.optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    fit.losses.append(loss.item())
    fit.step += 1
    fit.num_blocks += num_blocks


def _loss_inputs(
    draft: DFlashDraftModel,
    target: PreTrainedModel,
    batch: StateBatch,
    num_anchors: int,
    gamma: float | None,
    generator: torch.Generator,
) -> tuple[BlockInputs, int]:
    """Random blocks of a batch, and how many they are."""
    assert draft.block_size is not None and draft.mask_token_id is not None
    device = batch.ids.device
    anchors = random_anchors(
        batch.answer_starts.cpu(), batch.lengths.cpu(), num_anchors, generator
    ).to(device)
    blocks = build_blocks(
        batch.ids, batch.lengths, anchors,
        block_size=draft.block_size, mask_token_id=draft.mask_token_id,
    )  # fmt: skip
    embeds = target.get_input_embeddings()(blocks.slot_ids).to(draft.fc.weight.dtype)
    row = torch.arange(len(batch.ids), device=device)[:, None]
    place = blocks.label_positions.flatten(1)  # [b, A*(B-1)]
    weights = position_weights(draft.block_size, gamma or default_gamma(draft.block_size))
    inputs = BlockInputs(
        embeds,
        batch.tapped.to(embeds.dtype),
        blocks.position_ids,
        blocks.sees_context,
        # the state before a token is the one that predicts it
        teacher=batch.final[row, place - 1].flatten(0, 1),
        labels=batch.ids[row, place].flatten(),
        weights=(weights.to(device) * blocks.label_is_real).flatten(),
    )
    return inputs, int((anchors >= 0).sum())


def _frequent_tokens(rows: Sequence[Row], num: int) -> torch.Tensor:
    """The ids that answers use most, up to ``num``."""
    counts = torch.bincount(torch.tensor([i for row in rows for i in row.answer_ids]))
    best = counts.topk(min(num, len(counts)))
    return best.indices[best.values > 0]


def _progress(fit: _Fit, recipe: FitRecipe) -> float:
    """0 at the start, 1 when the fit is over."""
    by_time = fit.seconds / (recipe.minutes * 60)
    return by_time if recipe.num_steps is None else max(by_time, fit.step / recipe.num_steps)


def _rate_factor(progress: float, warmup_share: float) -> float:
    """Warm up, then fall along a cosine to a twentieth."""
    if progress < warmup_share:
        return max(progress / warmup_share, 0.05)
    fall = (progress - warmup_share) / (1 - warmup_share)
    return 0.05 + 0.95 * 0.5 * (1 + float(torch.cos(torch.tensor(fall * torch.pi))))


@cache  # the choice on a CPU is a measurement
def _compute_dtype(device: torch.device) -> torch.dtype:
    """bf16 on a GPU, and on a CPU that is faster in it."""
    return torch.bfloat16 if device.type == "cuda" else matmul_dtype()


def _report(
    fit: _Fit,
    target: PreTrainedModel,
    states: TargetStates,
    held_out: Sequence[int],
    kinds: Sequence[str],
) -> FitReport:
    dtype = _compute_dtype(target.device)
    with torch.autocast(target.device.type, dtype, enabled=dtype == torch.bfloat16):
        acceptance = measure_acceptance(fit.draft, target, states, held_out, kinds)
    recent = fit.losses[-100:] or [float("nan")]
    report = FitReport(fit.step, fit.seconds, sum(recent) / len(recent), fit.num_blocks, acceptance)
    logger.info(
        "step %d, %.0f s, loss %.3f, held out: tau %.2f, by position %s, by kind %s",
        report.step, report.elapsed_s, report.loss, acceptance.tau,
        " ".join(f"{share:.2f}" for share in acceptance.by_position),
        " ".join(f"{kind} {tau:.2f}" for kind, tau in acceptance.tau_by_kind.items()),
    )  # fmt: skip
    return report
