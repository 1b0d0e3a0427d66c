"""The acceptance rules. Knows logits and token ids; knows no model, cache or clock.

Both rules share one design: the draft proposes its argmax, and the target's own choice
(argmax, or a draw from its tempered, top-k/top-p filtered distribution) decides. Every emitted
token is therefore a choice of the target, so the output has the target's own distribution
whatever the draft proposes (point-mass proposal; z-lab/dflash issue #74 and PR #169).
"""

from __future__ import annotations

import torch

from dflash.schema import SamplingParams


def accepted_prefix(draft_ids: list[int], target_ids: list[int]) -> int:
    """Count the drafts before the first one that differs from the target's own choice."""
    for i, (drafted, wanted) in enumerate(zip(draft_ids, target_ids, strict=False)):
        if drafted != wanted:
            return i
    return min(len(draft_ids), len(target_ids))


def filtered_probabilities(
    logits: torch.Tensor,  # [..., V]
    sampling: SamplingParams,
) -> torch.Tensor:  # [..., V], float32
    """Temper the logits, keep top-k then top-p, renormalise. Requires temperature > 0."""
    scaled = logits.float() / sampling.temperature
    if 0 < sampling.top_k < scaled.shape[-1]:
        kth = scaled.topk(sampling.top_k, dim=-1).values[..., -1:]
        scaled = scaled.masked_fill(scaled < kth, float("-inf"))
    probabilities = scaled.softmax(dim=-1)
    if sampling.top_p < 1:
        ordered, order = probabilities.sort(dim=-1, descending=True)
        # A token stays while the mass before it is below top_p, so the first always stays.
        outside = ordered.cumsum(dim=-1) - ordered >= sampling.top_p
        dropped = outside.scatter(-1, order, outside)
        probabilities = probabilities.masked_fill(dropped, 0.0)
        probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    return probabilities


def target_choice(
    logits: torch.Tensor,  # [B, V]
    sampling: SamplingParams,
    generator: torch.Generator | None,
) -> list[int]:
    """Let the target choose one token per row: argmax, or an independent draw."""
    if sampling.temperature == 0:
        return logits.argmax(dim=-1).tolist()
    probabilities = filtered_probabilities(logits, sampling)
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(-1).tolist()
