"""The Benchmark tab: layout only. Its components travel to the wiring as one value."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from app.hosted import HOME, Limits
from app.pair_card import DEFAULT_PAIR, catalogue_choices
from dflash.presets import preset_ids


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The tab's components."""

    form: list[gr.components.Component]  # in the order of ``SweepForm``
    foretold: gr.HTML
    start: gr.Button
    stop: gr.Button
    calibrate: gr.Button
    status: gr.HTML
    table: gr.HTML
    chart: gr.Plot
    caption: gr.HTML
    download: gr.DownloadButton

    @property
    def outputs(self) -> list[gr.components.Component]:
        """In the order of ``sweep_wiring.sweep_outputs``."""
        return [
            self.status, self.table, self.chart, self.caption, self.download, self.start,
            self.calibrate, self.stop,
        ]  # fmt: skip


def build_benchmark(limits: Limits = HOME) -> Benchmark:
    """Lay the tab out."""
    sets = list(preset_ids("prompts"))
    first = ["demo"] if "demo" in sets else sets[:2]
    gr.HTML(
        "<h2>Measure block sizes on kinds of text</h2><p>Every prompt is answered by every arm in "
        "alternating order, warm, on the lanes' own clocks; figures are medians of paired "
        "ratios.</p>",
        apply_default_css=False,
    )
    with gr.Row():
        pair = gr.Dropdown(catalogue_choices(limits), value=DEFAULT_PAIR, label="Pair")
        kinds = gr.Dropdown(sets, value=first, multiselect=True, label="Prompt sets")
        blocks = gr.Dropdown(
            [2, 3, 4, 5, 6, 8, 10, 12, 16], value=[4, 8, 16], multiselect=True, label="Block sizes"
        )
    with gr.Row():
        prompts = gr.Number(6, label="Prompts per set", precision=0, minimum=1, maximum=100)
        repeats = gr.Number(2, label="Repeats", precision=0, minimum=1, maximum=10)
        max_new_tokens = gr.Number(96, label="Max tokens", precision=0, minimum=2, maximum=2048)
    foretold = gr.HTML(elem_id="foretold", apply_default_css=False)
    with gr.Row():
        start = gr.Button("Measure", variant="primary", elem_id="sweep")
        stop = gr.Button("Stop", interactive=False)
        calibrate = gr.Button("Calibrate this machine")
    status = gr.HTML(elem_id="sweep-status", apply_default_css=False)
    with gr.Row():
        with gr.Column(scale=3, min_width=320):
            table = gr.HTML(elem_id="sweep-table", apply_default_css=False)
        with gr.Column(scale=2, min_width=300):
            chart = gr.Plot(show_label=False, visible=False)
            caption = gr.HTML(apply_default_css=False)
            download = gr.DownloadButton("Every run as CSV", visible=False)
    return Benchmark(
        [pair, kinds, blocks, prompts, repeats, max_new_tokens], foretold, start, stop, calibrate,
        status, table, chart, caption, download,
    )  # fmt: skip
