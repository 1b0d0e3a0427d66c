"""A lane's own clock: counts its compute and nothing that happens while it is suspended.

Knows devices only to synchronise them. One clock per run; read at phase borders.
"""

from __future__ import annotations

import time

import torch


def synchronize(device: torch.device) -> None:
    """Wait for the device's queued work. On a CPU there is none."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    elif device.type == "xpu":
        torch.xpu.synchronize(device)


class LaneClock:
    """Accumulates seconds between ``resume`` and ``lap``; a generator resumes after each yield."""

    def __init__(self, device: torch.device) -> None:
        self.elapsed_s = 0.0
        self._device = device
        self.resume()

    def resume(self) -> None:
        """Start counting again, forgetting the time since the last lap."""
        self._mark = time.perf_counter()

    def lap(self) -> float:
        """Seconds of own compute since the last lap or resume, device queues drained."""
        synchronize(self._device)
        now = time.perf_counter()
        lap_s, self._mark = now - self._mark, now
        self.elapsed_s += lap_s
        return lap_s
