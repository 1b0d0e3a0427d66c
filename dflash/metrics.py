"""Trace -> numbers. Knows events, counts and seconds; knows no engine, model, clock or page.

Every definition that codebases disagree about is fixed here once: tau counts the bonus token,
``num_accepted`` never does, TPOT divides by n - 1, and a trace that was cut short still counts
what it saw. ``None`` always means unknown.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from dflash.schema import Chunk, Cycle, SpecStats, Trace

DifferenceUnit = Literal["token", "character"]

_MIN_TOKENS = 8  # below this a ratio of two times says nothing
_NUM_RESAMPLES = 2000
_BURST_S = 0.001  # no server answers twice within a millisecond; it was held up on the way


@dataclass(frozen=True, slots=True)
class RunStats:
    """One run in numbers. ``decode_s`` spans the first to the last output token."""

    num_prompt_tokens: int | None
    num_output_tokens: int | None
    ttft_s: float | None
    decode_s: float | None
    spec: SpecStats | None
    peak_memory_bytes: int | None = None
    draft_s: float | None = None  # all draft passes, draft prefill included
    verify_s: float | None = None  # all target forwards after the prefill
    draft_prefill_s: float | None = None  # what the first draft pass cost above the median one
    num_first_tokens: int = 1  # came together at TTFT; a server's first chunk may hold several

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first (serving definition: decode / (n - 1))."""
        if self.decode_s is None or self.num_output_tokens is None:
            return None
        num_later = self.num_output_tokens - self.num_first_tokens
        return self.decode_s / num_later if num_later > 0 else None

    @property
    def output_tps(self) -> float | None:
        """Decoded tokens per second, prefill excluded: 1 / TPOT."""
        tpot_s = self.tpot_s
        return 1 / tpot_s if tpot_s else None

    @property
    def end_to_end_s(self) -> float | None:
        """Seconds from submitting the request to its last token."""
        if self.ttft_s is None or self.decode_s is None:
            return None
        return self.ttft_s + self.decode_s


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs of one request. ``first_difference`` counts output tokens (or characters) from 0.

    ``outputs_match`` is ``None`` when it cannot be told: an output is missing, or a run was cut
    short before any difference. ``are_complete``: both runs ended by themselves.
    """

    baseline: RunStats
    dflash: RunStats
    outputs_match: bool | None
    num_compared: int  # tokens (or characters) that both outputs have
    are_complete: bool
    first_difference: int | None = None
    difference_unit: DifferenceUnit = "token"

    @property
    def are_long_enough(self) -> bool:
        """Whether a ratio of their times says anything. Lengths that are unknown never are."""
        counts = (self.baseline.num_output_tokens, self.dflash.num_output_tokens)
        return all(count is not None and count >= _MIN_TOKENS for count in counts)

    @property
    def speedup(self) -> float | None:
        """Decode speedup: the ratio of TPOTs, above 1 when DFlash is faster."""
        if not self.are_long_enough:
            return None
        return _ratio(self.baseline.tpot_s, self.dflash.tpot_s)

    @property
    def end_to_end_speedup(self) -> float | None:
        """Ratio of whole-request seconds per output token, prefill included."""
        if not (self.are_long_enough and self.are_complete):
            return None
        return _ratio(_end_to_end_s_per_token(self.baseline), _end_to_end_s_per_token(self.dflash))


@dataclass(frozen=True, slots=True)
class MedianInterval:
    """A median with a bootstrap interval. ``low`` and ``high`` are ``None`` below two values."""

    median: float
    low: float | None
    high: float | None
    n: int


def spec_stats(cycles: Sequence[Cycle], block_size: int) -> SpecStats | None:
    """Count acceptance over cycles; ``None`` when nothing was drafted.

    The raw ``num_accepted`` is counted, also where a stop token or the length limit cut the
    emitted tokens short. The histogram has one entry per slot of the block.
    """
    if not any(c.draft_ids for c in cycles):
        return None
    histogram = [0] * block_size
    for cycle in cycles:
        histogram[cycle.num_accepted] += 1
    return SpecStats(
        num_cycles=len(cycles),
        num_draft_tokens=sum(len(c.draft_ids) for c in cycles),
        num_accepted_tokens=sum(c.num_accepted for c in cycles),
        acceptance_histogram=tuple(histogram),
        source="observed",
    )


def trace_spec(trace: Trace) -> SpecStats | None:
    """Count acceptance from a trace's cycles, or pass on what a server reported instead."""
    if trace.cycles:
        return spec_stats(trace.cycles, trace.request.block_size)
    return trace.finished.spec if trace.finished else None


def run_stats(trace: Trace) -> RunStats:
    """Fold a trace into its numbers; works on a cancelled trace too."""
    cycles, finished = trace.cycles, trace.finished
    stamps = _token_stamps(trace)
    return RunStats(
        num_prompt_tokens=_num_prompt_tokens(trace),
        num_output_tokens=_num_output_tokens(trace),
        ttft_s=stamps[0] if stamps else None,
        decode_s=stamps[-1] - stamps[0] if stamps else None,
        spec=trace_spec(trace),
        peak_memory_bytes=finished.peak_memory_bytes if finished else None,
        draft_s=sum(c.draft_s for c in cycles) if cycles else None,
        verify_s=sum(c.verify_s for c in cycles) if cycles else None,
        draft_prefill_s=_draft_prefill_s(cycles),
        num_first_tokens=_num_first_tokens(trace),
    )


