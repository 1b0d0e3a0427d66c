"""What the page does: forms in, views out. No Gradio here, so the tests need none.

Knows the race, the pool and the visitor's session. A handler that takes long is a generator of
views; a field that is ``None`` is unchanged and is not sent again.
"""

from __future__ import annotations

import importlib.metadata
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timezone

from app import charts, headline, view
from app.charts import Chart
from app.race import (
    BASELINE,
    DFLASH,
    Lane,
    LaneFailed,
    RaceEvent,
    in_slices,
    lane_requests,
    race,
    warm_up,
)
from app.runs import Run, load_run
from app.session import EnginePool, PairChoice, Session, Sessions, Stopped
from app.stage import StageHeader, StageWriter
from app.whatif import cycle_cost
from dflash.engines import Engine
from dflash.errors import DFlashError, EngineError
from dflash.schema import Event, Message, Prefilled, Request, SamplingParams, Trace

_VERSIONS = ("torch", "transformers", "gradio", "plotly")
_STOPPED_NOTE = "stopped here; the numbers so far are kept"


@dataclass(frozen=True, slots=True)
class PlaygroundForm:
    """The form as the page sends it, in input order."""

    pair_id: str
    target: str
    draft: str
    prompt: str
    block_size: float
    max_new_tokens: float
    temperature: float
    seed: float
    top_k: float
    top_p: float
    enable_thinking: bool

    def choice(self) -> PairChoice:
        """The pair that was picked. Raises ``DFlashError`` for half a pair of one's own."""
        if self.pair_id != OWN_PAIR:
            return PairChoice(self.pair_id)
        if not self.target.strip():
            raise DFlashError("no target was given.", "Type its folder or its hub id.")
        return PairChoice(OWN_PAIR, self.target.strip(), self.draft.strip())

    def request(self) -> Request:
        """The request. Raises ``DFlashError`` naming the field that is off."""
        try:
            return Request(
                messages=(Message("user", self.prompt or ""),),
                sampling=SamplingParams(
                    temperature=float(self.temperature),
                    top_p=float(self.top_p),
                    top_k=int(self.top_k),
                    seed=int(self.seed),
                    max_new_tokens=int(self.max_new_tokens),
                    enable_thinking=bool(self.enable_thinking),
                ),
                block_size=int(self.block_size),
            )
        except (TypeError, ValueError, OverflowError) as error:
            raise DFlashError(f"{str(error).rstrip('.')}.") from error


OWN_PAIR = "my own"


@dataclass(frozen=True, slots=True)
class PlaygroundView:
    """What changes on the page, in output order."""

    status: str | None = None
    headline: str | None = None
    stage: str | None = None
    charts: tuple[Chart, ...] | None = None
    run: Run | None = None  # a new last run: what-if, comparing and taking away start from it
    running: bool | None = None


@dataclass(slots=True)
class Recorder:
    """Collects a race while it runs, so that a stopped one keeps its numbers."""

    choice: PairChoice
    engines: tuple[Engine, Engine]
    request: Request
    machine: str
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    words: dict[int, str] = field(default_factory=dict)
    events: tuple[list[Event], list[Event]] = field(default_factory=lambda: ([], []))
    failures: dict[Lane, str] = field(default_factory=dict)

    def word(self, token_id: int) -> str:
        """The text of one id, decoded once."""
        if token_id not in self.words:
            self.words[token_id] = self.engines[DFLASH].decode([token_id])
        return self.words[token_id]

    def add(self, batch: list[RaceEvent]) -> None:
        """Keep a batch."""
        for item in batch:
            if isinstance(item, LaneFailed):
                self.failures[item.lane] = item.message
            else:
                self.events[item.lane].append(item.event)

    def run(self, *, stopped: bool) -> Run:
        """The race as far as it got."""
        left, right = lane_requests(self.request)
        traces = [
            Trace(request, engine.info, tuple(events))
            for request, engine, events in zip(
                (left, right), self.engines, self.events, strict=True
            )
        ]
        return Run(
            id=self.id,
            pair_id=self.choice.label,
            baseline=traces[BASELINE],
            dflash=traces[DFLASH],
            words=self.words,
            failures=self.failures,
            stopped=stopped,
            machine=self.machine,
            date=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            versions=versions(),
        )


