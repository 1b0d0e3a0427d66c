"""What a draft would achieve on rows it never saw, without decoding them.

Knows a draft, the states of its target and greedy answers. Because the answers are the target's
own greedy ones and the states are the target's own, walking from block to block over a row gives
the same cycles as real greedy decoding would (up to rounding of the states).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dflash.model import DFlashDraftModel
from dflash.train.blocks import build_blocks
from dflash.train.states import StateBatch, TargetStates

_ANCHORS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Simulated greedy cycles. ``by_position[k-1]`` = share of cycles that accept k drafts or
    more; ``tau`` counts the bonus token."""

    tau: float
    by_position: tuple[float, ...]
    tau_by_kind: dict[str, float]
    num_cycles: int


@torch.no_grad()
def measure_acceptance(
    draft: DFlashDraftModel,
    target: Any,
    states: TargetStates,
    indices: Sequence[int],
    kinds: Sequence[str],  # of every row of ``states``
) -> Acceptance:
    """Walk over the named rows block by block and count what the draft gets right."""
    accepted: dict[str, list[int]] = defaultdict(list)
    was_training = draft.training
    draft.eval()
    for index in indices:
        batch = states.batch([index])
        accepted[kinds[index]] += _walk(_accepted_everywhere(draft, target, batch))
    draft.train(was_training)
    every = [n for counts in accepted.values() for n in counts]
    assert draft.block_size is not None
    return Acceptance(
        1 + sum(every) / len(every),
        tuple(sum(n >= k for n in every) / len(every) for k in range(1, draft.block_size)),
        {kind: 1 + sum(counts) / len(counts) for kind, counts in sorted(accepted.items())},
        len(every),
    )


def _accepted_everywhere(
    draft: DFlashDraftModel, target: Any, batch: StateBatch
) -> torch.Tensor:  # [A], accepted drafts at every anchor from the answer's first token on
    first, end = int(batch.answer_starts[0]), int(batch.lengths[0]) - 1
    return torch.cat(
        [
            _accepted(draft, target, batch, range(start, min(start + _ANCHORS_AT_ONCE, end)))
            for start in range(first, end, _ANCHORS_AT_ONCE)
        ]
        or [torch.zeros(0, dtype=torch.long)]
    )


def _accepted(
    draft: DFlashDraftModel, target: Any, batch: StateBatch, anchors: range
) -> torch.Tensor:
    assert draft.block_size is not None and draft.mask_token_id is not None
    blocks = build_blocks(
        batch.ids,
        batch.lengths,
        torch.tensor([list(anchors)], device=batch.ids.device),
        block_size=draft.block_size,
        mask_token_id=draft.mask_token_id,
    )
    hidden = block_hidden(draft, target, batch, blocks.slot_ids, blocks.position_ids,
                          blocks.attention_mask())[0, :, 1:]  # fmt: skip
    head = target.get_output_embeddings()
    proposals = draft.shape_logits(head(hidden.to(head.weight.dtype))).argmax(dim=-1)  # [A, B-1]
    labels = batch.ids[0][blocks.label_positions[0]]
    right = (proposals == labels) & blocks.label_is_real[0]
    return right.long().cumprod(dim=1).sum(dim=1).cpu()


def block_hidden(
    draft: DFlashDraftModel,
    target: Any,
    batch: StateBatch,
    slot_ids: torch.Tensor,  # [b, A*B]
    position_ids: torch.Tensor,  # [b, S + A*B]
    attention_mask: torch.Tensor,  # [b, 1, A*B, S + A*B]
) -> torch.Tensor:  # [b, A, B, D]
    """Run the draft over all blocks of a batch in one pass."""
    dtype = draft.fc.weight.dtype
    embeds = target.get_input_embeddings()(slot_ids).to(dtype)
    hidden = draft(embeds, batch.tapped.to(dtype), position_ids, attention_mask=attention_mask)
    return hidden.unflatten(1, (-1, draft.block_size))


def _walk(accepted: torch.Tensor) -> list[int]:
    """The cycles greedy decoding takes: from each anchor on by what it accepted, plus one."""
    counts, at = [], 0
    while at < len(accepted):
        counts.append(int(accepted[at]))
        at += counts[-1] + 1
    return counts
