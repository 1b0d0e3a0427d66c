"""Runs -> the benchmark's numbers. Knows medians and pairs; knows no engine, file or clock.

Every speedup is a median over prompts of a ratio taken within one prompt and one repeat, so that
long prompts, drift and other load touch both sides of each ratio alike.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dflash.benchmark.lossless import Difference
from dflash.benchmark.runner import ArmName, Run
from dflash.metrics import (
    MedianInterval,
    RunStats,
    acceptance_by_position,
    median_interval,
    pooled_spec,
    run_stats,
)
from dflash.schema import SpecStats


@dataclass(frozen=True, slots=True)
class ArmStats:
    """One arm's answer to one prompt in one repeat, all turns added up."""

    num_prompt_tokens: int
    num_output_tokens: int
    ttft_s: float
    decode_s: float
    num_steps: int  # output tokens after the first of each turn
    spec: SpecStats | None
    draft_s: float
    verify_s: float
    draft_prefill_s: float | None
    peak_memory_bytes: int | None
    acceptance_lengths: tuple[int, ...]  # tokens per cycle, bonus included, as the guide calls it
    position: int  # when it ran among the arms, 0 first

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first; ``None`` when there was only one."""
        return self.decode_s / self.num_steps if self.num_steps else None

    @property
    def end_to_end_s_per_token(self) -> float:
        """Prefill and decode together, per output token."""
        return (self.ttft_s + self.decode_s) / self.num_output_tokens


@dataclass(frozen=True, slots=True)
class Pairing:
    """The arms of one prompt in one repeat, at one block size."""

    prompt_index: int
    category: str
    repeat: int
    loop: ArmStats
    generate: ArmStats | None
    dflash: ArmStats

    def baseline(self, name: ArmName) -> ArmStats:
        """The stats of a baseline by its arm's name."""
        if name == "baseline_generate":
            assert self.generate is not None
            return self.generate
        return self.loop


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """The numbers of a group of prompts at one block size."""

    num_prompts: int
    decode_speedup: MedianInterval | None
    end_to_end_speedup: MedianInterval | None
    tau: MedianInterval | None
    tau_pooled: float | None
    ttft_s: MedianInterval | None
    baseline_ttft_s: MedianInterval | None
    draft_prefill_s: MedianInterval | None
    tpot_s: MedianInterval | None
    baseline_tpot_s: MedianInterval | None
    acceptance_by_position: tuple[float, ...] | None
    num_equal: int
    num_checked: int


@dataclass(frozen=True, slots=True)
class BlockSummary:
    """Everything about one block size. ``baseline`` is the faster of the two by medians."""

    block_size: int
    baseline: ArmName
    overall: GroupSummary
    by_category: dict[str, GroupSummary]
    decode_speedup_over: dict[ArmName, MedianInterval | None]


def arm_stats(run: Run) -> ArmStats:
    """Add up the turns of one run."""
    parts = [run_stats(trace) for trace in run.traces]
    prefills = [p.draft_prefill_s for p in parts if p.draft_prefill_s is not None]
    peaks = [p.peak_memory_bytes for p in parts if p.peak_memory_bytes is not None]
    return ArmStats(
        num_prompt_tokens=int(_total(parts, lambda p: p.num_prompt_tokens)),
        num_output_tokens=int(_total(parts, lambda p: p.num_output_tokens)),
        ttft_s=_total(parts, lambda p: p.ttft_s),
        decode_s=_total(parts, lambda p: p.decode_s),
        num_steps=int(_total(parts, lambda p: p.num_output_tokens)) - len(parts),
        spec=pooled_spec(p.spec for p in parts),
        draft_s=_total(parts, lambda p: p.draft_s),
        verify_s=_total(parts, lambda p: p.verify_s),
        draft_prefill_s=sum(prefills) if prefills else None,
        peak_memory_bytes=max(peaks) if peaks else None,
        acceptance_lengths=tuple(c.num_accepted + 1 for t in run.traces for c in t.cycles),
        position=run.position,
    )


def pair_up(runs: Iterable[Run]) -> dict[int, list[Pairing]]:
    """Bring the arms of each prompt and repeat together, by block size."""
    grouped: dict[tuple[int, int], list[Run]] = defaultdict(list)
    for run in runs:
        grouped[run.prompt_index, run.repeat].append(run)
    pairings: dict[int, list[Pairing]] = defaultdict(list)
    for group in grouped.values():
        baselines = {r.arm: arm_stats(r) for r in group if r.arm != "dflash"}
        for run in (r for r in group if r.arm == "dflash"):
            pairings[run.block_size].append(
                Pairing(
                    run.prompt_index,
                    run.category,
                    run.repeat,
                    baselines["baseline_loop"],
                    baselines.get("baseline_generate"),
                    arm_stats(run),
                )
            )
    return dict(pairings)


