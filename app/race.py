"""The race: two lanes of one engine advanced in virtual time. Knows engines and clocks; knows no
page and no session.

Two servers are asked one after the other instead, DFlash first: they may share a device, and each
lane's clock starts when its own request is sent, so the order costs neither anything.

Each lane's events are stamped by the engine with that lane's own compute time. The scheduler
always advances the lane whose clock is behind, so both move together on screen, neither pays for
the other, and whatever happens between two events (drawing the page, sending it) is on no clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from dflash.engines import Engine
from dflash.engines.remote import RemoteEngine
from dflash.engines.server_client import ShouldStop, never
from dflash.errors import DFlashError
from dflash.schema import Event, Finished, Request

Lane: TypeAlias = Literal[0, 1]
BASELINE: Lane = 0
DFLASH: Lane = 1

SLICE_S = 0.08  # at most 12.5 updates of the page per second
_WARM_UP_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class LaneEvent:
    """An event of one lane."""

    lane: Lane
    event: Event


@dataclass(frozen=True, slots=True)
class LaneFailed:
    """One lane broke; the other goes on. ``message`` is a sentence for the user."""

    lane: Lane
    message: str


RaceEvent: TypeAlias = LaneEvent | LaneFailed


def lane_requests(request: Request) -> tuple[Request, Request]:
    """The same request for both lanes: block size 1, and as asked."""
    return replace(request, block_size=1), request


def warm_up(engine: Engine, request: Request, *, should_stop: ShouldStop = never) -> None:
    """Run a few blocks of both lanes unmeasured, so that first-use costs are on no clock."""
    num_tokens = _WARM_UP_BLOCKS * request.block_size + 1
    short = replace(request, sampling=replace(request.sampling, max_new_tokens=num_tokens))
    for lane in lane_requests(short):
        # A lane that is broken says so in the race itself, where the other one goes on.
        with suppress(DFlashError):
            for _ in _stream(engine, lane, should_stop):
                pass


def race(
    engines: tuple[Engine, Engine],
    request: Request,
    *,
    should_stop: ShouldStop = never,
) -> Generator[RaceEvent, None, None]:
    """Yield the events of both lanes: in the order of their own clocks, or of two servers one lane
    after the other.

    Safe to abandon: both streams are closed on the way out. ``should_stop`` is asked before
    every step, so a stop takes effect within one cycle.
    """
    if isinstance(engines[DFLASH], RemoteEngine):
        yield from _one_after_the_other(engines, request, should_stop)
        return
    clocks: dict[Lane, float] = {BASELINE: 0.0, DFLASH: 0.0}
    with ExitStack() as stack:
        streams = {}
        for lane, one in zip((BASELINE, DFLASH), lane_requests(request), strict=True):
            streams[lane] = engines[lane].stream(one)
            stack.enter_context(closing(streams[lane]))  # type: ignore[type-var]
        while clocks and not should_stop():
            lane = min(clocks, key=lambda one: clocks[one])
            try:
                event = next(streams[lane], None)
            except DFlashError as error:
                del clocks[lane]
                yield LaneFailed(lane, str(error))
                continue
            if event is None:
                del clocks[lane]
                continue
            clocks[lane] = event.t_s
            if isinstance(event, Finished):
                del clocks[lane]
            yield LaneEvent(lane, event)


def _one_after_the_other(
    engines: tuple[Engine, Engine], request: Request, should_stop: ShouldStop
) -> Generator[RaceEvent, None, None]:
    for lane in (DFLASH, BASELINE):
        if should_stop():
            return
        stream = _stream(engines[lane], lane_requests(request)[lane], should_stop)
        try:
            with closing(stream):  # type: ignore[type-var]
                for event in stream:
                    yield LaneEvent(lane, event)
        except DFlashError as error:
            yield LaneFailed(lane, str(error))


def _stream(engine: Engine, request: Request, should_stop: ShouldStop) -> Iterator[Event]:
    """A server may be silent for minutes, so it is told when to stop; a local step is short."""
    if isinstance(engine, RemoteEngine):
        return engine.stream(request, should_stop=should_stop)
    return engine.stream(request)


def in_slices(
    events: Iterator[RaceEvent],
    *,
    slice_s: float = SLICE_S,
    now: Callable[[], float] = time.monotonic,
) -> Generator[list[RaceEvent], None, None]:
    """Group a race into batches of at most ``slice_s`` of wall time each (one event at least).

    The page is drawn between two batches, when no lane's clock runs: streaming is free for the
    numbers. Closing this closes the race.
    """
    batch: list[RaceEvent] = []
    since = now()
    try:
        for event in events:
            batch.append(event)
            if now() - since >= slice_s:
                yield batch
                batch, since = [], now()
        if batch:
            yield batch
    finally:
        close = getattr(events, "close", None)
        if close:
            close()