def compare(baseline: Trace, dflash: Trace) -> Comparison:
    """Compare two runs of the same request: by token ids where both have them, else by text."""
    by_ids = bool(baseline.output_ids and dflash.output_ids)
    left: Sequence[object] = baseline.output_ids if by_ids else _chunk_text(baseline)
    right: Sequence[object] = dflash.output_ids if by_ids else _chunk_text(dflash)
    complete = baseline.finished is not None and dflash.finished is not None
    difference = first_difference(left, right, complete=complete)
    known = difference is not None or (complete and bool(left) and bool(right))
    return Comparison(
        baseline=run_stats(baseline),
        dflash=run_stats(dflash),
        outputs_match=difference is None if known else None,
        num_compared=min(len(left), len(right)),
        are_complete=complete,
        first_difference=difference,
        difference_unit="token" if by_ids else "character",
    )


def first_difference(
    left: Sequence[object], right: Sequence[object], *, complete: bool = True
) -> int | None:
    """Find the first index where two outputs differ; ``None`` when they agree.

    Of complete outputs, the end of the shorter one is a difference; of cut ones it is not.
    """
    for i, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return i
    if not complete or len(left) == len(right):
        return None
    return min(len(left), len(right))


def pooled_spec(parts: Iterable[SpecStats | None]) -> SpecStats | None:
    """Add up runs, so that tau is pooled over cycles (not a mean of per-run means)."""
    known = [p for p in parts if p is not None]
    if not known:
        return None
    histograms = [p.acceptance_histogram for p in known if p.acceptance_histogram is not None]
    total: tuple[int, ...] | None = None
    if len(histograms) == len(known):
        width = max(len(h) for h in histograms)
        total = tuple(sum(h[j] for h in histograms if j < len(h)) for j in range(width))
    return SpecStats(
        num_cycles=_sum_known(p.num_cycles for p in known),
        num_draft_tokens=sum(p.num_draft_tokens for p in known),
        num_accepted_tokens=sum(p.num_accepted_tokens for p in known),
        acceptance_histogram=total,
        source=known[0].source if len({p.source for p in known}) == 1 else "reported",
    )


def acceptance_by_position(spec: SpecStats | None) -> tuple[float, ...] | None:
    """Give p_1 .. p_(B-1): the share of all cycles in which position k was accepted.

    Unconditional, counted from the anchor, so ``tau(B) == 1 + p_1 + ... + p_(B-1)``; what a
    smaller block would have accepted is the same sum cut short.
    """
    if spec is None or spec.acceptance_histogram is None or not spec.num_cycles:
        return None
    histogram = spec.acceptance_histogram
    num_cycles = spec.num_cycles
    return tuple(sum(histogram[k:]) / num_cycles for k in range(1, len(histogram)))


def tau_at(positions: Sequence[float], block_size: int) -> float | None:
    """Tokens per cycle at a block size, bonus included; ``None`` beyond the known positions."""
    if not 1 <= block_size <= len(positions) + 1:
        return None
    return 1 + sum(positions[: block_size - 1])


def median_interval(
    values: Sequence[float], *, seed: int, level: float = 0.95
) -> MedianInterval | None:
    """Give the median and its percentile-bootstrap interval; ``None`` for no values.

    Pass per-prompt paired ratios, one per prompt: prompts are what is resampled.
    """
    if not values:
        return None
    median = statistics.median(values)
    if len(values) < 2:
        return MedianInterval(median, None, None, len(values))
    rng = random.Random(seed)
    medians = sorted(
        statistics.median(rng.choices(values, k=len(values))) for _ in range(_NUM_RESAMPLES)
    )
    tail = (1 - level) / 2
    low = medians[math.floor(tail * (_NUM_RESAMPLES - 1))]
    high = medians[math.ceil((1 - tail) * (_NUM_RESAMPLES - 1))]
    return MedianInterval(median, low, high, len(values))


def _sum_known(counts: Iterable[int | None]) -> int | None:
    """The total, or ``None`` when any part is unknown."""
    parts = list(counts)
    return None if None in parts else sum(c for c in parts if c is not None)


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    if numerator is None or not denominator:
        return None
    return numerator / denominator


def _end_to_end_s_per_token(stats: RunStats) -> float | None:
    if stats.end_to_end_s is None or not stats.num_output_tokens:
        return None
    return stats.end_to_end_s / stats.num_output_tokens


def _num_prompt_tokens(trace: Trace) -> int | None:
    if trace.prefilled:
        return trace.prefilled.num_prompt_tokens
    return trace.finished.num_prompt_tokens if trace.finished else None


def _num_first_tokens(trace: Trace) -> int:
    """How many tokens a server's client has at TTFT: chunks in one burst were held up together."""
    chunks = [e for e in trace.events if isinstance(e, Chunk)]
    num_tokens, last_s = 1, chunks[0].t_s if chunks else 0.0
    for chunk in chunks:
        if chunk.t_s - last_s > _BURST_S:
            break
        num_tokens, last_s = max(num_tokens, chunk.num_tokens or 1), chunk.t_s
    return num_tokens


def _num_output_tokens(trace: Trace) -> int | None:
    if trace.output_ids:
        return len(trace.output_ids)
    # A chunk is not a token: only the server's own count is one.
    return trace.finished.num_output_tokens if trace.finished else None


def _token_stamps(trace: Trace) -> tuple[float, ...]:
    """The moments at which output became available, in order. ``Finished`` is not one."""
    prefilled = (trace.prefilled.t_s,) if trace.prefilled else ()
    later = (e.t_s for e in trace.events if isinstance(e, (Cycle, Chunk)))
    return (*prefilled, *later)


def _draft_prefill_s(cycles: Sequence[Cycle]) -> float | None:
    """The first draft pass also reads the whole prompt's taps; the later ones do not."""
    passes = [c.draft_s for c in cycles if c.draft_ids]
    if len(passes) < 2:
        return None
    return max(0.0, passes[0] - statistics.median(passes[1:]))


def _chunk_text(trace: Trace) -> str:
    return "".join(e.text for e in trace.events if isinstance(e, Chunk))
