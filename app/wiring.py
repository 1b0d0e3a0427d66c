"""Between handlers and Gradio: view fields to outputs, one error translation, session ids.

Knows both sides only by their shape. ``None`` in a view becomes ``gr.skip()``: it is not sent.
"""

from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr

from app.charts import CHART_TITLES, Chart, chart_table
from app.finished import PlaygroundView, WhatIfView
from app.own_folders import without_own_folders
from dflash.errors import DFlashError

# For events that may refuse: Gradio shows the error of a queued event only, and without a limit
# such an event waits for no generation.
MAY_REFUSE: dict[str, Any] = {"concurrency_limit": None}


def shown(error: DFlashError) -> gr.Error:
    """The one translation of an error for the user. A toast's message is drawn as markup."""
    text = without_own_folders(str(error))
    return gr.Error(escape(text, quote=False), print_exception=False)


def session_id(request: gr.Request) -> str:
    """The window's own id."""
    return str(request.session_hash)


def race_outputs(view: PlaygroundView) -> list[Any]:
    """Every output of the playground, in the order of ``Playground.outputs``."""
    return [
        *(or_skip(value) for value in (view.status, view.headline, view.stage)),
        *_chart_outputs(view.charts),
        *_buttons(view.running),
        *what_if_outputs(view.what_if),
        *(
            or_skip(value)
            for value in (view.takeaway, view.kept, view.pair_card, view.formula, view.look)
        ),
    ]


def what_if_outputs(view: WhatIfView | None) -> list[Any]:
    """Slider, sentence, figure."""
    if view is None:
        return [gr.skip()] * 3
    slider = (
        gr.update(maximum=view.maximum, value=view.value, interactive=True)
        if view.maximum
        else gr.skip()
    )
    return [slider, view.text, gr.update(value=view.figure, visible=view.figure is not None)]


def or_skip(value: str | None) -> Any:
    """An output that keeps what it has for ``None``."""
    return gr.skip() if value is None else value


def _chart_outputs(charts: tuple[Chart, ...] | None) -> list[Any]:
    if charts is None:
        return [gr.skip()] * (2 * len(CHART_TITLES))
    outputs: list[Any] = []
    for chart in charts:
        outputs.append(gr.update(value=chart.figure, visible=chart.figure is not None))
        outputs.append(f'<p class="caption">{escape(chart.caption)}</p>{chart_table(chart)}')
    return outputs


def _buttons(running: bool | None) -> list[Any]:
    if running is None:
        return [gr.skip()] * 3
    idle = gr.update(interactive=not running)
    return [idle, gr.update(interactive=running), idle]
