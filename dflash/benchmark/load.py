"""Many requests at once against two servers: where DFlash stops paying as a server fills up.

Knows waves of requests and their clocks; knows no HTTP, no file and no number format. A wave is a
closed loop: a fixed number of clients, each asking its next prompt when its last one is answered.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Literal

from dflash.benchmark.prompts import Prompt
from dflash.benchmark.runner import Streams
from dflash.engines.counters import Counters, spec_between
from dflash.errors import DFlashError
from dflash.metrics import RunStats, run_stats
from dflash.schema import Chunk, Message, Request, SamplingParams, SpecStats, Trace

LoadArm = Literal["baseline", "dflash"]
ARMS: tuple[LoadArm, LoadArm] = ("baseline", "dflash")

# A server draws the blocks it was started for; above 1 only says which server is meant.
_BLOCK_SIZE: dict[LoadArm, int] = {"baseline": 1, "dflash": 2}
_WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What is asked. Every wave sends the same prompts in the same order on both arms."""

    engine: Streams
    prompts: tuple[Prompt, ...]
    sampling: SamplingParams
    levels: tuple[int, ...]  # clients at once
    repeats: int = 2
    counters: Callable[[], Counters | None] = lambda: None

    def num_requests(self, level: int) -> int:
        """Requests of one wave: every prompt once, and each client at least twice."""
        return max(len(self.prompts), 2 * level)

    @property
    def num_waves(self) -> int:
        """How many waves there are."""
        return len(self.levels) * len(ARMS) * self.repeats


@dataclass(frozen=True, slots=True)
class Answered:
    """One request of a wave. ``stats`` is ``None`` where it failed, and ``failure`` says why."""

    index: int  # its place in the wave; the same prompt on both arms
    stats: RunStats | None
    text: str
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Wave:
    """One arm under one load. ``wall_s`` is from the first request sent to the last answered."""

    level: int
    arm: LoadArm
    repeat: int
    wall_s: float
    answers: tuple[Answered, ...]
    counted: SpecStats | None  # the server's counters over the wave


def measure_load(plan: LoadPlan) -> Iterator[Wave]:
    """Yield every wave; which arm goes first alternates, so that drift falls on both alike.

    Before each wave its clients ask one short answer each, unmeasured.
    """
    for repeat in range(plan.repeats):
        for place, level in enumerate(plan.levels):
            arms = ARMS if (repeat + place) % 2 == 0 else ARMS[::-1]
            for arm in arms:
                yield _wave(plan, level, arm, repeat)


def _wave(plan: LoadPlan, level: int, arm: LoadArm, repeat: int) -> Wave:
    sampling = replace(plan.sampling, seed=plan.sampling.seed + repeat)
    num_warm_up = min(_WARM_UP_TOKENS, sampling.max_new_tokens)
    short = replace(sampling, max_new_tokens=num_warm_up)
    _ask_all(plan.engine, _requests(plan, arm, short, level), level)
    before = plan.counters() if arm == "dflash" else None
    requests = _requests(plan, arm, sampling, plan.num_requests(level))
    started_s = time.perf_counter()
    answers = _ask_all(plan.engine, requests, level)
    wall_s = time.perf_counter() - started_s
    after = plan.counters() if before else None
    counted = spec_between(before, after) if before and after else None
    return Wave(level, arm, repeat, wall_s, answers, counted)


def _requests(plan: LoadPlan, arm: LoadArm, sampling: SamplingParams, number: int) -> list[Request]:
    prompts = itertools.islice(itertools.cycle(plan.prompts), number)
    return [
        Request((Message("user", prompt.turns[0]),), sampling, _BLOCK_SIZE[arm])
        for prompt in prompts
    ]


def _ask_all(engine: Streams, requests: Sequence[Request], level: int) -> tuple[Answered, ...]:
    """Let ``level`` clients share the requests. A stop (Ctrl-C) ends every stream."""
    waiting: queue.SimpleQueue[tuple[int, Request]] = queue.SimpleQueue()
    for item in enumerate(requests):
        waiting.put(item)
    answers: list[Answered] = []
    stop = threading.Event()

    def client() -> None:
        while not stop.is_set():
            try:
                index, request = waiting.get_nowait()
            except queue.Empty:
                return
            answers.append(_ask(engine, index, request, stop))

    clients = [threading.Thread(target=client, daemon=True) for _ in range(level)]
    try:
        for one in clients:
            one.start()
        for one in clients:
            one.join()
    finally:
        stop.set()
    return tuple(sorted(answers, key=lambda answer: answer.index))


def _ask(engine: Streams, index: int, request: Request, stop: threading.Event) -> Answered:
    events = []
    try:
        with closing(engine.stream(request)) as stream:  # type: ignore[type-var]
            for event in stream:
                events.append(event)
                if stop.is_set():
                    break
    except DFlashError as error:
        return Answered(index, None, "", str(error))
    trace = Trace(request, engine.info, tuple(events))
    text = "".join(e.text for e in events if isinstance(e, Chunk))
    return Answered(index, run_stats(trace), text)
