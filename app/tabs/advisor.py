"""The Advisor tab: layout only. Its components travel to the wiring as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from advisor.catalog import all_hardware
from advisor.exports import FORMATS
from advisor.schema import ENGINES, TASKS
from app.hosted import HOME, Limits
from dflash.presets import pair_ids

_EMPTY = [("not given", "")]


@dataclass(frozen=True, slots=True)
class Advisor:
    """The tab's components, grouped as the wiring needs them."""

    form: list[gr.components.Component]  # in the order of ``AdviceForm``
    upload: gr.UploadButton
    open_file: gr.UploadButton
    advise: gr.Button
    against: gr.Button
    use: gr.Button
    answer: gr.State  # this window's last recommendation
    verdict: gr.HTML
    findings: gr.HTML
    knobs: gr.HTML
    memory: gr.HTML
    curve: gr.Plot
    curve_text: gr.HTML
    compared: gr.HTML
    export_to: gr.Dropdown
    export: gr.Code
    export_notes: gr.HTML
    download: gr.DownloadButton
    results: gr.Column

    @property
    def pasted(self) -> gr.components.Component:
        """The box for a pasted config."""
        return self.form[4]

    @property
    def outputs(self) -> list[gr.components.Component]:
        """In the order of ``advice_wiring.advice_outputs``."""
        return [
            self.answer, self.verdict, self.findings, self.knobs, self.memory, self.curve,
            self.curve_text, self.compared, self.export, self.export_notes, self.download,
        ]  # fmt: skip


def build_advisor(limits: Limits = HOME) -> Advisor:
    """Lay the tab out: what you have on the left, the answer on the right."""
    answer = gr.State(None)
    with gr.Row(elem_id="advisor"):
        with gr.Column(scale=2, min_width=320):
            gr.HTML("<h2>What you have</h2><p>Fill in what you know; leave the rest empty.</p>",
                    apply_default_css=False)  # fmt: skip
            form = _form(limits)
            with gr.Row():
                upload = gr.UploadButton(
                    "Upload a draft's config.json", file_types=[".json"], size="sm"
                )
                open_file = gr.UploadButton(
                    "Open a saved recommendation", file_types=[".yaml", ".yml"], size="sm"
                )
            with gr.Row():
                advise = gr.Button("Advise", variant="primary", elem_id="advise")
                against = gr.Button("Guide against evidence")
        with gr.Column(scale=3, min_width=360):
            results = _results()
    return Advisor(
        form=form, upload=upload, open_file=open_file, advise=advise, against=against,
        answer=answer, **results,
    )  # fmt: skip


def _form(limits: Limits) -> list[gr.components.Component]:
    names = "catalogue id" if limits.is_hosted else "catalogue id, folder, config.json or hub id"
    hardware = [("this machine", "auto")] + [(h.name, h.id) for h in all_hardware()]
    with gr.Row():
        params = gr.Textbox(label="Parameters of the target", placeholder="4B, 135M, 4e9")
        # Text, because Gradio draws an empty number as 0.
        prompt_tokens = gr.Textbox(label="Prompt length, tokens", placeholder="800, 8000")
    draft = gr.Dropdown(
        _EMPTY + [(i, i) for i in pair_ids()], value="", label="Draft", allow_custom_value=True,
        info=names,
    )  # fmt: skip
    target = gr.Textbox(label="Target", placeholder=names)
    with gr.Accordion("Paste a draft's config.json", open=False):
        pasted = gr.Textbox(
            label="Draft config", lines=6, max_lines=14, placeholder='{"block_size": 16, ...}'
        )
    with gr.Row():
        machine = gr.Dropdown(_EMPTY + hardware, value="auto", label="Machine")
        task = gr.Dropdown(_EMPTY + [(t, t) for t in TASKS], value="", label="Kind of work")
    with gr.Accordion("More", open=False):
        tokenizer = gr.Textbox(
            label="Tokenizer",
            placeholder="tokenizer_config.json or folder",
            visible=not limits.is_hosted,
        )
        with gr.Row():
            # Without Gradio's own limits: its refusals do not say which field is meant.
            concurrency = gr.Number(label="Requests at once", value=1)
            temperature = gr.Number(label="Temperature", value=0.0)
        with gr.Row():
            tau = gr.Textbox(label="Measured τ", placeholder="3.2 or 3.2@8")
            engine = gr.Dropdown(_EMPTY + [(e, e) for e in ENGINES], value="", label="Engine")
        with gr.Row():
            mode = gr.Dropdown(
                [("as it fits", ""), ("serve a draft", "serve"), ("train a draft", "train")],
                value="", label="Mode",
            )  # fmt: skip
            policy = gr.Radio(["evidence", "guide"], value="evidence", label="Who decides")
    return [
        params, prompt_tokens, target, draft, pasted, tokenizer, machine, task, concurrency,
        temperature, tau, mode, policy, engine,
    ]  # fmt: skip


def _results() -> dict[str, Any]:
    html = lambda name: gr.HTML(elem_id=name, apply_default_css=False)  # noqa: E731
    with gr.Column(elem_id="advice-results", visible=False) as results:
        parts: dict[str, Any] = {
            "verdict": html("verdict"),
            "findings": html("findings"),
            "knobs": html("knobs"),
            "memory": html("memory"),
            "curve": gr.Plot(show_label=False, label="Speedup by block size", visible=False),
            "curve_text": html("curve-text"),
            "compared": html("compared"),
        }
        with gr.Row():
            parts["export_to"] = gr.Dropdown(
                list(FORMATS), value="vllm", label="Export for", scale=1
            )
            parts["download"] = gr.DownloadButton("Download", scale=0)
            parts["use"] = gr.Button("Use these in the playground", scale=1)
        # Plain and wrapped: Gradio's colours are too pale, and its box scrolls by mouse alone.
        parts["export"] = gr.Code(label="Export", interactive=False, wrap_lines=True)
        parts["export_notes"] = html("export-notes")
    return {**parts, "results": results}
