"""The measuring protocol: warm-up, alternating order, every arm on the same prompts.

Knows the engine protocol and the order of things. Knows no model, file or number format; the
traces it yields hold everything that is reported later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from dflash.benchmark.prompts import Prompt
from dflash.errors import DFlashError, PromptError
from dflash.schema import EngineInfo, Event, Message, Request, SamplingParams, Trace

ArmName = Literal["baseline_loop", "baseline_generate", "dflash"]


class Streams(Protocol):
    """As much of an engine as measuring needs."""

    info: EngineInfo

    def stream(self, request: Request) -> Iterator[Event]:
        """Yield the events of one run; see ``dflash.engines.Engine``."""
        ...


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of answering. ``block_size == 1`` for both baselines."""

    name: ArmName
    block_size: int
    engine: Streams


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured. ``sampling.seed`` is the first repeat's; repeat r adds r."""

    arms: tuple[Arm, ...]
    prompts: tuple[Prompt, ...]
    sampling: SamplingParams
    repeats: int = 2

    @property
    def num_runs(self) -> int:
        """How many measured runs there will be at most, warm-up not counted."""
        return len(self.arms) * len(self.prompts) * self.repeats


@dataclass(frozen=True, slots=True)
class Run:
    """One arm's answer to one prompt. ``position`` tells when it ran: 0 is first."""

    prompt_index: int
    category: str
    repeat: int
    arm: ArmName
    block_size: int
    position: int
    traces: tuple[Trace, ...]  # one per turn


@dataclass(frozen=True, slots=True)
class Skipped:
    """A prompt that an arm could not answer; it is left out of every arm."""

    prompt_index: int
    category: str
    reason: str


def warm_up(plan: Plan) -> None:
    """Let every arm answer the longest prompt once, unmeasured, at its real shapes."""
    longest = max(plan.prompts, key=lambda p: len(p.turns[0]))
    request = Request((Message("user", longest.turns[0]),), plan.sampling)
    for arm in plan.arms:
        for _ in arm.engine.stream(replace(request, block_size=arm.block_size)):
            pass


def measure(plan: Plan) -> Iterator[Run | Skipped]:
    """Run every arm on every prompt, ``repeats`` times; the order is turned round each time.

    ABBA: arm order is reversed from one prompt and one repeat to the next, so that drift (heat,
    other load) falls on all arms alike. Raises ``PromptError`` when no prompt could be answered.
    """
    replies: dict[int, list[str]] = {}
    failed: set[int] = set()
    for repeat in range(plan.repeats):
        for index, prompt in enumerate(plan.prompts):
            if index in failed:
                continue
            try:
                yield from _one_prompt(plan, index, repeat, replies.setdefault(index, []))
            except DFlashError as error:
                failed.add(index)
                yield Skipped(index, prompt.category, str(error))
                if len(failed) == len(plan.prompts):
                    raise PromptError("no prompt could be answered.", str(error)) from error


def _one_prompt(plan: Plan, index: int, repeat: int, replies: list[str]) -> Iterator[Run]:
    prompt = plan.prompts[index]
    arms = plan.arms if (index + repeat) % 2 == 0 else plan.arms[::-1]
    sampling = replace(plan.sampling, seed=plan.sampling.seed + repeat)
    # An arm that fails half way must not leave the other arms' runs behind.
    runs = []
    for position, arm in enumerate(arms):
        traces = _answer(arm, prompt, sampling, replies)
        runs.append(Run(index, prompt.category, repeat, arm.name, arm.block_size, position, traces))
    yield from runs


def _answer(
    arm: Arm, prompt: Prompt, sampling: SamplingParams, replies: list[str]
) -> tuple[Trace, ...]:
    """Answer turn by turn. The first arm to answer a turn writes the history all arms read."""
    traces: list[Trace] = []
    messages: tuple[Message, ...] = ()
    for number, turn in enumerate(prompt.turns):
        messages += (Message("user", turn),)
        request = Request(messages, sampling, arm.block_size)
        trace = Trace(request, arm.engine.info, tuple(arm.engine.stream(request)))
        traces.append(trace)
        if number == len(replies):
            replies.append(reply_text(trace))
        messages += (Message("assistant", replies[number]),)
    return tuple(traces)


def reply_text(trace: Trace) -> str:
    """The text of an answer without the token that stopped it: what a next turn builds on."""
    pieces = [trace.prefilled.piece] if trace.prefilled else []
    pieces += [piece for cycle in trace.cycles for piece in cycle.pieces]
    if trace.finished and trace.finished.finish_reason == "stop":
        pieces = pieces[:-1]
    return "".join(pieces)
