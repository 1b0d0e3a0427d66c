"""The Playground tab's events: which handler fills which outputs. Knows Gradio and handlers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import gradio as gr

from app import headline, pair_card, view, wiring
from app.examples import EXAMPLES
from app.finished import PlaygroundView, replay_text
from app.form import FORM_FIELDS, OWN_PAIR, PlaygroundForm
from app.handlers import PlaygroundHandlers, Views
from app.recorded import recorded_runs
from app.runs import read_limited
from app.served import ServerForm
from app.server_wiring import wire_servers
from app.session import PairChoice
from app.share import read_link
from app.tabs.playground import Playground
from dflash.errors import DFlashError

Outputs: TypeAlias = list[gr.components.Component]
_PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
_WELCOME = view.status_line(
    "idle", "Choose a prompt and press Run it here; the models load on the first run."
)


def wire_playground(
    demo: gr.Blocks, page: Playground, formula: gr.HTML, handlers: PlaygroundHandlers
) -> None:
    """Connect the tab; ``formula`` (in Learn) is refilled after every run."""
    outputs = [*page.outputs, formula, page.look]
    _wire_form(page, handlers)
    wire_servers(page, handlers)
    _wire_race(page, outputs, handlers)
    _wire_replays(page, outputs, handlers)
    _wire_load(demo, page, outputs, handlers)


def _wire_race(page: Playground, outputs: Outputs, handlers: PlaygroundHandlers) -> None:
    def on_pressed(request: gr.Request) -> list[Any]:
        return wiring.race_outputs(handlers.on_pressed(wiring.session_id(request)))

    def on_run_pressed(request: gr.Request) -> list[Any]:
        return wiring.race_outputs(handlers.on_run_pressed(wiring.session_id(request)))

    def on_run(request: gr.Request, *values: Any) -> Iterator[list[Any]]:
        form = PlaygroundForm(*values[: len(FORM_FIELDS)])
        servers = ServerForm(*values[len(FORM_FIELDS) :])
        yield from _streamed(handlers.on_run(form, wiring.session_id(request), servers))

    def on_check(request: gr.Request, block_size: float) -> Iterator[list[Any]]:
        yield from _streamed(handlers.on_check(int(block_size), wiring.session_id(request)))

    def on_look(request: gr.Request) -> Iterator[list[Any]]:
        yield from _streamed(handlers.on_look(wiring.session_id(request)))

    def on_race_over(request: gr.Request) -> Iterator[list[Any]]:
        yield from _streamed(handlers.on_race_over(wiring.session_id(request)))

    def on_stop(request: gr.Request) -> list[Any]:
        return wiring.race_outputs(handlers.on_stop(wiring.session_id(request)))

    device: dict[str, Any] = {
        "concurrency_id": "device",
        "concurrency_limit": 1,
        "show_progress": "minimal",
        "show_progress_on": page.status,
        "api_visibility": "private",
    }
    pressed: dict[str, Any] = {"queue": False, **_PRIVATE}
    run = page.run.click(on_run_pressed, None, outputs, **pressed).then(
        on_run, page.run_form, outputs, **device
    )
    check = page.check.click(on_pressed, None, outputs, **pressed).then(
        on_check, page.what_block, outputs, **device
    )
    look = page.look_closer.click(on_pressed, None, outputs, **pressed).then(
        on_look, None, outputs, **device
    )
    unseen = {**device, "show_progress": "hidden"}
    after = [race.then(on_race_over, None, outputs, **unseen) for race in (run, check)]
    cancelled = [run, check, look, *after]
    page.stop.click(on_stop, None, outputs, cancels=cancelled, queue=False, **_PRIVATE)


def _streamed(views: Views) -> Iterator[list[Any]]:
    shown = None
    with closing(views):
        for shown in views:
            yield wiring.race_outputs(shown)
    if shown is None:  # Gradio empties every output of a generator that yields nothing
        yield wiring.race_outputs(PlaygroundView())


def _wire_replays(page: Playground, outputs: Outputs, handlers: PlaygroundHandlers) -> None:
    def on_open(request: gr.Request, path: str) -> list[Any]:
        try:
            text = read_limited(Path(path))
            return wiring.race_outputs(handlers.on_open(text, wiring.session_id(request)))
        except DFlashError as error:
            raise wiring.shown(error) from error

    def on_recorded(request: gr.Request, run_id: str) -> list[Any]:
        run = next(run for run in recorded_runs() if run.id == run_id)
        return wiring.race_outputs(handlers.show(run, wiring.session_id(request), autoplay=True))

    def on_recall(request: gr.Request, event: gr.EventData) -> list[Any]:
        try:
            run_id = str(event._data.get("id"))
            return wiring.race_outputs(handlers.on_recall(run_id, wiring.session_id(request)))
        except DFlashError as error:
            raise wiring.shown(error) from error

    def on_what_if(request: gr.Request, block_size: float) -> list[Any]:
        shown = handlers.on_what_if(int(block_size), wiring.session_id(request))
        return wiring.what_if_outputs(shown)[1:]

    quick: dict[str, Any] = {"queue": False, **_PRIVATE}
    page.open_file.upload(on_open, page.open_file, outputs, **_PRIVATE, **wiring.MAY_REFUSE)
    page.recorded.input(on_recorded, page.recorded, outputs, **quick)
    page.kept.select(on_recall, None, outputs, **_PRIVATE, **wiring.MAY_REFUSE)
    page.what_block.input(
        on_what_if, page.what_block, page.what_if[1:], trigger_mode="always_last", **quick
    )


def _wire_load(
    demo: gr.Blocks, page: Playground, outputs: Outputs, handlers: PlaygroundHandlers
) -> None:
    """A first visit shows a recorded run; a link restores the form it was made from."""
    runs = recorded_runs()
    if runs:
        page.stage.value = replay_text(runs[0], autoplay=True)
        page.headline.value = headline.headline(runs[0])

    def on_load(request: gr.Request) -> list[Any]:
        if not runs:
            return wiring.race_outputs(PlaygroundView(status=_WELCOME))
        shown = handlers.show(runs[0], wiring.session_id(request), autoplay=True)
        # The stage and the headline are on the page already; sending them would restart the play.
        return wiring.race_outputs(replace(shown, stage=None, headline=None))

    def on_link(request: gr.Request) -> list[Any]:
        known = frozenset(pair_id for _, pair_id in pair_card.pair_choices(handlers.limits))
        fields = read_link(dict(request.query_params), known_pairs=known)
        updates = {name: gr.update(value=value) for name, value in fields.items()}
        shown = [gr.skip(), gr.skip()]
        if "pair_id" in fields:
            *shown, block = _of_pair(handlers, fields["pair_id"], fields.get("block_size"))
            updates["block_size"] = block
        return [*(updates.get(name, gr.skip()) for name in FORM_FIELDS), *shown]

    demo.load(on_load, None, outputs, queue=False, **_PRIVATE)
    demo.load(on_link, None, [*page.form, page.pair_card, page.own], queue=False, **_PRIVATE)


def _wire_form(page: Playground, handlers: PlaygroundHandlers) -> None:
    def on_pair(pair_id: str) -> list[Any]:
        return _of_pair(handlers, pair_id, None)

    # Only what a visitor picks: a link sets the pair as well, and brings a block of its own.
    page.pair.input(
        on_pair, page.pair, [page.pair_card, page.own, page.block], queue=False, **_PRIVATE
    )
    for chip, example in zip(page.chips, EXAMPLES, strict=True):
        chip.click(None, None, page.prompt, js=_setter(example.prompt), **_PRIVATE)


def _of_pair(handlers: PlaygroundHandlers, pair_id: str, block_size: int | None) -> list[Any]:
    """Card, fields for a pair of one's own, and the slider, at its end unless a block is given."""
    trained = pair_card.trained_block(pair_id)
    engine = handlers.pool.peek(PairChoice(pair_id))
    value = trained if block_size is None else min(block_size, trained)
    return [
        pair_card.pair_card(pair_id, engine),
        gr.update(visible=pair_id == OWN_PAIR),
        gr.update(maximum=trained, value=value, info=_block_info(trained)),
    ]


def _setter(text: str) -> str:
    """Browser code that puts a fixed text into the output; no round trip."""
    return f"() => {json.dumps(text)}"


def _block_info(trained: int) -> str:
    return f"1 = one token at a time; this draft was trained for {trained}"
