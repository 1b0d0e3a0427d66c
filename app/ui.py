"""The page: tabs in order, events between them, nothing computed. Knows layout and handlers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from app import pair_card, wiring
from app.examples import EXAMPLES
from app.handlers import OWN_PAIR, PlaygroundForm, PlaygroundHandlers, finished_view, replay_text
from app.open_pair import open_pair
from app.recorded import recorded_runs
from app.session import EnginePool, PairChoice, Sessions
from app.tabs.learn import build_learn
from app.tabs.playground import Playground, build_playground
from dflash.device import detect

CSS = Path(__file__).parent / "style.css"
_SHORTCUTS = """() => {
  document.addEventListener('keydown', (e) => {
    const press = (id) => document.getElementById(id)?.click();
    if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) { e.preventDefault(); press('run'); }
    if (e.key === 'Escape') press('stop');
  });
}"""
_PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}


def build_demo() -> gr.Blocks:
    """Build the whole page. Opens no model and imports no torch."""
    handlers = PlaygroundHandlers(EnginePool(open_pair), Sessions(), lambda: detect().title)
    with gr.Blocks(title="DFlash Playground", fill_width=True) as demo:
        gr.HTML(_HEADER, apply_default_css=False)
        with gr.Tabs(elem_id="tabs"):
            with gr.Tab("Playground", id="playground"):
                playground = build_playground()
            with gr.Tab("Learn", id="learn"):
                build_learn()
        _wire_form(playground, handlers)
        _wire_race(playground, handlers)
        _show_recorded(playground)
        demo.load(None, js=_SHORTCUTS, **_PRIVATE)
        _wire_unload(demo, handlers)
    return demo


_HEADER = """<header class="page-head"><h1>DFlash Playground</h1>
<p>The same model, the same answer: left one token at a time, right a block at a time.</p>
</header>"""


def _wire_unload(demo: gr.Blocks, handlers: PlaygroundHandlers) -> None:
    def on_unload(request: gr.Request) -> None:
        handlers.sessions.drop(wiring.session_id(request))

    demo.unload(on_unload)


def _wire_race(page: Playground, handlers: PlaygroundHandlers) -> None:
    def on_run(request: gr.Request, *values: Any) -> Iterator[list[Any]]:
        form = PlaygroundForm(*values)
        for view in handlers.on_run(form, wiring.session_id(request)):
            yield wiring.race_outputs(view)

    def on_stop(request: gr.Request) -> list[Any]:
        return wiring.race_outputs(handlers.on_stop(wiring.session_id(request)))

    run = page.run.click(
        on_run,
        page.form,
        page.outputs,
        concurrency_id="device",
        concurrency_limit=1,
        show_progress="minimal",
        show_progress_on=page.status,
        api_visibility="private",
    )
    page.stop.click(on_stop, None, page.outputs, cancels=[run], queue=False, **_PRIVATE)


def _wire_form(page: Playground, handlers: PlaygroundHandlers) -> None:
    def on_pair(pair_id: str) -> list[Any]:
        trained = pair_card.trained_block(pair_id)
        engine = handlers.pool.peek(PairChoice(pair_id))
        return [
            pair_card.pair_card(pair_id, engine),
            gr.update(visible=pair_id == OWN_PAIR),
            gr.update(maximum=trained, value=trained, info=_block_info(trained)),
        ]

    page.pair.change(
        on_pair, page.pair, [page.pair_card, page.own, page.block], queue=False, **_PRIVATE
    )
    for chip, example in zip(page.chips, EXAMPLES, strict=True):
        chip.click(None, None, page.prompt, js=_setter(example.prompt), **_PRIVATE)


def _show_recorded(page: Playground) -> None:
    """Put the first recorded run on the page before anyone asks: true within two seconds."""
    runs = recorded_runs()
    if not runs:
        return
    view = finished_view(runs[0], replay_text(runs[0], autoplay=True))
    page.headline.value, page.stage.value = view.headline, view.stage


def _setter(text: str) -> str:
    """Browser code that puts a fixed text into the output; no round trip."""
    return f"() => {json.dumps(text)}"


def _block_info(trained: int) -> str:
    return f"1 = one token at a time; this draft was trained for {trained}"
