"""A GPU that is lent for one call at a time (ZeroGPU Spaces). Elsewhere nothing here happens.

Knows the ``spaces`` package's rules: import it before torch looks for a GPU; place models on the
GPU in the main thread, before the page starts; work in a forked process, where arguments and every
yielded value are pickled, nothing that changes comes back, and a stop arrives only as a closed
generator. Source: https://huggingface.co/docs/hub/spaces-zerogpu
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import gradio as gr

from app.race import RaceEvent, in_slices, race, warm_up
from app.runs import Run
from app.session import EnginePool, GpuRefused, PairChoice
from dflash.engines import Engine
from dflash.errors import DFlashError
from dflash.schema import Request

Task: TypeAlias = Callable[..., Iterator[Any]]  # (engine, ...) -> plain values; importable by name
_START_S = 12  # the process, the weights' way to the GPU, warming up
_S_PER_TOKEN = 0.05  # both lanes of a small pair; asking for less gets a better place in the queue
_MAX_S = 110
_log = logging.getLogger(__name__)


@runtime_checkable
class _KnowsItsDevice(Protocol):
    def device_now(self) -> str: ...


@dataclass(frozen=True, slots=True)
class GpuName:
    """What the lent device calls itself; only the call itself can see it."""

    name: str


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A sentence for the user: an exception itself would come back as its class name only."""

    message: str
    hint: str


def import_spaces(environ: Mapping[str, str]) -> Any | None:
    """The ``spaces`` package on a ZeroGPU Space, else ``None``. Call before torch is imported."""
    if environ.get("SPACES_ZERO_GPU", "").lower() not in ("1", "t", "true"):
        return None
    return importlib.import_module("spaces")


def lend(spaces: Any, pool: EnginePool, pair_ids: Iterable[str]) -> LentGpu:
    """Open every served pair and mark what works on the GPU. Call in the main thread."""
    lent = LentGpu(spaces, pool)
    lent.preload(pair_ids)
    return lent


class LentGpu:
    """Runs work on the lent GPU, one call per press, both lanes in the same call."""

    def __init__(self, spaces: Any, pool: EnginePool) -> None:
        self._pool = pool

        def work(task: Task, choice: PairChoice, args: tuple[Any, ...]) -> Iterator[Any]:
            engine = pool.peek(choice)  # opened before the fork, so it is here as well
            if engine is None:
                raise gr.Error(f"the pair {choice.label} was not opened when the page started.")
            yield GpuName(_gpu_name(engine))
            try:
                yield from task(engine, *args)
            except DFlashError as error:
                yield TaskFailed(error.message, error.hint)

        self._work = spaces.GPU(duration=duration_s)(work)

    def preload(self, pair_ids: Iterable[str]) -> None:
        """Open the pairs that are served. Call in the main thread, before the page starts."""
        for pair_id in pair_ids:
            try:
                self._pool.preload(PairChoice(pair_id))
            except DFlashError as error:
                _log.error("the pair %s cannot be served: %s", pair_id, error)

    def run(self, task: Task, choice: PairChoice, *args: Any) -> Generator[Any, None, None]:
        """Yield what the task yields there. Raises ``GpuRefused`` when no GPU is to be had."""
        try:
            with closing(self._work(task, choice, args)) as values:
                for value in values:
                    if isinstance(value, GpuName):
                        self._name_device(choice, value.name)
                    elif isinstance(value, TaskFailed):
                        raise DFlashError(value.message, value.hint)
                    else:
                        yield value
        except gr.Error as error:
            said = str(error.message).strip().rstrip(".")
            raise GpuRefused(
                f"no GPU for this run: {said}.", "A recorded run is shown instead."
            ) from error

    def _name_device(self, choice: PairChoice, name: str) -> None:
        engine = self._pool.peek(choice)
        if engine is not None:
            engine.info = replace(engine.info, device=f"{name}, lent by ZeroGPU")


def duration_s(task: Task, choice: PairChoice, args: tuple[Any, ...]) -> int:
    """Seconds of GPU to ask for; takes the same arguments as the work itself."""
    num_tokens = sum(_num_new_tokens(arg) for arg in args)
    return min(_MAX_S, round(_START_S + _S_PER_TOKEN * num_tokens))


def race_slices(engine: Engine, request: Request) -> Generator[list[RaceEvent], None, None]:
    """Both lanes, warmed up first: every call has a process of its own, cold each time."""
    warm_up(engine, request)
    yield from in_slices(race((engine, engine), request))


def _num_new_tokens(value: Any) -> int:
    if isinstance(value, Run):
        return value.dflash.request.sampling.max_new_tokens
    return value.sampling.max_new_tokens if isinstance(value, Request) else 0


def _gpu_name(engine: Engine) -> str:
    return engine.device_now() if isinstance(engine, _KnowsItsDevice) else engine.info.device
