"""What a loaded page was seen to do, and its figures. Knows no page and no browser."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Findings:
    """Shared by all threads, appended to only. ``temp`` is (files, bytes) of the server's own."""

    runs: int = 0
    faults: list[str] = field(default_factory=list)
    run_s: list[float] = field(default_factory=list)
    latencies_s: dict[str, list[float]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    memory_mb: list[float] = field(default_factory=list)
    temp: list[tuple[int, int]] = field(default_factory=list)
    longest_queue: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fault(self, text: str) -> None:
        with self.lock:
            self.faults.append(text)

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def ran(self, seconds: float) -> None:
        with self.lock:
            self.runs += 1
            self.run_s.append(seconds)

    def latency(self, what: str, seconds: float) -> None:
        with self.lock:
            self.latencies_s.setdefault(what, []).append(seconds)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Note how long something took, when it succeeds."""
        start = time.monotonic()
        yield
        self.latency(what, time.monotonic() - start)

    def report(self) -> dict[str, Any]:
        """The figures; memory and files early (the second fifth) and late (the last)."""
        return {
            "num_runs": self.runs,
            "median_run_s": round(statistics.median(self.run_s), 2) if self.run_s else None,
            "longest_queue": self.longest_queue,
            "counts": dict(sorted(self.counts.items())),
            "latency_ms": {
                what: {"n": len(s), "median": _ms(statistics.median(s)), "max": _ms(max(s))}
                for what, s in sorted(self.latencies_s.items())
            },
            "memory_mb": _early_and_late(self.memory_mb),
            "temp_files": _early_and_late([float(files) for files, _ in self.temp]),
            "temp_kb": _early_and_late([size / 1000 for _, size in self.temp]),
            "num_faults": len(self.faults),
            "faults": sorted(set(self.faults))[:20],
        }


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


def _early_and_late(values: list[float]) -> dict[str, int] | None:
    if not values:
        return None
    fifth = max(1, len(values) // 5)
    early = statistics.median(values[fifth : 2 * fifth] or values)
    return {"early": round(early), "late": round(statistics.median(values[-fifth:]))}
