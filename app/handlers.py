"""What the page does: forms in, views out. No Gradio here, so the tests need none.

Knows the race, the pool and the visitor's session. A handler that takes long is a generator of
views; a field that is ``None`` is unchanged and is not sent again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TypeAlias

from app import headline, run_log, view
from app.finished import (
    Checked,
    PlaygroundView,
    WhatIfView,
    close_stage,
    finished_view,
    first_what_if,
    replay_text,
    what_if_view,
)
from app.form import PlaygroundForm
from app.hosted import HOME, Limits
from app.look import look_closer
from app.looking import link_of, looking_views
from app.open_pair import open_server
from app.pair_card import pair_card
from app.race import RaceEvent, in_slices, race, warm_up
from app.recorded import recorded_runs
from app.recorder import Recorder
from app.runs import Run, load_run
from app.served import Served, ServerForm, served_request
from app.session import EnginePool, GpuRefused, PairChoice, Session, Sessions, Stopped
from app.stage import WAITING, StageHeader, StageWriter
from app.whatif import CycleCost, cycle_cost, predictions
from app.zerogpu import LentGpu, race_slices
from dflash.budget import check_block_size
from dflash.close_look import CloseLook
from dflash.engines import Engine
from dflash.engines.remote import RemoteEngine
from dflash.errors import DFlashError
from dflash.schema import Request

_MAX_UNASKED_S = 30.0  # of the DFlash lane; the look takes about as long

Views: TypeAlias = Generator[PlaygroundView, None, None]


class PlaygroundHandlers:
    """The playground's events. One object per page; everything per visitor is in ``sessions``."""

    def __init__(
        self,
        pool: EnginePool,
        sessions: Sessions,
        machine: Callable[[], str],
        limits: Limits = HOME,
        lent: LentGpu | None = None,
    ) -> None:
        self.pool = pool
        self.sessions = sessions
        self.machine = machine
        self.limits = limits
        self.lent = lent

    def on_run(
        self, form: PlaygroundForm, session_id: str, servers: ServerForm | None = None
    ) -> Views:
        """Race both lanes. Safe to abandon: the device is free again on the way out."""
        session = self._begin(session_id)
        with closing(self._guarded(session, form, servers=servers)) as views:
            yield from views

    def on_ask(self, servers: ServerForm) -> PlaygroundView:
        """Ask the servers that were named whether they speculate; nothing is generated."""
        try:
            choice = servers.choice()
            self.limits.check_choice(choice)
            assert choice.server is not None, "that is what a server form gives"
            engine = open_server(choice.server, self.limits.guard)
        except DFlashError as error:
            return replace(_refused(error), running=None)
        card = Served.ask(engine).card()
        return PlaygroundView(
            status=view.status_line("idle", "the servers answered"), pair_card=card
        )

    def on_pressed(self, session_id: str) -> PlaygroundView:
        """Answer a press at once, before the device is free."""
        session = self.sessions.of(session_id)
        session.stop.clear()
        session.waiting, session.cleared = True, False
        return PlaygroundView(
            status=view.status_line("busy", "waiting for the device"), running=True
        )

    def on_run_pressed(self, session_id: str) -> PlaygroundView:
        """The same for Run; no prompt stands above another prompt's answer while it waits."""
        shown = self.on_pressed(session_id)
        self.sessions.of(session_id).cleared = True
        return replace(shown, headline="", stage=WAITING)

    def on_check(self, block_size: int, session_id: str) -> Views:
        """Run the what-if's block on the run it predicts from, and show how far off it was."""
        session = self._begin(session_id)
        basis, choice = session.basis, session.choice
        if basis is None or choice is None:
            hint = "Run a race first; a recorded run has no model to check with."
            yield _refused(DFlashError("nothing to check yet.", hint))
            return
        if choice.server:
            hint = "Start it with another one and race again."
            yield _refused(DFlashError("a server's block is set where it was started.", hint))
            return
        form = PlaygroundForm.of_run(basis.dflash.request, choice)
        with closing(self._guarded(session, form.with_block(block_size), check=True)) as views:
            yield from views

    def on_look(self, session_id: str) -> Views:
        """Look again at the run that is shown: every slot's odds, and where texts part."""
        session = self._begin(session_id)
        run, choice = session.run, session.choice
        if run is None or choice is None or run.source != "measured here":
            hint = "Run it here first: a recorded run has no model to look with."
            yield _refused(DFlashError("nothing to look at.", hint))
            return
        with closing(self._in_sentences(session, self._look(session, choice, run))) as views:
            yield from views

    def on_race_over(self, session_id: str) -> Views:
        """Look at the race that just ended, unasked: every slot's odds, on no lane's clock.

        Gives way within one cycle to whoever presses Run or Stop, and does nothing where a look
        would cost somebody something: a lent GPU, a long run, a visitor who waits.
        """
        session = self.sessions.of(session_id)
        run, choice = session.run, session.choice
        if run is None or choice is None or not self._may_look_unasked(session, choice, run):
            return
        try:
            with _held(self.pool, session):
                yield from self._look(session, choice, run, unasked=True)
        except DFlashError as error:
            run_log.refused(session, error)

    def on_stop(self, session_id: str) -> PlaygroundView:
        """Stop this visitor's race and show what it got. The device is free within one cycle."""
        session = self.sessions.of(session_id)
        session.stop.set()
        if not session.idle.wait(timeout=10):
            return PlaygroundView(
                status=view.status_line("busy", "stopping: the current step is still running")
            )
        if session.waiting or session.cleared:
            status = view.status_line("idle", "stopped before it began")
            shown = _given_back(session, PlaygroundView(status=status, running=False))
            session.waiting = session.cleared = False
            return shown
        if session.run is None or not session.run.stopped:
            return PlaygroundView(running=False)
        return self._finished(session, session.run, session.stage_text)

    def on_open(self, text: str, session_id: str) -> PlaygroundView:
        """Show a saved run; no model is needed. Raises ``DFlashError`` for a bad file."""
        return self.show(load_run(text, source="opened"), session_id)

    def on_recall(self, run_id: str, session_id: str) -> PlaygroundView:
        """Show an earlier run of this window again. Raises ``DFlashError`` when it is gone."""
        run = self.sessions.of(session_id).runs.get(run_id)
        if run is None:
            raise DFlashError(
                "that run is no longer kept on the server.", "Open it from the file you saved."
            )
        return self.show(run, session_id)

    def show(self, run: Run, session_id: str, *, autoplay: bool = False) -> PlaygroundView:
        """Show a run that is over."""
        return self._show(self.sessions.of(session_id), run, autoplay=autoplay)

    def _show(self, session: Session, run: Run, *, autoplay: bool) -> PlaygroundView:
        session.cleared = False
        session.keep(run)
        session.rebase(run, session.choices.get(run.id))
        return self._finished(session, run, replay_text(run, autoplay=autoplay))

    def on_what_if(self, block_size: int, session_id: str) -> WhatIfView | None:
        """The prediction for another block of the run that is shown; ``None`` for no run."""
        session = self.sessions.of(session_id)
        if session.basis is None or not 1 <= block_size <= session.basis.block_size:
            return None
        return what_if_view(
            session.basis, block_size, measured=session.measured, costs=session.costs
        )

    def _begin(self, session_id: str) -> Session:
        session = self.sessions.of(session_id)
        session.waiting = False
        session.stop.clear()
        session.request_id = secrets.token_hex(6)
        return session

    def _guarded(
        self,
        session: Session,
        form: PlaygroundForm,
        *,
        check: bool = False,
        servers: ServerForm | None = None,
    ) -> Views:
        try:
            request = form.request()
            if servers and servers.is_chosen:
                request, choice = served_request(request), servers.choice()
            else:
                choice = form.choice()
            self.limits.check_choice(choice)
            self.limits.check_request(request)
        except DFlashError as error:
            run_log.refused(session, error)
            yield _given_back(session, _refused(error))
            return
        racing = self._race(session, choice, request, check=check)
        with closing(self._in_sentences(session, racing)) as views:
            yield from views

    def _in_sentences(self, session: Session, work: Views) -> Views:
        """Hold the device while working; what goes wrong becomes one sentence."""
        try:
            with _held(self.pool, session), closing(work):
                yield PlaygroundView(status=view.status_line("busy", "starting"), running=True)
                yield from work
        except Stopped as error:
            status = view.status_line("warn", str(error))
            yield _given_back(session, PlaygroundView(status=status, running=False))
        except GpuRefused as error:
            run_log.refused(session, error)
            yield from self._recorded_instead(session, error)
        except DFlashError as error:
            run_log.refused(session, error)
            yield _given_back(session, _refused(error))

    def _recorded_instead(self, session: Session, error: GpuRefused) -> Views:
        if recorded_runs():
            shown = self._show(session, recorded_runs()[0], autoplay=True)
            yield replace(shown, status=_refused(error).status)
        else:
            refused = _refused(DFlashError(error.message, "Try again later."))
            yield _given_back(session, refused)

    def _opened(
        self, session: Session, choice: PairChoice
    ) -> Generator[PlaygroundView, None, Engine]:
        for step in self.pool.opening(choice, session.stop.is_set):
            yield PlaygroundView(status=view.progress_line(step.text, step.done))
        engine = self.pool.peek(choice)
        assert engine is not None, "opening() leaves the engine in the pool"
        return engine

    def _lent_for(self, choice: PairChoice) -> LentGpu | None:
        """Servers need no GPU of ours."""
        return None if choice.server else self.lent

    def _may_look_unasked(self, session: Session, choice: PairChoice, run: Run) -> bool:
        return (
            run.source == "measured here"
            and not (run.odds or run.stopped or session.stop.is_set() or self.lent)
            and isinstance(self.pool.peek(choice), CloseLook)
            and bool(run.dflash.events)
            and run.dflash.events[-1].t_s <= _MAX_UNASKED_S
            and not self.sessions.anyone_waits()
        )

    def _look(
        self, session: Session, choice: PairChoice, run: Run, *, unasked: bool = False
    ) -> Views:
        engine = yield from self._opened(session, choice)
        lent = self._lent_for(choice)
        found = lent.run(look_closer, choice, run) if lent else look_closer(engine, run)

        def gives_way() -> bool:
            return session.stop.is_set() or (unasked and self.sessions.anyone_waits())

        with closing(looking_views(session, run, found, gives_way, unasked=unasked)) as views:
            yield from views

    def _race(
        self, session: Session, choice: PairChoice, request: Request, *, check: bool
    ) -> Views:
        engine = yield from self._opened(session, choice)
        check_block_size(request.block_size, engine.trained_block_size)
        served = Served.ask(engine) if isinstance(engine, RemoteEngine) else None
        if self._lent_for(choice) is None and not self.pool.is_warm(choice, request.block_size):
            yield PlaygroundView(status=view.status_line("busy", "warming up both lanes"))
            warm_up(engine, request, should_stop=session.stop.is_set)
        recorder = Recorder(
            served.named(choice) if served else choice,
            (engine, engine),
            request,
            self.machine(),
            id=session.request_id,
        )
        writer = StageWriter(recorder.word)
        block = None if served else request.block_size
        writer.header(StageHeader(recorder.id, block, "measured here"))
        session.cleared = False
        yield PlaygroundView(
            status=view.status_line("busy", f"reading the prompt with {recorder.choice.label}"),
            headline="",
            stage=writer.text,
            pair_card=served.card() if served else pair_card(choice.pair_id, engine),
        )
        run_log.started(recorder)
        completed = False
        try:
            yield from self._stream(session, recorder, writer)
            completed = not session.stop.is_set()
        finally:
            recorder.machine = self.machine()  # a lent GPU tells its name only while it works
            run = recorder.run(stopped=not completed)
            if served:
                run = replace(served.settled(run), machine=served.machine(run.machine))
                writer.add(run.events()[len(run.baseline.events) + len(run.dflash.events) :])
            close_stage(writer, run)
            session.keep(run)
            session.stage_text = writer.text
            run_log.ended(run)
        checked = _after(session, choice, run, check=check)
        shown = self._finished(session, run, writer.text, checked)
        yield replace(shown, pair_card=served.card(run)) if served else shown

    def _stream(self, session: Session, recorder: Recorder, writer: StageWriter) -> Views:
        started = False
        with closing(self._slices(session, recorder)) as slices:
            for batch in slices:
                recorder.add(batch)
                writer.add(batch)
                status = None
                if not started and recorder.both_prefilled:
                    started = True
                    status = view.status_line("busy", _running(recorder))
                yield PlaygroundView(status=status, stage=writer.text)
                if session.stop.is_set() and self._lent_for(recorder.choice):
                    return  # closing is all that stops a race in another process

    def _slices(
        self, session: Session, recorder: Recorder
    ) -> Generator[list[RaceEvent], None, None]:
        if lent := self._lent_for(recorder.choice):
            return lent.run(race_slices, recorder.choice, recorder.request)
        events = race(recorder.engines, recorder.request, should_stop=session.stop.is_set)
        return in_slices(events)

    def _finished(
        self, session: Session, run: Run, stage_text: str, checked: Checked | None = None
    ) -> PlaygroundView:
        if checked and session.basis:
            what_if = what_if_view(
                session.basis,
                checked.block_size,
                measured=session.measured,
                costs=session.costs,
                checked=checked,
            )
        else:
            what_if = first_what_if(run, session.costs)
        query = link_of(session, run)
        return finished_view(
            run, stage_text, what_if=what_if, link_query=query, repeats=_repeats(session, run)
        )


