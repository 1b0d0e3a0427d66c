"""Find the fastest block size, and draft window where one is free, under a time budget. Pure:
measuring is a function passed in.

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
    """What paired runs at one block size, and with one draft window, gave."""

    block_size: int
    decode_speedup: MedianInterval
    tau: float | None
    sliding_window_size: int | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """What costs and acceptance say about one block size before it is run."""

    block_size: int
    tau: float
    speedup: float


@dataclass(frozen=True, slots=True)
class Tuned:
    """``tuned``: every finalist on the tuning prompts, then the fastest block with each window.
    ``judged``: the winner on the others."""

    predictions: tuple[Prediction, ...]
    tuned: tuple[Measured, ...]
    judged: tuple[Measured, ...]  # the winner first; the trained block too when it lost

    @property
    def winner(self) -> Measured:
        """The winner as it did on the judging prompts."""
        return self.judged[0]

    def predicted(self, block_size: int, sliding_window_size: int | None = None) -> float | None:
        """The speedup that was predicted for a block size, if it was; none is for a window."""
        found = (p.speedup for p in self.predictions if p.block_size == block_size)
        return next(found, None) if sliding_window_size is None else None


# (which prompts, block sizes, draft window) -> paired results by block size, of those with any
Measure = Callable[[str, Sequence[int], int | None], Mapping[int, Measured]]


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


def tune(
    predictions: Sequence[Prediction],
    *,
    trained_block_size: int,
    measure: Measure,
    windows: Sequence[int] = (),
) -> Tuned:
    """Run the most promising block sizes and the trained one, give the fastest each of
    ``windows``, pick the fastest of all and judge it apart.

    ``measure`` is called with "tuning" for the finalists and for each window, then with
    "judging". Raises ``PromptError`` when it returns nothing to choose from.
    """
    finalists = [p.block_size for p in predictions[:NUM_FINALISTS]]
    if trained_block_size not in finalists:
        finalists.append(trained_block_size)
    unbounded = measure("tuning", sorted(finalists), None)
    if not unbounded:
        raise PromptError("no block size could be measured on the tuning prompts.", _LONGER)
    block = _fastest(list(unbounded.values())).block_size
    bounded = [measure("tuning", [block], window).get(block) for window in windows]
    tuned = [unbounded[b] for b in sorted(unbounded)] + [m for m in bounded if m is not None]
    window = _fastest([m for m in tuned if m.block_size == block]).sliding_window_size
    return Tuned(
        predictions=tuple(predictions),
        tuned=tuple(tuned),
        judged=_judged(block, window, trained_block_size, measure),
    )


def _fastest(measured: Sequence[Measured]) -> Measured:
    return max(measured, key=lambda m: m.decode_speedup.median)


def _judged(
    block: int, window: int | None, trained_block_size: int, measure: Measure
) -> tuple[Measured, ...]:
    """The winner on the judging prompts, then the trained block as it comes when that lost."""
    if window is None:
        judges = [block] + [trained_block_size] * (block != trained_block_size)
        together = measure("judging", judges, None)
        found = [together.get(b) for b in judges]
    else:
        found = [
            measure("judging", [block], window).get(block),
            measure("judging", [trained_block_size], None).get(trained_block_size),
        ]
    if found[0] is None:
        raise PromptError(f"block {block} could not be measured on the judging prompts.", _LONGER)
    return tuple(m for m in found if m is not None)
