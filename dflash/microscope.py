"""A second, unmeasured look at a run: what draft and target thought of every slot, and why two
greedy texts part.

Knows traces, targets and drafts; recomputes logits from the recorded ids, so it costs the
measured run nothing. Knows no page. Shapes: n positions, B block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from dflash.borrowed import Borrowed, borrow
from dflash.close_look import Candidate, Divergence, SlotOdds
from dflash.errors import EngineError
from dflash.model import DFlashDraftModel, DraftCache
from dflash.schema import Cycle, Trace
from dflash.targets import Target, TargetRun

_CHUNK = 64  # positions per forward: keeps [n, V] logits small
_NUM_CANDIDATES = 5


@torch.inference_mode()
def slot_odds(
    target: Target,
    draft: DFlashDraftModel,
    model: PreTrainedModel,  # the target's module: the draft borrows its embedding and head
    prompt_ids: Sequence[int],
    cycles: Sequence[Cycle],
    first_id: int,
) -> Iterator[tuple[SlotOdds, ...]]:
    """Yield the odds of every cycle's slots, in order. Safe to abandon at any yield."""
    run = target.start(len(prompt_ids) + sum(len(c.draft_ids) + 1 for c in cycles), tapped=True)
    config: Any = draft.config
    cache = DraftCache(config)
    borrowed = borrow(model, scale=config.trained("input_embedding_scale"))
    hidden: torch.Tensor | None = _read(run, prompt_ids)
    anchor = first_id
    for cycle in cycles:
        if not cycle.draft_ids:
            return  # the last cycle may be too narrow to draft
        drafted = _draft_odds(draft, borrowed, cache, hidden, anchor, len(cycle.draft_ids))
        kept = (anchor, *cycle.draft_ids[: cycle.num_accepted])
        logits, hidden = run.forward(list(kept), len(kept))
        run.rollback(0)
        yield _cycle_odds(cycle, drafted, logits.float().softmax(-1))
        anchor = cycle.emitted_ids[-1]


@torch.inference_mode()
def divergence(
    target: Target, prompt_ids: Sequence[int], baseline: Trace, dflash: Trace, index: int
) -> Divergence:
    """Recompute both lanes up to output token ``index``, each along its own path.

    ``index`` counts output tokens from 0. Raises ``EngineError`` when a trace does not reach it.
    """
    lanes = [_candidates_at(target, prompt_ids, trace, index) for trace in (baseline, dflash)]
    ids = (baseline.output_ids, dflash.output_ids)
    return Divergence(index, ids[0][index], ids[1][index], lanes[0], lanes[1])


def _candidates_at(
    target: Target, prompt_ids: Sequence[int], trace: Trace, index: int
) -> tuple[Candidate, ...]:
    if index >= len(trace.output_ids) or trace.prefilled is None:
        raise EngineError(f"this run has no output token {index + 1}.")
    drafted = sum(len(c.draft_ids) + 1 for c in trace.cycles)
    run = target.start(len(prompt_ids) + drafted + 1, tapped=trace.request.block_size > 1)
    logits, _ = run.forward(list(prompt_ids), 1)
    run.rollback(0)
    if index == 0:
        return _top(logits[-1])
    anchor, num_output = trace.prefilled.token_id, 1
    for cycle in trace.cycles:
        block = [anchor, *cycle.draft_ids]
        logits, _ = run.forward(block, len(block))
        if index < num_output + len(cycle.emitted_ids):
            return _top(logits[index - num_output])
        run.rollback(len(cycle.draft_ids) - cycle.num_accepted)
        num_output += len(cycle.emitted_ids)
        anchor = cycle.emitted_ids[-1]
    raise EngineError(f"this run has no output token {index + 1}.")


def _read(run: TargetRun, ids: Sequence[int]) -> torch.Tensor:
    """Feed a prompt in chunks; return the tapped states [1, n, K*D]."""
    parts = []
    for start in range(0, len(ids), _CHUNK):
        _, hidden = run.forward(list(ids[start : start + _CHUNK]), 1)
        run.rollback(0)
        assert hidden is not None, "the run was started tapped"
        parts.append(hidden)
    return torch.cat(parts, dim=1)


def _draft_odds(
    draft: DFlashDraftModel,
    borrowed: Borrowed,
    cache: DraftCache,
    hidden: torch.Tensor | None,
    anchor: int,
    num_drafts: int,
) -> torch.Tensor:  # [B-1, V]
    """One draft pass through the module, whose logits are exact."""
    assert hidden is not None and draft.mask_token_id is not None
    slots = torch.tensor([[anchor] + [draft.mask_token_id] * num_drafts], device=hidden.device)
    positions = torch.arange(cache.length, cache.length + hidden.shape[1] + num_drafts + 1)
    states = draft(
        borrowed.embed(slots),
        hidden,
        positions[None].to(hidden.device),
        cache,
    )
    return draft.shape_logits(borrowed.logits(states[0, 1:])).float().softmax(-1)


def _cycle_odds(
    cycle: Cycle,
    drafted: torch.Tensor,  # [B-1, V]
    wanted: torch.Tensor,  # [accepted + 1, V]
) -> tuple[SlotOdds, ...]:
    odds = []
    for slot, token in enumerate(cycle.draft_ids):
        own = float(drafted[slot, token])
        if slot > cycle.num_accepted:
            odds.append(SlotOdds(own, None, None))
            continue
        choice = token if slot < cycle.num_accepted else cycle.bonus_id
        rank = int((drafted[slot] > drafted[slot, choice]).sum()) + 1
        odds.append(SlotOdds(own, float(wanted[slot, token]), rank))
    return tuple(odds)


def _top(logits: torch.Tensor) -> tuple[Candidate, ...]:
    """The best candidates of one row of logits [V]."""
    probabilities = logits.float().softmax(-1)
    values, ids = logits.float().topk(min(_NUM_CANDIDATES, logits.shape[-1]))
    return tuple(
        Candidate(int(i), float(v), float(probabilities[i]))
        for v, i in zip(values, ids, strict=True)
    )
