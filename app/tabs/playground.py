"""The Playground tab: layout only. Its components travel to the wiring as one value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from app import view
from app.charts import CHART_TITLES
from app.examples import EXAMPLES
from app.hosted import HOME, Limits
from app.pair_card import DEFAULT_PAIR, pair_card, pair_choices, trained_block
from app.recorded import recorded_runs
from app.runs import Run
from app.tabs.servers import Servers, build_engine, build_servers

_HERE = Path(__file__).parent.parent
_NUM_FRONT_CHARTS = 3
_OF_LAST = (
    ' <span class="of-last">of the run before this one; the new run\'s come when it ends</span>'
)
RUN_HERE = "Run it here"
RUN_SERVED = "Race the servers"
LOOK_HERE = "Look closer: odds of every slot"
LOOK_SERVED = "Look closer: where the texts part"


@dataclass(frozen=True, slots=True)
class Playground:
    """The tab's components, grouped as the wiring needs them."""

    pair: gr.Dropdown
    pair_card: gr.HTML
    own: gr.Group
    target: gr.Textbox
    draft: gr.Textbox
    prompt: gr.Textbox
    chips: tuple[gr.Button, ...]
    block: gr.Slider
    max_new_tokens: gr.Number
    temperature: gr.Number
    seed: gr.Number
    top_k: gr.Number
    top_p: gr.Number
    thinking: gr.Checkbox
    more: gr.Accordion
    servers: Servers
    local_settings: gr.Column  # a server has its own
    what_if_part: gr.Column
    marks: gr.HTML
    advice: gr.HTML
    use_advice: gr.Button
    run: gr.Button
    stop: gr.Button
    status: gr.HTML
    headline: gr.HTML
    stage: gr.HTML
    charts: tuple[gr.Plot | gr.HTML, ...]  # figure and caption of each title in turn
    recorded: gr.Dropdown
    open_file: gr.UploadButton
    look_closer: gr.Button
    look: gr.HTML
    what_block: gr.Slider
    what_text: gr.HTML
    what_plot: gr.Plot
    check: gr.Button
    takeaway: gr.HTML
    kept: gr.HTML

    @property
    def form(self) -> list[gr.components.Component]:
        """Inputs in the order of ``PlaygroundForm``."""
        return [
            self.pair, self.target, self.draft, self.prompt, self.block, self.max_new_tokens,
            self.temperature, self.seed, self.top_k, self.top_p, self.thinking,
        ]  # fmt: skip

    @property
    def run_form(self) -> list[gr.components.Component]:
        """The inputs of a race: those of ``PlaygroundForm``, then those of ``ServerForm``."""
        return [*self.form, *self.servers.form]

    @property
    def outputs(self) -> list[gr.components.Component]:
        """This tab's outputs in the order of ``wiring.race_outputs``, up to Learn's formula."""
        return [
            self.status, self.headline, self.stage, *self.charts, self.run, self.stop, self.check,
            *self.what_if, self.takeaway, self.kept, self.pair_card,
        ]  # fmt: skip

    @property
    def what_if(self) -> list[gr.components.Component]:
        """The what-if part in the order of ``wiring.what_if_outputs``."""
        return [self.what_block, self.what_text, self.what_plot]


def build_playground(limits: Limits = HOME) -> Playground:
    """Lay the tab out. The first visit's recorded run is filled in by the wiring."""
    parts: dict[str, Any] = {**_top_line(limits), **_form()}
    parts["status"] = gr.HTML(elem_id="status", apply_default_css=False)
    parts["headline"] = gr.HTML(elem_id="headline", apply_default_css=False)
    parts["stage"] = _scripted("stage", "stage.js")
    parts |= _replays()
    parts["charts"] = _charts()
    with gr.Column(min_width=280) as what_if_part:
        parts |= _what_if()
    parts["what_if_part"] = what_if_part
    gr.HTML(f"<h2>Take it away{_OF_LAST}</h2>", apply_default_css=False)
    parts["takeaway"] = _scripted("takeaway", "takeaway.js")
    gr.HTML("<h2>Your runs</h2>", apply_default_css=False)
    parts["kept"] = _scripted("kept", "kept_runs.js")
    return Playground(**parts)


def _scripted(name: str, script: str) -> gr.HTML:
    """A part that the browser draws itself from a string that the server sends."""
    return gr.HTML(
        "",
        html_template=f'<div class="{name}"></div>',
        js_on_load=(_HERE / script).read_text(encoding="utf-8"),
        apply_default_css=False,
        elem_id=name,
    )


def _recorded_label(run: Run) -> str:
    speedup = view.factor(run.comparison.speedup)
    return f"{run.kind or run.pair_id}, block {run.block_size}: {speedup} ({run.machine})"


def _replays() -> dict[str, Any]:
    choices = [(_recorded_label(run), run.id) for run in recorded_runs()]
    with gr.Row(elem_id="replays"):
        recorded = gr.Dropdown(
            choices,
            value=choices[0][1] if choices else None,
            label="Recorded runs",
            visible=bool(choices),
            min_width=220,
            scale=2,
        )
        open_file = gr.UploadButton(
            "Open a saved run", file_types=[".json"], size="sm", min_width=150, scale=0
        )
        look_closer = gr.Button(LOOK_HERE, size="sm", min_width=220, scale=0, elem_id="look")
    look = gr.HTML(apply_default_css=False, elem_id="look-result")
    return {
        "recorded": recorded,
        "open_file": open_file,
        "look_closer": look_closer,
        "look": look,
    }


