"""What a calibration foretold, beside what was measured. Pure; knows no file and no engine."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dflash.benchmark.summary import BlockSummary, Pairing
from dflash.benchmark.tune import predict
from dflash.measurements import Calibration
from dflash.metrics import tau_at


@dataclass(frozen=True, slots=True)
class Foretold:
    """Predicted and measured decode speedup of one block size, over our loop at block 1, and
    what the prediction rests on: tau, and seconds of one AR step, draft pass and verification."""

    block_size: int
    predicted: float
    measured: float
    tau: float
    ar_step_s: float
    draft_s: float
    verify_s: float

    @property
    def error(self) -> float:
        """Relative error of the prediction: 0.1 is ten percent too high."""
        return self.predicted / self.measured - 1


def foretold(
    blocks: Sequence[BlockSummary],
    pairings: Mapping[int, Sequence[Pairing]],
    calibration: Calibration,
) -> tuple[Foretold, ...]:
    """Predict every measured block size from an earlier run's costs and acceptance.

    A calibration without acceptance is completed by this run's largest block, whose first
    positions stand in for smaller blocks; what those blocks accepted is never looked at.
    """
    largest = max(blocks, key=lambda b: b.block_size)
    lengths = [p.loop.num_prompt_tokens for p in pairings[largest.block_size]]
    costs = calibration.nearest(round(statistics.median(lengths)))
    taus = calibration.tau_by_block or _from_positions(largest)
    predicted = {p.block_size: p for p in predict(costs, taus)}
    found = []
    for block in blocks:
        told = predicted.get(block.block_size)
        measured = block.decode_speedup_over["baseline_loop"]
        if told is not None and measured is not None:
            found.append(
                Foretold(
                    block_size=block.block_size,
                    predicted=told.speedup,
                    measured=measured.median,
                    tau=told.tau,
                    ar_step_s=costs.ar_step_s,
                    draft_s=costs.draft_s[block.block_size],
                    verify_s=costs.verify_s[block.block_size],
                )
            )
    return tuple(found)


def _from_positions(largest: BlockSummary) -> dict[int, float]:
    positions = largest.overall.acceptance_by_position or ()
    taus = {b: tau_at(positions, b) for b in range(2, len(positions) + 2)}
    return {b: tau for b, tau in taus.items() if tau is not None}
