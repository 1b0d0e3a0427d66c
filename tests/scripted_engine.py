"""An engine whose times and tokens are written down beforehand: the protocol's own test bench."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dflash.errors import EngineError
from dflash.schema import Cycle, EngineInfo, Event, Finished, Message, Prefilled, Request

INFO = EngineInfo("scripted", "1", "target", "draft", "cpu", "float32", "cycles")


@dataclass
class ScriptedEngine:
    """Emits ``answer`` token by token; every cycle accepts ``accepted`` drafts or what is left."""

    answer: tuple[int, ...] = tuple(range(10, 26))
    accepted: int = 3
    prefill_s: float = 0.5
    step_s: float = 0.1
    draft_s: float = 0.02
    verify_s: float = 0.13
    draft_prefill_s: float = 0.05
    wrong_from: int | None = None  # DFlash answers other tokens from this index on
    too_long: int = 10_000  # characters a prompt may have
    info: EngineInfo = INFO
    trained_block_size: int | None = 8
    log: list[tuple[str, int, int]] = field(default_factory=list)  # prompt, block size, seed

    def stream(self, request: Request) -> Iterator[Event]:
        prompt = request.messages[-1].content
        if len(prompt) > self.too_long:
            raise EngineError(f"the prompt has {len(prompt)} characters.", "Shorten it.")
        self.log.append((prompt, request.block_size, request.sampling.seed))
        tokens = list(self.answer)
        if request.block_size > 1 and self.wrong_from is not None:
            tokens[self.wrong_from :] = [t + 100 for t in tokens[self.wrong_from :]]
        t_s, done = self.prefill_s, 1
        yield Prefilled(t_s, len(prompt), tokens[0], f"<{tokens[0]}>")
        while done < len(tokens):
            cycle = self._cycle(request.block_size, tokens[done:], t_s, is_first=done == 1)
            t_s, done = cycle.t_s, done + len(cycle.emitted_ids)
            yield cycle
        yield Finished(t_s, "stop", done, None)

    def _cycle(self, block_size: int, left: list[int], t_s: float, *, is_first: bool) -> Cycle:
        if block_size == 1:
            end_s = t_s + self.step_s
            return Cycle(end_s, (), 0, left[0], (left[0],), 0.0, self.step_s, (f"<{left[0]}>",))
        width = min(block_size, len(left))
        num_accepted = min(self.accepted, width - 1)
        draft_s = self.draft_s + self.draft_prefill_s * is_first
        emitted = tuple(left[: num_accepted + 1])
        return Cycle(
            t_s + draft_s + self.verify_s,
            tuple(left[: width - 1]),
            num_accepted,
            emitted[-1],
            emitted,
            draft_s,
            self.verify_s,
            tuple(f"<{i}>" for i in emitted),
        )

    def encode(self, messages: tuple[Message, ...], *, enable_thinking: bool = False) -> list[int]:
        return [ord(c) for m in messages for c in m.content] + [0, 0, 0]

    def decode(self, ids: list[int]) -> str:
        return "".join(f"<{i}>" for i in ids)

    def close(self) -> None:
        self.log.clear()
