"""What outlives one event: opened engines (shared) and each visitor's own run (never shared).

Knows engines, locks and session ids. Knows no page. One object of each class is made when the
page is built and handed to the handlers; nothing here is a module global.
"""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from app.runs import Run
from app.whatif import CycleCost
from dflash.engines import Engine
from dflash.errors import DFlashError

Report: TypeAlias = Callable[[str, float | None], None]
_MAX_SESSIONS = 500
_MAX_ENGINES = 2
_MAX_RUNS = 20  # per visitor, for comparing
_MAX_LABEL = 100  # a server may call its model anything


class Stopped(DFlashError):
    """The user pressed Stop while something was still being prepared."""


class GpuRefused(DFlashError):
    """No device was lent for this run; something recorded can be shown instead."""


@dataclass(frozen=True, slots=True)
class ServerChoice:
    """A served target: what opening it needs. Keys are compared and never shown; '' is none."""

    kind: str  # a backend of open_engine
    url: str
    baseline_url: str = ""
    model: str = ""
    api_key: str = field(default="", repr=False)
    baseline_api_key: str = field(default="", repr=False)

    @property
    def label(self) -> str:
        """A short name for a person."""
        host = self.url.partition("://")[2].partition("/")[0]
        return f"{(self.model or host)[:_MAX_LABEL]} ({self.kind})"


@dataclass(frozen=True, slots=True)
class PairChoice:
    """What the user picked: an id of the catalogue, a target and a draft of his own, a server."""

    pair_id: str
    target: str = ""
    draft: str = ""
    server: ServerChoice | None = None

    @property
    def label(self) -> str:
        """A short name for a person."""
        if self.server:
            return self.server.label
        return self.pair_id if not self.target else self.target.rstrip("/").split("/")[-1]


@dataclass(frozen=True, slots=True)
class Step:
    """Progress of opening an engine. ``done`` is a share of one, ``None`` when unknown."""

    text: str
    done: float | None


@dataclass(slots=True)
class Session:
    """One browser window."""

    stop: threading.Event = field(default_factory=threading.Event)
    idle: threading.Event = field(default_factory=threading.Event)
    waiting: bool = False  # pressed, but the device is not free yet
    cleared: bool = False  # Run was pressed and no race has taken the last one's place yet
    request_id: str = ""  # of the last press, for the log and the run
    run: Run | None = None  # the last one, also while it is running
    stage_text: str = ""
    runs: OrderedDict[str, Run] = field(default_factory=OrderedDict)
    # What-if: the run it predicts from, the pair that can check it, and what was measured of it.
    basis: Run | None = None
    choice: PairChoice | None = None
    choices: dict[str, PairChoice] = field(default_factory=dict)  # by run id
    measured: dict[int, float] = field(default_factory=dict)  # block size -> speedup
    costs: dict[int, CycleCost] = field(default_factory=dict)  # block size -> cycle

    def __post_init__(self) -> None:
        self.idle.set()

    def keep(self, run: Run) -> None:
        """Remember a run for comparing; the oldest goes first."""
        self.run = run
        self.runs[run.id] = run
        while len(self.runs) > _MAX_RUNS:
            oldest, _ = self.runs.popitem(last=False)
            self.choices.pop(oldest, None)

    def rebase(self, run: Run, choice: PairChoice | None) -> None:
        """Predict from this run from now on; ``choice`` is ``None`` when no model made it here."""
        speedup = run.comparison.speedup
        self.basis, self.choice = run, choice
        if choice:
            self.choices[run.id] = choice
        self.measured = {run.block_size: speedup} if speedup else {}
        self.costs = {}


