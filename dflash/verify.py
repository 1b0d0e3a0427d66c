"""The acceptance rules. Knows logits and token ids; knows no model, cache or clock.

Greedy, and sampling with a point-mass proposal, share one design: the draft proposes its argmax
and the target's own choice (argmax, or a draw from its tempered, top-k/top-p filtered
distribution) decides. Every emitted token is a choice of the target, so the output has the
target's own distribution whatever the draft proposes (z-lab/dflash issue #74, PR #169). A
draft that draws its tokens and knows their odds (DFlash 2) is verified by rejection sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dflash.schema import SamplingParams


@dataclass(frozen=True, slots=True)
class Proposal:
    """A draft's tokens after the anchor; ``odds`` [B-1, V] only if they were drawn from them."""

    ids: tuple[int, ...] = ()
    odds: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the target made of a proposal. ``target_ids`` is its choice at every judged slot;
    the one after the accepted drafts is the bonus (or correction)."""

    num_accepted: int
    target_ids: tuple[int, ...]

    @property
    def bonus_id(self) -> int:
        """The target's own token after the accepted drafts."""
        return self.target_ids[self.num_accepted]


def verify(
    logits: torch.Tensor,  # [B, V], one row per slot
    proposal: Proposal,
    sampling: SamplingParams,
    generator: torch.Generator | None,
) -> Verdict:
    """Judge a block. The emitted tokens are ``target_ids[: num_accepted + 1]``."""
    if proposal.odds is not None and sampling.temperature > 0:
        return _rejection_sampling(logits, proposal, sampling, generator)
    wanted = target_choice(logits, sampling, generator)
    return Verdict(accepted_prefix(proposal.ids, wanted), tuple(wanted))


def _rejection_sampling(
    logits: torch.Tensor,
    proposal: Proposal,
    sampling: SamplingParams,
    generator: torch.Generator | None,
) -> Verdict:
    """Accept draft x with probability min(1, p(x)/q(x)); at the first rejection draw from
    max(0, p - q), renormalised (Leviathan et al., arXiv 2211.17192)."""
    assert proposal.odds is not None
    wanted = filtered_probabilities(logits, sampling)  # p [B, V]
    drafts = list(proposal.ids)
    for slot, drafted in enumerate(drafts):
        p, q = wanted[slot], proposal.odds[slot]
        draw = torch.rand((), generator=generator, device=p.device)
        if draw * q[drafted] >= p[drafted]:
            left = (p - q).clamp(min=0)
            correction = int(torch.multinomial(left, 1, generator=generator))
            return Verdict(slot, (*drafts[:slot], correction))
    bonus = int(torch.multinomial(wanted[len(drafts)], 1, generator=generator))
    return Verdict(len(drafts), (*drafts, bonus))


def accepted_prefix(draft_ids: Sequence[int], target_ids: Sequence[int]) -> int:
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
