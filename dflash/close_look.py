"""What a second look at a run finds, as values: the odds of every slot, the place where two texts
part. Knows the schema only; dflash.microscope computes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from dflash.schema import Trace

Verdict: TypeAlias = Literal["tie", "fault"]

# Rounding flips of greedy choices were seen at top-1 to top-2 gaps of 0 to 0.25
# (z-lab/dflash issue #172); a choice that differs at a larger gap is no rounding.
TIE_MARGIN = 0.25


@dataclass(frozen=True, slots=True)
class SlotOdds:
    """One drafted token. Target values are ``None`` for a slot that was never judged."""

    draft_probability: float  # the draft's own, of its proposal
    target_probability: float | None  # the target's, of the same token
    target_rank_in_draft: int | None  # place of the target's choice in the draft's list, from 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """One token the target considered."""

    token_id: int
    logit: float
    probability: float


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first token at which two greedy texts differ, recomputed along both lanes' own paths.

    ``index`` counts output tokens from 0. Candidates are the target's best, best first.
    """

    index: int
    baseline_id: int
    dflash_id: int
    baseline: tuple[Candidate, ...]
    dflash: tuple[Candidate, ...]

    @property
    def margin(self) -> float:
        """The larger of the two lanes' gaps between their best two logits."""
        return max(_gap(self.baseline), _gap(self.dflash))

    @property
    def verdict(self) -> Verdict:
        """A tie when the same two tokens lead in both lanes within rounding; else a fault."""
        leaders = {c.token_id for c in self.baseline[:2]}
        same = leaders == {c.token_id for c in self.dflash[:2]}
        return "tie" if same and self.margin <= TIE_MARGIN else "fault"


def _gap(candidates: tuple[Candidate, ...]) -> float:
    return candidates[0].logit - candidates[1].logit if len(candidates) > 1 else float("inf")


@runtime_checkable
class CloseLook(Protocol):
    """An engine that can look at its own runs again."""

    def slot_odds(self, trace: Trace) -> Iterator[tuple[SlotOdds, ...]]:
        """Yield the odds of every drafting cycle of a trace, in order."""
        ...

    def divergence(self, baseline: Trace, dflash: Trace, index: int) -> Divergence:
        """Recompute both lanes up to output token ``index``. Raises ``EngineError``."""
        ...