class PlaygroundHandlers:
    """The playground's events. One object per page; everything per visitor is in ``sessions``."""

    def __init__(self, pool: EnginePool, sessions: Sessions, machine: Callable[[], str]) -> None:
        self.pool = pool
        self.sessions = sessions
        self.machine = machine

    def on_run(self, form: PlaygroundForm, session_id: str) -> Iterator[PlaygroundView]:
        """Race both lanes. Safe to abandon: the device is free again on the way out."""
        session = self.sessions.of(session_id)
        session.stop.clear()
        try:
            request, choice = form.request(), form.choice()
            with self._device(session):
                yield PlaygroundView(
                    status=view.status_line("busy", "starting"), headline="", running=True
                )
                yield from self._race(session, choice, request)
        except Stopped as error:
            yield PlaygroundView(status=view.status_line("warn", str(error)), running=False)
        except DFlashError as error:
            yield PlaygroundView(
                status=view.status_line("bad", error.message, error.hint), running=False
            )

    def on_stop(self, session_id: str) -> PlaygroundView:
        """Stop this visitor's race and show what it got. The device is free within one cycle."""
        session = self.sessions.of(session_id)
        session.stop.set()
        if not session.idle.wait(timeout=10):
            return PlaygroundView(
                status=view.status_line("busy", "stopping: the current step is still running")
            )
        if session.run is None or not session.run.stopped:
            return PlaygroundView(status=view.status_line("idle", "stopped"), running=False)
        return finished_view(session.run, session.stage_text)

    def on_open(self, text: str, session_id: str) -> PlaygroundView:
        """Show a saved run; no model is needed. Raises ``DFlashError`` for a bad file."""
        run = load_run(text, source="opened")
        self.sessions.of(session_id).keep(run)
        return finished_view(run, replay_text(run))

    def on_recall(self, run_id: str, session_id: str) -> PlaygroundView:
        """Show an earlier run of this window again."""
        run = self.sessions.of(session_id).runs.get(run_id)
        if run is None:
            raise DFlashError(
                "that run is no longer kept on the server.", "Open it from the file you saved."
            )
        return finished_view(run, replay_text(run))

    def _device(self, session: Session) -> _Held:
        return _Held(self.pool, session)

    def _race(
        self, session: Session, choice: PairChoice, request: Request
    ) -> Iterator[PlaygroundView]:
        for step in self.pool.opening(choice, session.stop.is_set):
            yield PlaygroundView(status=view.progress_line(step.text, step.done))
        engine = self.pool.peek(choice)
        assert engine is not None, "opening() leaves the engine in the pool"
        request = fitting(request, engine)
        if not self.pool.is_warm(choice, request.block_size):
            yield PlaygroundView(status=view.status_line("busy", "warming up both lanes"))
            warm_up(engine, request)
        recorder = Recorder(choice, (engine, engine), request, self.machine())
        writer = StageWriter(recorder.word)
        writer.header(StageHeader(recorder.id, request.block_size, "measured here"))
        yield PlaygroundView(
            status=view.status_line("busy", f"reading the prompt with {choice.label}"),
            stage=writer.text,
        )
        completed = False
        try:
            yield from self._stream(session, recorder, writer)
            completed = not session.stop.is_set()
        finally:
            run = recorder.run(stopped=not completed)
            _close_stage(writer, run)
            session.keep(run)
            session.stage_text = writer.text
            self._remember_costs(session, choice, run)
        yield finished_view(run, writer.text)

    def _stream(
        self, session: Session, recorder: Recorder, writer: StageWriter
    ) -> Iterator[PlaygroundView]:
        events = race(recorder.engines, recorder.request, should_stop=session.stop.is_set)
        started = False
        with closing(in_slices(events)) as slices:
            for batch in slices:
                recorder.add(batch)
                writer.add(batch)
                status = None
                if not started and _both_prefilled(recorder):
                    started = True
                    status = view.status_line(
                        "busy", "both lanes are running; their own clocks make the numbers"
                    )
                yield PlaygroundView(status=status, stage=writer.text)

    def _remember_costs(self, session: Session, choice: PairChoice, run: Run) -> None:
        cost = cycle_cost(run.dflash)
        if cost and run.block_size > 1 and not run.stopped:
            session.costs[(choice.label, run.block_size)] = cost


class _Held:
    """The device and the session's busy mark, taken together and given back together."""

    def __init__(self, pool: EnginePool, session: Session) -> None:
        self._pool, self._session = pool, session

    def __enter__(self) -> None:
        while not self._pool.device.acquire(timeout=0.2):
            if self._session.stop.is_set():
                raise Stopped("stopped while waiting for the device.")
        self._session.idle.clear()

    def __exit__(self, *_: object) -> None:
        self._pool.device.release()
        self._session.idle.set()


def fitting(request: Request, engine: Engine) -> Request:
    """Check the block against the draft's. Raises ``EngineError`` with the range."""
    trained = engine.trained_block_size
    if trained is not None and request.block_size > trained:
        raise EngineError(
            f"this draft was trained for blocks of up to {trained}, and {request.block_size} "
            "was asked for.",
            f"Set the block size to {trained} or less.",
        )
    return request


def finished_view(run: Run, stage_text: str) -> PlaygroundView:
    """Everything the page shows of a run that has ended."""
    return PlaygroundView(
        status=_final_status(run),
        headline=headline.headline(run),
        stage=stage_text,
        charts=charts.build_charts(run),
        run=run,
        running=False,
    )


def replay_text(run: Run, *, autoplay: bool = False) -> str:
    """The stage's lines for a run that is already over."""
    writer = StageWriter(run.word)
    writer.header(StageHeader(run.id, run.block_size, run.source, run.where, autoplay))
    writer.add(run.events())
    _close_stage(writer, run)
    return writer.text


def versions() -> dict[str, str]:
    """Package versions for provenance, without importing the packages."""
    known = {}
    for name in _VERSIONS:
        try:
            known[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return known


def _close_stage(writer: StageWriter, run: Run) -> None:
    if run.stopped:
        writer.stopped(_STOPPED_NOTE)
    writer.end(headline.stage_end(run))


def _both_prefilled(recorder: Recorder) -> bool:
    return all(
        lane in recorder.failures or any(isinstance(e, Prefilled) for e in events[:1])
        for lane, events in zip((BASELINE, DFLASH), recorder.events, strict=True)
    )


def _final_status(run: Run) -> str:
    if run.failures:
        lanes = {BASELINE: "the plain lane", DFLASH: "the DFlash lane"}
        said = "; ".join(f"{lanes[lane]}: {text}" for lane, text in run.failures.items())
        return view.status_line("bad", said)
    if run.stopped:
        return view.status_line("warn", "stopped half way; the numbers so far are kept")
    comparison = run.comparison
    if comparison.first_difference is not None:
        at = comparison.first_difference + 1
        unit = comparison.difference_unit
        return view.status_line("warn", f"finished; the two texts differ from {unit} {at}")
    words = {"recorded": "a recorded run", "opened": "an opened run"}
    what = words.get(run.source, "finished")
    return view.status_line("good", f"{what}: both lanes wrote the same text")
