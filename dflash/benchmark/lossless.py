"""Where greedy outputs part. Knows traces and token ids; a margin comes from a function passed in.

A margin near zero at the first difference is a numerical tie between two kernels; a large one is
a fault. A late difference is therefore shown with its margin and never called a failure alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dflash.benchmark.runner import Run
from dflash.metrics import first_difference
from dflash.schema import Trace

# (trace of the baseline, index of the token, the two ids) -> distance of their logits
Margin = Callable[[Trace, int, tuple[int, int]], float]


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
    margin: float | None = None  # logits apart; None until a target forward has told


def find_differences(runs: Sequence[Run], *, margin: Margin | None = None) -> list[Difference]:
    """Compare every DFlash answer with the baseline loop's; at most one per prompt and block."""
    baselines = {(r.prompt_index, r.repeat): r.traces for r in runs if r.arm == "baseline_loop"}
    found: dict[tuple[int, int], Difference] = {}
    for run in runs:
        key = (run.prompt_index, run.block_size)
        if run.arm != "dflash" or key in found:
            continue
        difference = _compare(run, baselines[run.prompt_index, run.repeat], margin)
        if difference is not None:
            found[key] = difference
    return list(found.values())


def _compare(run: Run, baseline: Sequence[Trace], margin: Margin | None) -> Difference | None:
    for turn, (left, right) in enumerate(zip(baseline, run.traces, strict=True)):
        index = first_difference(left.output_ids, right.output_ids)
        if index is None:
            continue
        ours, theirs = _id_at(right, index), _id_at(left, index)
        difference = Difference(
            run.prompt_index, run.category, run.block_size, turn, index, theirs, ours
        )
        if margin is None or ours is None or theirs is None:
            return difference
        return replace(difference, margin=margin(left, index, (theirs, ours)))
    return None


def _id_at(trace: Trace, index: int) -> int | None:
    return trace.output_ids[index] if index < len(trace.output_ids) else None