def _what_if() -> dict[str, Any]:
    gr.HTML(f"<h2>What if the block were smaller{_OF_LAST}</h2>", apply_default_css=False)
    with gr.Row(elem_id="what-if"):
        with gr.Column(scale=2, min_width=280):
            block = gr.Slider(
                1, 16, value=8, step=1, label="Block size to predict", interactive=False
            )
            text = gr.HTML(
                '<p class="caption">After a run this predicts every smaller block from its '
                "positions and costs.</p>",
                apply_default_css=False,
            )
            check = gr.Button("Check it: really run this block", size="sm", elem_id="check")
        with gr.Column(scale=3, min_width=300):
            plot = gr.Plot(
                label="Predicted speedup by block size",
                show_label=False,
                container=False,
                visible=False,
                elem_classes="chart",
            )
    return {"what_block": block, "what_text": text, "what_plot": plot, "check": check}


def _top_line(limits: Limits) -> dict[str, Any]:
    with gr.Row(elem_id="top-line"):
        engine = build_engine(limits)
        pair = gr.Dropdown(
            pair_choices(limits),
            value=DEFAULT_PAIR,
            label="Model pair",
            scale=2,
            min_width=280,
            elem_id="pair",
        )
        card = gr.HTML(
            pair_card(DEFAULT_PAIR), apply_default_css=False, elem_id="pair-card", min_width=280
        )
    with gr.Group(visible=False) as own, gr.Row():
        target = gr.Textbox(label="Target: folder or hub id", placeholder="Qwen/Qwen3-4B")
        draft = gr.Textbox(label="Draft: folder or hub id", placeholder="z-lab/Qwen3-4B-DFlash-b16")
    servers = build_servers(engine, limits)
    return {
        "pair": pair,
        "pair_card": card,
        "own": own,
        "target": target,
        "draft": draft,
        "servers": servers,
    }


def _form() -> dict[str, Any]:
    with gr.Row(elem_id="form"):
        with gr.Column(scale=3, min_width=320):
            prompt = gr.Textbox(
                EXAMPLES[0].prompt,
                label="Prompt",
                lines=4,
                max_lines=12,
                elem_id="prompt",
                placeholder="Ask something",
            )
            with gr.Row(elem_id="chips"):
                chips = tuple(
                    gr.Button(
                        f"{example.kind} · {example.foresight}",
                        size="sm",
                        min_width=90,
                        elem_classes="chip",
                    )
                    for example in EXAMPLES
                )
            with gr.Row(elem_id="go"):
                run = gr.Button(RUN_HERE, variant="primary", elem_id="run", min_width=120)
                stop = gr.Button("Stop", interactive=False, elem_id="stop", min_width=100)
        with gr.Column(scale=2, min_width=300):
            settings = _settings()
    return {"prompt": prompt, "chips": chips, "run": run, "stop": stop, **settings}


def _settings() -> dict[str, Any]:
    trained = trained_block(DEFAULT_PAIR)
    with gr.Column(min_width=280, elem_id="local-settings") as local_settings:
        block = gr.Slider(
            1,
            trained,
            value=trained,
            step=1,
            label="Block size",
            info=f"1 = one token at a time; this draft was trained for {trained}",
            elem_id="block",
        )
        marks = _scripted("block-marks", "block_marks.js")
        with gr.Row(elem_id="advice-row"):
            advice = gr.HTML(elem_id="advice", apply_default_css=False, min_width=220)
            use_advice = gr.Button("Use it", size="sm", scale=0, min_width=80, elem_id="use-advice")
    with gr.Row():
        max_new_tokens = gr.Number(128, label="Max tokens", precision=0, minimum=1, min_width=80)
        temperature = gr.Number(0.0, label="Temperature", minimum=0, step=0.1, min_width=80)
        seed = gr.Number(0, label="Seed", precision=0, minimum=0, min_width=80)
    with gr.Accordion("more", open=False) as more, gr.Row():
        top_k = gr.Number(0, label="Top-k, 0 = all", precision=0, minimum=0, min_width=90)
        top_p = gr.Number(1.0, label="Top-p", minimum=0.01, maximum=1, step=0.05, min_width=90)
        thinking = gr.Checkbox(False, label="Thinking, if the model has it", min_width=90)
    return {
        "block": block,
        "marks": marks,
        "advice": advice,
        "use_advice": use_advice,
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "seed": seed,
        "top_k": top_k,
        "top_p": top_p,
        "thinking": thinking,
        "more": more,
        "local_settings": local_settings,
    }


def _charts() -> tuple[gr.Plot | gr.HTML, ...]:
    components: list[gr.Plot | gr.HTML] = []
    gr.HTML(f"<h2>Why this speed{_OF_LAST}</h2>", apply_default_css=False)
    with gr.Row(elem_id="front-charts"):
        for title in CHART_TITLES[:_NUM_FRONT_CHARTS]:
            with gr.Column(min_width=300):
                components += _chart(title)
    with gr.Tabs(elem_id="more-charts", overflow_behavior="wrap"):
        for title in CHART_TITLES[_NUM_FRONT_CHARTS:]:
            with gr.Tab(title):
                components += _chart(title)
    return tuple(components)


def _chart(title: str) -> tuple[gr.Plot, gr.HTML]:
    gr.HTML(f'<h3 class="chart-title">{title}</h3>', apply_default_css=False)
    plot = gr.Plot(
        label=title, show_label=False, container=False, visible=False, elem_classes="chart"
    )
    return plot, gr.HTML(apply_default_css=False)
