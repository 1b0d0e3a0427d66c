"""Prometheus text -> what a server has counted since it started. Knows one naming scheme.

vLLM and llama.cpp use the same names behind different prefixes
(vllm/v1/spec_decode/metrics.py; llama-server ``--metrics``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dflash.schema import SpecStats

_SAMPLE = re.compile(
    r"^(?P<prefix>[a-z]+):(?P<name>[a-z_]+?)(?:_total)?(?:\{(?P<labels>.*)\})?"
    r"[ \t]+(?P<value>\d{1,18}(?:\.\d*)?(?:[eE]\+?\d{1,2})?)(?:[ \t]+\d+)?\s*$",
    re.MULTILINE,
)
_POSITION = re.compile(r'position="(\d{1,4})"')
_BUSY = ("num_requests_running", "num_requests_waiting", "requests_processing", "requests_deferred")


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals over all engines of a server. ``None`` where it does not count that.

    ``num_accepted_by_position[i]``: cycles in which draft i + 1 was accepted.
    """

    num_cycles: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_accepted_by_position: tuple[int, ...] | None
    num_busy: int  # requests running or waiting at that moment
    num_finished: int | None  # requests ended since the start


def read_counters(text: str, *, prefix: str) -> Counters | None:
    """Sum the speculative counters over engines; ``None`` when the server has none."""
    totals: dict[str, int] = {}
    positions: dict[int, int] = {}
    for match in _SAMPLE.finditer(text):
        if match["prefix"] != prefix:
            continue
        value = int(float(match["value"]))
        place = _POSITION.search(match["labels"] or "")
        if match["name"] == "spec_decode_num_accepted_tokens_per_pos":
            if place:
                positions[int(place[1])] = positions.get(int(place[1]), 0) + value
        else:
            totals[match["name"]] = totals.get(match["name"], 0) + value
    if "spec_decode_num_drafts" not in totals:
        return None
    return Counters(
        num_cycles=totals["spec_decode_num_drafts"],
        num_draft_tokens=totals.get("spec_decode_num_draft_tokens", 0),
        num_accepted_tokens=totals.get("spec_decode_num_accepted_tokens", 0),
        num_accepted_by_position=_in_order(positions),
        num_busy=sum(totals.get(name, 0) for name in _BUSY),
        num_finished=totals.get("request_success"),
    )


def spec_between(before: Counters, after: Counters) -> SpecStats | None:
    """The growth between two readings; ``None`` when nothing was drafted, or after a restart."""
    cycles = after.num_cycles - before.num_cycles
    drafted = after.num_draft_tokens - before.num_draft_tokens
    accepted = after.num_accepted_tokens - before.num_accepted_tokens
    if cycles <= 0 or not 0 <= accepted <= drafted:
        return None
    return SpecStats(cycles, drafted, accepted, _histogram(before, after, cycles), "counters")


def is_only_request(before: Counters, after: Counters) -> bool:
    """Whether the server can have served nobody else in between, as far as it tells."""
    if before.num_busy or after.num_busy:
        return False
    if before.num_finished is None or after.num_finished is None:
        return True
    return after.num_finished - before.num_finished == 1


def _in_order(positions: dict[int, int]) -> tuple[int, ...] | None:
    if not positions or sorted(positions) != list(range(len(positions))):
        return None
    return tuple(positions[i] for i in range(len(positions)))


def _histogram(before: Counters, after: Counters, num_cycles: int) -> tuple[int, ...] | None:
    """Cycles that accepted exactly j drafts, from those that accepted at least j."""
    old, new = before.num_accepted_by_position, after.num_accepted_by_position
    if old is None or new is None or len(old) != len(new):
        return None
    at_least = [num_cycles, *(b - a for a, b in zip(old, new, strict=True)), 0]
    exactly = [a - b for a, b in zip(at_least, at_least[1:], strict=False)]
    return tuple(exactly) if min(exactly) >= 0 else None
