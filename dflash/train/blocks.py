"""Many draft blocks of one sequence in a single pass: anchors, slots, positions, who sees whom.

Knows token ids and positions. Knows no model. The rule that everything here serves: a block
anchored at position p sees the target's states of positions before p (not of p itself, which the
target has not processed when it drafts) and, both ways, its own slots.
Shapes: b rows, S positions, A anchors per row, B slots per block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Blocks:
    """What a draft is fed for A blocks per row, and what it should have said."""

    slot_ids: torch.Tensor  # [b, A*B], anchor then masks
    position_ids: torch.Tensor  # [b, S + A*B]
    sees_context: torch.Tensor  # [b, A, S], which of the row's positions a block's slots see
    label_positions: torch.Tensor  # [b, A, B-1], where in the row each label stands
    label_is_real: torch.Tensor  # [b, A, B-1], False beyond the row's end and for spare anchors

    def attention_mask(self) -> torch.Tensor:  # [b, 1, A*B, S + A*B], True = visible
        """Who sees whom, for the module's own forward: the context, and both ways its own block."""
        num_rows, num_anchors, _ = self.sees_context.shape
        block_size = self.label_positions.shape[2] + 1
        own = torch.eye(num_anchors, dtype=torch.bool, device=self.sees_context.device)
        own = own.repeat_interleave(block_size, 0).repeat_interleave(block_size, 1)  # [A*B, A*B]
        seen = self.sees_context.repeat_interleave(block_size, dim=1)
        return torch.cat((seen, own.expand(num_rows, -1, -1)), dim=2)[:, None]


def random_anchors(
    starts: torch.Tensor,  # [b], first position that may be an anchor
    lengths: torch.Tensor,  # [b], tokens per row; the last one is only ever a label
    num_anchors: int,
    generator: torch.Generator,
) -> torch.Tensor:  # [b, A], -1 where a row has fewer places than A
    """Draw different anchors per row, each as likely as any other."""
    width = max(int(lengths.max()), num_anchors)
    places = torch.arange(width)
    allowed = (places >= starts[:, None]) & (places < lengths[:, None] - 1)
    scores = torch.rand(len(starts), width, generator=generator).masked_fill(~allowed, -1.0)
    best = scores.topk(num_anchors, dim=1)
    return best.indices.masked_fill(best.values < 0, -1)


def build_blocks(
    ids: torch.Tensor,  # [b, S], padded on the right
    lengths: torch.Tensor,  # [b]
    anchors: torch.Tensor,  # [b, A], -1 = spare
    *,
    block_size: int,
    mask_token_id: int,
) -> Blocks:
    """Lay out every block behind the row's own positions."""
    num_rows, width = ids.shape
    num_anchors = anchors.shape[1]
    is_used = anchors >= 0
    at = anchors.clamp(min=0)
    slots = torch.full((num_rows, num_anchors, block_size), mask_token_id, device=ids.device)
    slots[:, :, 0] = ids.gather(1, at)
    offsets = torch.arange(block_size, device=ids.device)
    positions = at[:, :, None] + offsets  # [b, A, B]
    label_positions = positions[:, :, 1:]
    label_is_real = (label_positions < lengths[:, None, None]) & is_used[:, :, None]
    context_positions = torch.arange(width, device=ids.device).expand(num_rows, width)
    sees_context = context_positions[:, None] < at[:, :, None]
    return Blocks(
        slots.flatten(1),
        torch.cat((context_positions, positions.flatten(1)), dim=1),
        sees_context,
        label_positions.clamp(max=width - 1),
        label_is_real,
    )


def position_weights(block_size: int, gamma: float) -> torch.Tensor:  # [B-1]
    """Loss weight exp(-(k-1)/gamma) of slot k = 1...B-1 (paper section 3): a late slot counts
    only when all earlier ones were right."""
    return torch.exp(-torch.arange(block_size - 1) / gamma)


def default_gamma(block_size: int) -> float:
    """The paper's 7, 5, 4 for block 16, 10, 8; in between and beyond, a straight line."""
    return 4 + (block_size - 8) * 3 / 8 if block_size > 8 else max(block_size / 2, 1.0)
