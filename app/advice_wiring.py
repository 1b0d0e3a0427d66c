"""The Advisor tab's events: which question fills which outputs. Knows Gradio and the advisor."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from advisor import exports
from advisor.catalog import load_hardware
from advisor.exports import yaml_file
from advisor.schema import Recommendation
from app import advice_view, wiring
from app.advice_beside import advice_for
from app.advice_form import AdviceForm, ask
from app.charts import chart_table
from app.charts_advice import speedup_curve
from app.form import OWN_PAIR
from app.hand_out import hand_out
from app.hosted import HOME, Limits
from app.runs import read_limited
from app.session import EnginePool, PairChoice
from app.tabs.advisor import Advisor
from app.tabs.playground import Playground
from dflash.device import detect
from dflash.errors import DFlashError
from dflash.whole_file import write_whole

_PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
_REFUSING: dict[str, Any] = {**_PRIVATE, **wiring.MAY_REFUSE}
_QUICK: dict[str, Any] = {**_PRIVATE, "queue": False}


def wire_advisor(tab: Advisor, block: gr.Slider, tabs: gr.Tabs, limits: Limits = HOME) -> None:
    """Connect the tab; ``block`` is the playground's slider that an answer can set."""

    def on_advise(export_to: str, *values: Any) -> list[Any]:
        form = AdviceForm(*values)
        return _guarded(lambda: advice_outputs(ask(limits.check_advice(form)), export_to))

    def on_against(export_to: str, *values: Any) -> list[Any]:
        form = AdviceForm(*values)

        def both() -> list[Any]:
            limits.check_advice(form)
            evidence = ask(form.with_policy("evidence"))
            guide = ask(form.with_policy("guide"))
            return advice_outputs(evidence, export_to, advice_view.against(evidence, guide))

        return _guarded(both)

    def on_upload(path: str) -> str:
        return _guarded(lambda: read_limited(Path(path)))

    def on_open(path: str, export_to: str) -> list[Any]:
        text = _guarded(lambda: read_limited(Path(path)))
        name = Path(path).name
        return _guarded(lambda: advice_outputs(yaml_file.parse(text, name=name), export_to))

    def on_export(answer: Recommendation | None, export_to: str) -> list[Any]:
        return [gr.skip()] * 3 if answer is None else export_outputs(answer, export_to)

    def on_use(answer: Recommendation | None) -> list[Any]:
        value = answer.knobs["block_size"].value if answer else None
        if value is None:
            raise gr.Error("There is no advised block size yet; press Advise.")
        return [gr.update(value=value), gr.update(selected="playground")]

    shown = [*tab.outputs, tab.results]
    gr.on([tab.advise.click], on_advise, [tab.export_to, *tab.form], shown, **_REFUSING)
    tab.against.click(on_against, [tab.export_to, *tab.form], shown, **_REFUSING)
    tab.upload.upload(on_upload, tab.upload, tab.pasted, **_REFUSING)
    tab.open_file.upload(on_open, [tab.open_file, tab.export_to], shown, **_REFUSING)
    tab.export_to.input(
        on_export, [tab.answer, tab.export_to], [tab.export, tab.export_notes, tab.download],
        **_QUICK,
    )  # fmt: skip
    tab.use.click(on_use, tab.answer, [block, tabs], **_REFUSING)


def wire_beside(demo: gr.Blocks, page: Playground, pool: EnginePool, limits: Limits = HOME) -> None:
    """Keep the advice beside the playground's slider true to the pair and the prompt as typed."""
    inputs = [page.pair, page.target, page.draft, page.prompt]

    def on_change(pair_id: str, target: str, draft: str, prompt: str) -> list[str]:
        choice = PairChoice(pair_id, *((target, draft) if pair_id == OWN_PAIR else ()))
        try:
            limits.check_choice(choice)
            answer = advice_for(pool, choice, prompt)
        except DFlashError as error:
            return ["", f'<p class="advice">No advice: {escape(str(error))}</p>']
        return [advice_view.block_marks(answer), advice_view.advice_line(answer)]

    def on_use(pair_id: str, target: str, draft: str, prompt: str) -> Any:
        choice = PairChoice(pair_id, *((target, draft) if pair_id == OWN_PAIR else ()))
        _guarded(lambda: limits.check_choice(choice))
        value = _guarded(lambda: advice_for(pool, choice, prompt).knobs["block_size"].value)
        return gr.skip() if value is None else gr.update(value=value)

    gr.on(
        [demo.load, page.pair.change, page.prompt.change, page.draft.change, page.run.click],
        on_change, inputs, [page.marks, page.advice], trigger_mode="always_last", **_QUICK,
    )  # fmt: skip
    page.use_advice.click(on_use, inputs, page.block, **_REFUSING)


def advice_outputs(answer: Recommendation, export_to: str, compared: str = "") -> list[Any]:
    """Every output of the tab, in the order of ``Advisor.outputs``, then the group itself."""
    chart = speedup_curve(answer)
    return [
        answer,
        advice_view.verdict(answer),
        advice_view.findings(answer.findings),
        advice_view.knobs(answer) + advice_view.training(answer),
        advice_view.memory(answer, _memory_bytes(answer)),
        gr.update(value=chart.figure, visible=chart.figure is not None),
        f'<p class="caption">{escape(chart.caption)}</p>{chart_table(chart)}',
        compared,
        *export_outputs(answer, export_to),
        gr.update(visible=True),
    ]


def export_outputs(answer: Recommendation, export_to: str) -> list[Any]:
    """Text, what it cannot honestly say, and the file to download."""
    try:
        export = exports.render(answer, export_to)
        path = hand_out(export.filename, lambda path: write_whole(path, export.text))
    except DFlashError as error:
        return ["", f'<p class="hint">{escape(str(error))}</p>', gr.update(value=None)]
    notes = "".join(f"<li>{escape(note)}</li>" for note in export.notes)
    return [export.text, f"<ul>{notes}</ul>" if notes else "", gr.update(value=path)]


def _memory_bytes(answer: Recommendation) -> int | None:
    """The chosen machine's memory, if a machine was chosen."""
    chosen = answer.inputs.get("hardware")
    if not chosen:
        return None
    return detect().memory_bytes if chosen == "auto" else load_hardware(chosen).memory_bytes


def _guarded(work: Callable[[], Any]) -> Any:
    """Turn a sentence for the user into the page's error."""
    try:
        return work()
    except DFlashError as error:
        raise wiring.shown(error) from error
