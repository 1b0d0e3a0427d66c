"""Between handlers and Gradio: view fields to outputs, one error translation, session ids.

Knows both sides only by their shape. ``None`` in a view becomes ``gr.skip()``: it is not sent.
"""

from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr

from app.charts import CHART_TITLES, Chart, chart_table
from app.handlers import PlaygroundView
from dflash.errors import DFlashError

NUM_CHART_OUTPUTS = 2 * len(CHART_TITLES)


def shown(error: DFlashError) -> gr.Error:
    """The one translation of an error for the user."""
    return gr.Error(f"{error.message} {error.hint}".strip(), print_exception=False)


def session_id(request: gr.Request) -> str:
    """The window's own id; calls without one (bare HTTP) share none."""
    return str(request.session_hash)


def chart_outputs(charts: tuple[Chart, ...] | None) -> list[Any]:
    """Figure and caption of every chart, in ``CHART_TITLES`` order."""
    if charts is None:
        return [gr.skip()] * NUM_CHART_OUTPUTS
    outputs: list[Any] = []
    for chart in charts:
        outputs.append(gr.update(value=chart.figure, visible=chart.figure is not None))
        outputs.append(chart_block(chart))
    return outputs


def chart_block(chart: Chart) -> str:
    """The sentence and the table under a chart."""
    return f'<p class="caption">{escape(chart.caption)}</p>{chart_table(chart)}'


def race_outputs(view: PlaygroundView) -> list[Any]:
    """Status, headline, stage, charts, the two buttons."""
    texts = [gr.skip() if v is None else v for v in (view.status, view.headline, view.stage)]
    return [*texts, *chart_outputs(view.charts), *_buttons(view.running)]


def _buttons(running: bool | None) -> list[Any]:
    if running is None:
        return [gr.skip(), gr.skip()]
    return [gr.update(interactive=not running), gr.update(interactive=running)]
