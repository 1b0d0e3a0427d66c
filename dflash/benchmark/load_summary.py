"""Waves -> throughput, percentiles and the crossover. Knows no engine, file or clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dflash.benchmark.load import Answered, LoadArm, Wave
from dflash.metrics import MedianInterval, median_interval, pooled_spec
from dflash.schema import SpecStats


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds, nearest rank, over requests."""

    p50: float
    p90: float
    p99: float
    n: int


@dataclass(frozen=True, slots=True)
class ArmLoad:
    """One arm at one level, its repeats added up. ``None``: the server does not say."""

    num_requests: int
    num_failed: int
    first_failure: str | None
    output_tokens_per_s: float | None
    requests_per_s: float
    ttft_s: Percentiles | None
    tpot_s: Percentiles | None
    end_to_end_s: Percentiles | None
    spec: SpecStats | None


@dataclass(frozen=True, slots=True)
class LevelLoad:
    """Both arms at one level. ``throughput_ratio``: DFlash over baseline, above 1 it pays."""

    level: int
    baseline: ArmLoad
    dflash: ArmLoad
    throughput_ratio: float | None
    tpot_speedup: MedianInterval | None  # of paired requests
    num_equal: int
    num_checked: int


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where DFlash stops paying: the highest level that wins below the first that loses."""

    last_winning: int | None
    first_losing: int | None

    @property
    def sentence(self) -> str:
        """The finding in words."""
        if self.last_winning is None and self.first_losing is None:
            return "No level could be compared."
        if self.first_losing is None:
            return f"DFlash pays at every level tried, up to {self.last_winning} clients at once."
        if self.last_winning is None:
            return f"DFlash does not pay, already at {self.first_losing} at once."
        return f"DFlash pays up to {self.last_winning} clients at once, not at {self.first_losing}."


def summarise_load(waves: Sequence[Wave], *, seed: int) -> tuple[LevelLoad, ...]:
    """Add up the waves of every level that has both arms, in ascending order."""
    levels = sorted({w.level for w in waves})
    return tuple(found for level in levels if (found := _level(level, waves, seed)) is not None)


def crossover(levels: Sequence[LevelLoad]) -> Crossover:
    """Find the first level at which DFlash gives fewer tokens per second than the baseline."""
    last_winning = None
    for one in levels:
        if one.throughput_ratio is None:
            continue
        if one.throughput_ratio < 1:
            return Crossover(last_winning, one.level)
        last_winning = one.level
    return Crossover(last_winning, None)


def percentiles(values: Iterable[float | None]) -> Percentiles | None:
    """Nearest-rank percentiles of what is known."""
    known = sorted(v for v in values if v is not None)
    if not known:
        return None
    p50, p90, p99 = (known[math.ceil(share * len(known)) - 1] for share in (0.5, 0.9, 0.99))
    return Percentiles(p50, p90, p99, len(known))


def _level(level: int, waves: Sequence[Wave], seed: int) -> LevelLoad | None:
    arms: dict[LoadArm, list[Wave]] = {
        arm: [w for w in waves if w.level == level and w.arm == arm]
        for arm in ("baseline", "dflash")
    }
    if not arms["baseline"] or not arms["dflash"]:
        return None
    baseline, dflash = _arm(arms["baseline"]), _arm(arms["dflash"])
    pairs = _pairs(arms["baseline"], arms["dflash"])
    both = [(a, b) for a, b in pairs if a.stats and b.stats]
    ratios = [
        a.stats.tpot_s / b.stats.tpot_s
        for a, b in both
        if a.stats and b.stats and a.stats.tpot_s and b.stats.tpot_s
    ]
    slow, fast = baseline.output_tokens_per_s, dflash.output_tokens_per_s
    return LevelLoad(
        level=level,
        baseline=baseline,
        dflash=dflash,
        throughput_ratio=fast / slow if fast is not None and slow else None,
        tpot_speedup=median_interval(ratios, seed=seed),
        num_equal=sum(a.text == b.text for a, b in both),
        num_checked=len(both),
    )


def _pairs(left: list[Wave], right: list[Wave]) -> list[tuple[Answered, Answered]]:
    """The same request of the same repeat on both arms."""
    other = {(w.repeat, a.index): a for w in right for a in w.answers}
    keyed = [((w.repeat, a.index), a) for w in left for a in w.answers]
    return [(a, other[key]) for key, a in keyed if key in other]


def _arm(waves: list[Wave]) -> ArmLoad:
    answers = [a for w in waves for a in w.answers]
    failures = [a.failure for a in answers if a.failure is not None]
    stats = [a.stats for a in answers if a.stats is not None]
    tokens = [s.num_output_tokens for s in stats]
    wall_s = sum(w.wall_s for w in waves)
    known = [t for t in tokens if t is not None]
    return ArmLoad(
        num_requests=len(answers),
        num_failed=len(failures),
        first_failure=failures[0] if failures else None,
        output_tokens_per_s=sum(known) / wall_s if known and len(known) == len(tokens) else None,
        requests_per_s=len(stats) / wall_s,
        ttft_s=percentiles(s.ttft_s for s in stats),
        tpot_s=percentiles(s.tpot_s for s in stats),
        end_to_end_s=percentiles(s.end_to_end_s for s in stats),
        spec=_spec(waves, [s.spec for s in stats]),
    )


def _spec(waves: list[Wave], reported: list[SpecStats | None]) -> SpecStats | None:
    """What the requests reported, else the counters over all waves, else unknown."""
    if any(s is not None for s in reported):
        return pooled_spec(reported)  # an answer of one token has no cycle to report
    counted = [w.counted for w in waves]
    return pooled_spec(counted) if counted and None not in counted else None