class Sessions:
    """Every open window's session, by the id that Gradio gives it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: OrderedDict[str, Session] = OrderedDict()

    def of(self, session_id: str) -> Session:
        """The session of a window, made on first use."""
        with self._lock:
            session = self._by_id.setdefault(session_id, Session())
            self._by_id.move_to_end(session_id)
            while len(self._by_id) > _MAX_SESSIONS:
                self._by_id.popitem(last=False)
            return session

    def anyone_waits(self) -> bool:
        """Whether some window has pressed Run and has no device yet."""
        with self._lock:
            return any(session.waiting for session in self._by_id.values())

    def drop(self, session_id: str) -> None:
        """Forget a closed window and stop what it was running."""
        with self._lock:
            session = self._by_id.pop(session_id, None)
        if session:
            session.stop.set()

    def __len__(self) -> int:
        return len(self._by_id)


class EnginePool:
    """Engines by pair, opened once. ``device`` is held by whoever computes."""

    def __init__(self, open_pair: Callable[[PairChoice, Report], Engine]) -> None:
        self.device = threading.Lock()
        self._open_pair = open_pair
        self._most = _MAX_ENGINES
        self._engines: OrderedDict[PairChoice, Engine] = OrderedDict()
        self._warm: set[tuple[PairChoice, int]] = set()

    def __len__(self) -> int:
        return len(self._engines)

    def peek(self, choice: PairChoice) -> Engine | None:
        """An engine that is already open."""
        return self._engines.get(choice)

    def preload(self, choice: PairChoice) -> None:
        """Open an engine in this very thread and keep it for good. Raises ``DFlashError``."""
        self._engines[choice] = self._open_pair(choice, lambda text, done: None)
        self._most = max(self._most, len(self._engines))

    def is_warm(self, choice: PairChoice, block_size: int) -> bool:
        """Whether both lanes have run at this block size; marks it so."""
        key = (choice, block_size)
        known = key in self._warm
        self._warm.add(key)
        return known

    def opening(self, choice: PairChoice, should_stop: Callable[[], bool]) -> Iterator[Step]:
        """Open an engine in a worker, yielding its progress; returns at once when it is open.

        A server is asked anew each time, since it may have been started again meanwhile, and only
        the last one is kept, with its keys. Call with ``device`` held. Raises what opening raised,
        or ``Stopped``.
        """
        if choice in self._engines and not choice.server:
            self._engines.move_to_end(choice)
            return
        alike = [c for c in self._engines if bool(c.server) == bool(choice.server)]
        room = 1 if choice.server else self._most
        for old in alike[: max(0, len(alike) + 1 - room)]:
            self._engines.pop(old).close()
            if old != choice:
                self._warm = {key for key in self._warm if key[0] != old}
        steps: queue.SimpleQueue[Step | DFlashError | Engine] = queue.SimpleQueue()
        opener = threading.Thread(
            target=_open_into, args=(steps, self._open_pair, choice, should_stop), daemon=True
        )
        opener.start()
        yield from self._wait(steps, opener, choice, should_stop)

    def _wait(
        self,
        steps: queue.SimpleQueue[Step | DFlashError | Engine],
        opener: threading.Thread,
        choice: PairChoice,
        should_stop: Callable[[], bool],
    ) -> Iterator[Step]:
        while True:
            try:
                item = steps.get(timeout=0.25)
            except queue.Empty:
                if should_stop():
                    raise Stopped("stopped while the model was loading.") from None
                if not opener.is_alive() and steps.empty():
                    raise DFlashError("the model could not be opened; the log says why.") from None
                continue
            if isinstance(item, DFlashError):
                raise item
            if isinstance(item, Step):
                yield item
                continue
            self._engines[choice] = item
            return


def _open_into(
    steps: queue.SimpleQueue[Step | DFlashError | Engine],
    open_pair: Callable[[PairChoice, Report], Engine],
    choice: PairChoice,
    should_stop: Callable[[], bool],
) -> None:
    """Runs in the worker. A bug keeps its traceback in the log; the page says one sentence."""

    def report(text: str, done: float | None) -> None:
        if should_stop():
            raise Stopped("stopped before the model was ready.")
        steps.put(Step(text, done))

    try:
        steps.put(open_pair(choice, report))
    except DFlashError as error:
        steps.put(error)
