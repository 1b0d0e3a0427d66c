"""Where greedy outputs part, and whether that is rounding or a fault. Knows traces and token ids;
the logits come from an engine that can look at its own runs again.

A late difference is a tie between two kernels' roundings more often than a fault, so it is shown
with its margin and verdict and never called a failure alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dflash.benchmark.runner import Run
from dflash.close_look import CloseLook, Verdict
from dflash.metrics import first_difference
from dflash.schema import Trace


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a greedy DFlash answer first parted from the baseline's."""

    prompt_index: int
    category: str
    block_size: int
    turn: int
    token_index: int
    baseline_id: int | None  # None: that output had ended
    dflash_id: int | None
    margin: float | None = None  # logits apart; None where the engine cannot look again
    verdict: Verdict | None = None


def find_differences(runs: Sequence[Run], *, look: CloseLook | None = None) -> list[Difference]:
    """Compare every DFlash answer with the baseline loop's; at most one per prompt and block."""
    baselines = {(r.prompt_index, r.repeat): r.traces for r in runs if r.arm == "baseline_loop"}
    found: dict[tuple[int, int], Difference] = {}
    for run in runs:
        key = (run.prompt_index, run.block_size)
        if run.arm != "dflash" or key in found:
            continue
        difference = _compare(run, baselines[run.prompt_index, run.repeat], look)
        if difference is not None:
            found[key] = difference
    return list(found.values())


def _compare(run: Run, baseline: Sequence[Trace], look: CloseLook | None) -> Difference | None:
    for turn, (left, right) in enumerate(zip(baseline, run.traces, strict=True)):
        index = first_difference(left.output_ids, right.output_ids)
        if index is None:
            continue
        ours, theirs = _id_at(right, index), _id_at(left, index)
        difference = Difference(
            run.prompt_index, run.category, run.block_size, turn, index, theirs, ours
        )
        if look is None or ours is None or theirs is None:
            return difference
        seen = look.divergence(left, right, index)
        return replace(difference, margin=seen.margin, verdict=seen.verdict)
    return None


def _id_at(trace: Trace, index: int) -> int | None:
    return trace.output_ids[index] if index < len(trace.output_ids) else None
