"""The Benchmark tab's events. Knows Gradio and the sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import Any

import gradio as gr

from app import view, wiring
from app.charts_sweep import heat_map
from app.hand_out import hand_out
from app.hosted import HOME, Limits
from app.session import EnginePool, Sessions, Stopped
from app.sweep import SweepForm, SweepState, calibrate, foretold, results_table, sweep
from app.tabs.benchmark import Benchmark
from dflash.benchmark import report
from dflash.errors import DFlashError
from dflash.whole_file import write_whole

_PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}


def wire_benchmark(
    tab: Benchmark, pool: EnginePool, sessions: Sessions, opened: gr.Tab, limits: Limits = HOME
) -> None:
    """Connect the tab; measuring shares the device with the playground, one at a time.

    ``opened`` is the tab itself: choosing it tells anew how long a sweep would take.
    """

    def states(request: gr.Request, begin: Callable[..., Iterator[SweepState]]) -> Iterator[Any]:
        stop = sessions.of(wiring.session_id(request)).stop
        stop.clear()
        try:
            for state in begin(stop.is_set):
                yield sweep_outputs(state)
        except Stopped as error:
            yield sweep_outputs(SweepState("warn", error.message, None, finished=True))
        except DFlashError as error:
            yield sweep_outputs(SweepState("bad", str(error), None, finished=True))

    def on_sweep(request: gr.Request, *values: Any) -> Iterator[Any]:
        form = SweepForm(*values)
        yield from states(request, lambda should_stop: sweep(pool, form, should_stop, limits))

    def on_calibrate(request: gr.Request, pair_id: str) -> Iterator[Any]:
        yield from states(
            request, lambda should_stop: calibrate(pool, pair_id, should_stop, limits)
        )

    def on_form(request: gr.Request, *values: Any) -> str:
        form = SweepForm(*values)
        try:
            limits.check_prompt_sets(form.prompt_sets)
            text = foretold(form, sessions.of(wiring.session_id(request)).run)
        except (DFlashError, TypeError) as error:  # an emptied number field is no number
            text = str(error) if isinstance(error, DFlashError) else "A number is missing."
        return f'<p class="caption">{escape(text)}</p>'

    def on_stop(request: gr.Request) -> str:
        sessions.of(wiring.session_id(request)).stop.set()
        return view.status_line("busy", "stopping after the run under way")

    device: dict[str, Any] = {"concurrency_id": "device", "concurrency_limit": 1, **_PRIVATE}
    tab.start.click(on_sweep, tab.form, tab.outputs, **device)
    tab.calibrate.click(on_calibrate, tab.form[0], tab.outputs, **device)
    asks = [opened.select, *(part.change for part in tab.form)]  # type: ignore[attr-defined]
    told: dict[str, Any] = {"queue": False, "trigger_mode": "always_last", **_PRIVATE}
    gr.on(asks, on_form, tab.form, tab.foretold, **told)
    tab.stop.click(on_stop, None, tab.status, queue=False, **_PRIVATE)


def sweep_outputs(state: SweepState) -> list[Any]:
    """Every output of the tab, in the order of ``Benchmark.outputs``."""
    status = (
        view.status_line(state.tone, state.text)
        if state.finished
        else view.progress_line(state.text, state.done)
    )
    running = not state.finished
    buttons = [gr.update(interactive=not running)] * 2 + [gr.update(interactive=running)]
    if not state.blocks:
        return [status, *[gr.skip()] * 4, *buttons]
    chart = heat_map(state.blocks)
    return [
        status,
        results_table(state.blocks),
        gr.update(value=chart.figure, visible=chart.figure is not None),
        f'<p class="caption">{escape(chart.caption)} {view.badge("measured here")}</p>',
        _csv(state) if state.finished else gr.skip(),
        *buttons,
    ]


def _csv(state: SweepState) -> Any:
    path = hand_out("sweep.csv", lambda path: write_whole(path, report.csv_text(state.runs)))
    return gr.update(value=path, visible=True)
