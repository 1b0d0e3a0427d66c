"""How many tokens a trace had written when. Knows events; a server's piece of text is no token, so
it counts what the server itself counted by then."""

from __future__ import annotations

from dflash.schema import Chunk, Cycle, Event, Finished, Prefilled, Trace


def progress(trace: Trace) -> list[tuple[float, int]]:
    """(seconds, tokens so far) at every event that tells. Empty where a server told nothing."""
    points: list[tuple[float, int]] = []
    total = 0
    for event in trace.events:
        told = _total_after(event, total)
        if told is not None:
            total = told
            points.append((event.t_s, total))
    return points


def tokens_at(trace: Trace, t_s: float) -> int:
    """Tokens written by a moment of the lane's own clock."""
    return max((total for at_s, total in progress(trace) if at_s <= t_s), default=0)


def _total_after(event: Event, total: int) -> int | None:
    """Tokens so far once this has happened; ``None`` where it does not tell."""
    if isinstance(event, Prefilled):
        return 1
    if isinstance(event, Cycle):
        return total + len(event.emitted_ids)
    if isinstance(event, Chunk):
        return event.num_tokens
    assert isinstance(event, Finished)
    told = event.num_output_tokens
    return told if told is not None and told > total else None
