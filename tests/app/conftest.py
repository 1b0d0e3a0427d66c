"""A counting engine for the page's tests: it implements the protocol, counts its own steps, and
stamps events with a clock of its own. It is not in the product."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from dflash.errors import EngineError
from dflash.schema import (
    Cycle,
    EngineInfo,
    Event,
    Finished,
    Message,
    Prefilled,
    Request,
    SamplingParams,
)


@dataclass
class CountingEngine:
    """Counts from the prompt's length on. Accepts ``pattern[cycle % len]`` drafts per cycle."""

    pattern: tuple[int, ...] = (3, 0, 7, 2)
    step_s: float = 0.010
    draft_s: float = 0.004
    busy_s: float = 0.0  # real seconds slept per step
    trained_block_size: int | None = 16
    fails_after: dict[int, int] = field(default_factory=dict)  # block size -> number of steps
    differs_at: int | None = None
    steps: int = 0
    open_streams: int = 0
    most_open_streams: int = 0
    info: EngineInfo = EngineInfo("torch", "test", "target", "draft", "cpu", "float32", "cycles")

    def stream(self, request: Request) -> Iterator[Event]:
        self.open_streams += 1
        self.most_open_streams = max(self.most_open_streams, self.open_streams)
        try:
            yield from self._events(request)
        finally:
            self.open_streams -= 1

    def _events(self, request: Request) -> Iterator[Event]:
        limit, width = request.sampling.max_new_tokens, request.block_size
        prompt = len(request.messages[-1].content)
        clock, count, number = 0.050, 1, 0
        yield Prefilled(clock, prompt, self._id(1, width), self._piece(1))
        while count < limit:
            self.steps += 1
            number += 1
            if self.fails_after.get(width) == number:
                raise EngineError("the lane broke.", "Run it again.")
            if self.busy_s:
                time.sleep(self.busy_s)
            drafted = min(width, limit - count) - 1
            accepted = min(self.pattern[number % len(self.pattern)], drafted)
            ids = tuple(self._id(count + k, width) for k in range(1, accepted + 2))
            drafts = ids[:accepted] + tuple(9000 + k for k in range(drafted - accepted))
            draft_s = self.draft_s if drafted else 0.0
            clock += self.step_s + draft_s
            pieces = tuple(self._piece(count + k) for k in range(1, accepted + 2))
            count += accepted + 1
            yield Cycle(
                clock, drafts, accepted, ids[-1], ids, draft_s, self.step_s, pieces, target_ids=ids
            )
        yield Finished(clock, "length", count, None)

    def _id(self, index: int, width: int) -> int:
        return index + (5000 if width > 1 and index == self.differs_at else 0)

    def _piece(self, index: int) -> str:
        return f" t{index}" + ("\n" if index % 12 == 0 else "")

    def encode(self, messages: tuple[Message, ...], *, enable_thinking: bool = False) -> list[int]:
        return list(range(len(messages[-1].content)))

    def decode(self, ids: list[int]) -> str:
        return "".join(f" t{i}" for i in ids)

    def close(self) -> None:
        self.steps = -1


@pytest.fixture(scope="session")
def counting_engine():
    return CountingEngine


@pytest.fixture(scope="session")
def ask():
    def build(text: str = "count for me", *, block_size: int = 8, num: int = 64, **sampling):
        return Request(
            (Message("user", text),), SamplingParams(max_new_tokens=num, **sampling), block_size
        )

    return build