def _running(recorder: Recorder) -> str:
    if recorder.choice.server:
        return "the plain lane is answering now; every lane has its own clock"
    return "both lanes are running; their own clocks make the numbers"


def _refused(error: DFlashError) -> PlaygroundView:
    return PlaygroundView(status=view.status_line("bad", error.message, error.hint), running=False)


def _given_back(session: Session, shown: PlaygroundView) -> PlaygroundView:
    """A press that came to no race gives back the run that it cleared away."""
    if not session.cleared:
        return shown
    if session.run is None:
        return replace(shown, stage="")
    return replace(shown, headline=headline.headline(session.run), stage=replay_text(session.run))


@contextmanager
def _held(pool: EnginePool, session: Session) -> Iterator[None]:
    """The device and the session's busy mark, taken together and given back together."""
    while not pool.device.acquire(timeout=0.2):
        if session.stop.is_set():
            raise Stopped("stopped while waiting for the device.")
    session.idle.clear()
    try:
        yield
    finally:
        pool.device.release()
        session.idle.set()


def _after(session: Session, choice: PairChoice, run: Run, *, check: bool) -> Checked | None:
    """Learn from a run: it becomes the what-if's basis, or tests the prediction of the last."""
    speedup, cost = run.comparison.speedup, cycle_cost(run.dflash)
    basis = session.basis
    if not check or basis is None:
        session.rebase(run, choice)
        return None
    if run.stopped or speedup is None:
        return None
    predicted = _predicted(basis, run.block_size, session.costs)
    session.measured[run.block_size] = speedup
    if cost:
        session.costs[run.block_size] = cost
    return Checked(run.block_size, predicted, speedup) if predicted else None


def _repeats(session: Session, run: Run) -> list[float]:
    """The speedups of every completed run of this very request in this window, oldest first."""
    return [
        speedup
        for other in session.runs.values()
        if other.source == "measured here"
        and not other.stopped
        and (other.pair_id, other.dflash.request) == (run.pair_id, run.dflash.request)
        and (speedup := other.comparison.speedup) is not None
    ]


def _predicted(basis: Run, block_size: int, costs: dict[int, CycleCost]) -> float | None:
    options = predictions(basis, costs)
    return next((p.speedup for p in options if p.block_size == block_size), None)