def faster_baseline(pairings: Sequence[Pairing]) -> ArmName:
    """Name the baseline with the smaller median TPOT: the one a speedup must be measured from."""
    loop = [p.loop.tpot_s for p in pairings if p.loop.tpot_s]
    generate = [p.generate.tpot_s for p in pairings if p.generate and p.generate.tpot_s]
    if loop and generate and statistics.median(generate) < statistics.median(loop):
        return "baseline_generate"
    return "baseline_loop"


def summarise(
    pairings: Sequence[Pairing],
    differences: Sequence[Difference],
    *,
    block_size: int,
    checked: bool,
    seed: int,
) -> BlockSummary:
    """Summarise one block size. ``checked``: greedy, so that equality can be asked for."""
    baseline = faster_baseline(pairings)
    different = {d.prompt_index for d in differences if d.block_size == block_size}
    names: list[ArmName] = ["baseline_loop"]
    if all(p.generate for p in pairings):
        names.append("baseline_generate")

    def group(members: Sequence[Pairing]) -> GroupSummary:
        return _group(members, different, baseline=baseline, checked=checked, seed=seed)

    categories = sorted({p.category for p in pairings})
    return BlockSummary(
        block_size=block_size,
        baseline=baseline,
        overall=group(pairings),
        by_category={c: group([p for p in pairings if p.category == c]) for c in categories},
        decode_speedup_over={n: _speedup(pairings, n, seed) for n in names},
    )


def best_block(summaries: Sequence[BlockSummary]) -> BlockSummary:
    """The block size with the highest median decode speedup; the first one without any."""

    def key(summary: BlockSummary) -> float:
        speedup = summary.overall.decode_speedup
        return speedup.median if speedup else 0.0

    return max(summaries, key=key)


def _group(
    pairings: Sequence[Pairing],
    different: set[int],
    *,
    baseline: ArmName,
    checked: bool,
    seed: int,
) -> GroupSummary:
    def over_prompts(value: Callable[[Pairing], float | None]) -> MedianInterval | None:
        return _median_over_prompts(pairings, value, seed)

    prompts = {p.prompt_index for p in pairings}
    spec = pooled_spec(p.dflash.spec for p in pairings)
    return GroupSummary(
        num_prompts=len(prompts),
        decode_speedup=_speedup(pairings, baseline, seed),
        end_to_end_speedup=over_prompts(
            lambda p: p.baseline(baseline).end_to_end_s_per_token / p.dflash.end_to_end_s_per_token
        ),
        tau=over_prompts(lambda p: p.dflash.spec.tau if p.dflash.spec else None),
        tau_pooled=spec.tau if spec else None,
        ttft_s=over_prompts(lambda p: p.dflash.ttft_s),
        baseline_ttft_s=over_prompts(lambda p: p.baseline(baseline).ttft_s),
        draft_prefill_s=over_prompts(lambda p: p.dflash.draft_prefill_s),
        tpot_s=over_prompts(lambda p: p.dflash.tpot_s),
        baseline_tpot_s=over_prompts(lambda p: p.baseline(baseline).tpot_s),
        acceptance_by_position=acceptance_by_position(spec),
        num_equal=len(prompts - different) if checked else 0,
        num_checked=len(prompts) if checked else 0,
    )


def _speedup(pairings: Sequence[Pairing], baseline: ArmName, seed: int) -> MedianInterval | None:
    def ratio(pairing: Pairing) -> float | None:
        ours, theirs = pairing.dflash.tpot_s, pairing.baseline(baseline).tpot_s
        return theirs / ours if ours and theirs else None

    return _median_over_prompts(pairings, ratio, seed)


def _median_over_prompts(
    pairings: Sequence[Pairing], value: Callable[[Pairing], float | None], seed: int
) -> MedianInterval | None:
    """The median over prompts of each prompt's median over repeats; prompts are resampled."""
    per_prompt: dict[int, list[float]] = defaultdict(list)
    for pairing in pairings:
        number = value(pairing)
        if number is not None:
            per_prompt[pairing.prompt_index].append(number)
    return median_interval([statistics.median(v) for v in per_prompt.values()], seed=seed)


def _total(parts: Sequence[RunStats], field: Callable[[RunStats], float | None]) -> float:
    return sum(field(p) or 0 for p in parts)
