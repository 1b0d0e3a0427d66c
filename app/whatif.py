"""What a smaller block would have done, from one run's own positions and costs.

Knows acceptance counts and seconds; knows no engine and no page. Everything it returns is
modelled: a smaller block is assumed to accept what the same positions accepted in the run.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from app.runs import Run
from dflash.metrics import acceptance_by_position, tau_at
from dflash.schema import Trace


@dataclass(frozen=True, slots=True)
class CycleCost:
    """Median seconds of one full cycle of a block size, by part."""

    block_size: int
    draft_s: float
    verify_s: float
    other_s: float

    @property
    def total_s(self) -> float:
        """The whole cycle."""
        return self.draft_s + self.verify_s + self.other_s


@dataclass(frozen=True, slots=True)
class Prediction:
    """One block size. ``tau_needed`` is where it would break even."""

    block_size: int
    tau: float
    cycle_s: float
    speedup: float
    output_tps: float
    tau_needed: float


def cycle_cost(trace: Trace) -> CycleCost | None:
    """Median cost of the cycles that had the full width (the last one may be narrower)."""
    width = trace.request.block_size - 1
    parts = []
    before = trace.prefilled.t_s if trace.prefilled else 0.0
    for number, cycle in enumerate(trace.cycles):
        # The first draft pass also reads the prompt's states, so it is no ordinary cycle.
        if len(cycle.draft_ids) == width and (number > 0 or width == 0):
            spent_s = cycle.draft_s + cycle.verify_s
            parts.append((cycle.draft_s, cycle.verify_s, max(0.0, cycle.t_s - before - spent_s)))
        before = cycle.t_s
    if not parts:
        return None
    draft_s, verify_s, other_s = (statistics.median(column) for column in zip(*parts, strict=True))
    return CycleCost(trace.request.block_size, draft_s, verify_s, other_s)


def predictions(run: Run, measured: Mapping[int, CycleCost] | None = None) -> list[Prediction]:
    """Predict every block size from 1 to the run's own. Empty when a lane has no cycles to count.

    ``measured`` adds cycle costs of other block sizes that were really run here; between known
    widths the verification cost is interpolated, and the draft pass is taken at the next wider
    block that was measured.
    """
    run = run.counted
    step, full = cycle_cost(run.baseline), cycle_cost(run.dflash)
    positions = acceptance_by_position(run.comparison.dflash.spec)
    if step is None or full is None or positions is None:
        return []
    if min(step.total_s, full.total_s) <= 0:  # a file may hold a run that took no time
        return []
    known = {**(measured or {}), 1: step, full.block_size: full}
    result = []
    for block_size in range(1, full.block_size + 1):
        tau = tau_at(positions, block_size)
        assert tau is not None, "the histogram has one entry per slot of the run's block"
        cycle_s = _cycle_s(block_size, known)
        result.append(
            Prediction(
                block_size=block_size,
                tau=tau,
                cycle_s=cycle_s,
                speedup=tau * step.total_s / cycle_s,
                output_tps=tau / cycle_s,
                tau_needed=cycle_s / step.total_s,
            )
        )
    return result


def best(options: list[Prediction]) -> Prediction | None:
    """The fastest block size; the smaller one of a tie."""
    return max(options, key=lambda p: (p.speedup, -p.block_size), default=None)


def _cycle_s(block_size: int, known: Mapping[int, CycleCost]) -> float:
    if block_size in known:
        return known[block_size].total_s
    below = known[max(b for b in known if b < block_size)]
    above = known[min(b for b in known if b > block_size)]
    share = (block_size - below.block_size) / (above.block_size - below.block_size)
    verify_s = below.verify_s + share * (above.verify_s - below.verify_s)
    other_s = below.other_s + share * (above.other_s - below.other_s)
    return verify_s + other_s + above.draft_s
