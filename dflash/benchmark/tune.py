"""Find the fastest block size under a time budget. Pure: measuring is a function passed in.

This is the one place that sweeps. The advisor does not import it: it reads the ``TuneResult`` that
the command line saves through ``dflash.measurements`` and ranks by it (rung ``measured``).
The winner is chosen on one set of prompts and judged on another, so that its figure is not the
luckiest of several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dflash.errors import PromptError
from dflash.measurements import StepCosts
from dflash.metrics import MedianInterval

NUM_FINALISTS = 3
_LONGER = "Use prompts with longer answers, or a larger --max-new-tokens."


@dataclass(frozen=True, slots=True)
class Measured:
    """What paired runs at one block size gave."""

    block_size: int
    decode_speedup: MedianInterval
    tau: float | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """What costs and acceptance say about one block size before it is run."""

    block_size: int
    tau: float
    speedup: float


@dataclass(frozen=True, slots=True)
class Tuned:
    """``tuned``: every finalist on the tuning prompts. ``judged``: the winner on the others."""

    predictions: tuple[Prediction, ...]
    tuned: tuple[Measured, ...]
    judged: tuple[Measured, ...]  # the winner first; the trained block too when it lost

    @property
    def winner(self) -> Measured:
        """The winner as it did on the judging prompts."""
        return self.judged[0]

    def predicted(self, block_size: int) -> float | None:
        """The speedup that was predicted for a block size, if it was."""
        found = (p.speedup for p in self.predictions if p.block_size == block_size)
        return next(found, None)


# (which prompts, block sizes) -> paired results, one per block size that yielded any
Measure = Callable[[str, Sequence[int]], Mapping[int, Measured]]


def predict(costs: StepCosts, tau_by_block: Mapping[int, float]) -> tuple[Prediction, ...]:
    """Predict every block size that both costs and acceptance cover, fastest first.

    speedup(B) = T_ar * tau(B) / (T_draft(B) + T_verify(B)), the paper's Eq. 1 over one AR step.
    """
    predictions = []
    for block_size in sorted(set(costs.draft_s) & set(costs.verify_s)):
        tau = tau_by_block.get(block_size)
        if tau is not None:
            cycle_s = costs.draft_s[block_size] + costs.verify_s[block_size]
            predictions.append(Prediction(block_size, tau, costs.ar_step_s * tau / cycle_s))
    return tuple(sorted(predictions, key=lambda p: p.speedup, reverse=True))


def tune(predictions: Sequence[Prediction], *, trained_block_size: int, measure: Measure) -> Tuned:
    """Run the most promising block sizes and the trained one, pick the fastest, judge it apart.

    ``measure`` is called twice: with "tuning" and the finalists, then with "judging". Raises
    ``PromptError`` when it returns nothing to choose from.
    """
    finalists = [p.block_size for p in predictions[:NUM_FINALISTS]]
    if trained_block_size not in finalists:
        finalists.append(trained_block_size)
    tuned = measure("tuning", sorted(finalists))
    if not tuned:
        raise PromptError("no block size could be measured on the tuning prompts.", _LONGER)
    best = max(tuned.values(), key=lambda m: m.decode_speedup.median).block_size
    judges = [best] + [trained_block_size] * (best != trained_block_size)
    judged = measure("judging", judges)
    if best not in judged:
        raise PromptError(f"block {best} could not be measured on the judging prompts.", _LONGER)
    return Tuned(
        predictions=tuple(predictions),
        tuned=tuple(tuned[b] for b in sorted(tuned)),
        judged=tuple(judged[b] for b in judges if b in judged),
    )
