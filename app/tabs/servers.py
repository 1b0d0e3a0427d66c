"""The part of the Playground tab that names model servers: layout only."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from app.hosted import Limits
from app.served import HERE, KINDS, SERVED

# A key is asked for at every visit: a browser is not to offer to keep it.
_KEY = gr.InputHTMLAttributes(autocomplete="new-password", spellcheck=False)
_PLAIN = gr.InputHTMLAttributes(autocomplete="off", autocapitalize="off", spellcheck=False)


@dataclass(frozen=True, slots=True)
class Servers:
    """Which engine, and the servers if it is one."""

    engine: gr.Radio
    part: gr.Group
    kind: gr.Radio
    url: gr.Textbox
    baseline_url: gr.Textbox
    model: gr.Textbox
    api_key: gr.Textbox
    baseline_api_key: gr.Textbox
    ask: gr.Button

    @property
    def form(self) -> list[gr.components.Component]:
        """Inputs in the order of ``ServerForm``."""
        return [
            self.engine, self.kind, self.url, self.baseline_url, self.model, self.api_key,
            self.baseline_api_key,
        ]  # fmt: skip


def build_engine(limits: Limits) -> gr.Radio:
    """The choice of this machine or servers; not shown where no server may be named."""
    # A column of its own: beside another field Gradio would draw one box around both.
    with gr.Column(scale=0, min_width=250, visible=limits.offers_servers):
        return gr.Radio([HERE, SERVED], value=HERE, label="Engine", elem_id="engine")


def build_servers(engine: gr.Radio, limits: Limits) -> Servers:
    """The fields that name two servers; hidden until they are chosen."""
    where = (
        f"this page connects to {', '.join(sorted(limits.servers))} only"
        if limits.is_hosted
        else "as vLLM, SGLang or llama-server prints it when it starts"
    )
    with gr.Group(visible=False) as part:
        with gr.Row():
            kind = gr.Radio(list(KINDS), value=KINDS[0][1], label="Kind of server", min_width=220)
            model = gr.Textbox(
                label="Model name",
                info="empty: the first one that each server lists",
                html_attributes=_PLAIN,
                min_width=220,
            )
        with gr.Row():
            url = gr.Textbox(
                label="DFlash server: URL",
                info=where,
                placeholder="http://127.0.0.1:8001",
                html_attributes=_PLAIN,
                min_width=220,
            )
            baseline_url = gr.Textbox(
                label="The same target without a draft: URL",
                info="may be empty for older builds of llama.cpp, which draft or not per request",
                placeholder="http://127.0.0.1:8000",
                html_attributes=_PLAIN,
                min_width=220,
            )
        with gr.Accordion("keys, if the servers ask for one", open=False), gr.Row():
            api_key = _key("Key of the DFlash server")
            baseline_api_key = _key("Key of the other server")
    with gr.Row():
        ask = gr.Button(
            "Ask the servers: do they speculate?",
            size="sm",
            scale=0,
            min_width=280,
            visible=False,
            elem_id="ask-servers",
        )
    return Servers(
        engine=engine,
        part=part,
        kind=kind,
        url=url,
        baseline_url=baseline_url,
        model=model,
        api_key=api_key,
        baseline_api_key=baseline_api_key,
        ask=ask,
    )


def _key(label: str) -> gr.Textbox:
    return gr.Textbox(
        label=label,
        info="sent to that server only; kept nowhere",
        type="password",
        html_attributes=_KEY,
        min_width=220,
    )
