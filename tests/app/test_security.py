"""Whatever a model, a file, a config or a visitor says is shown as text; keys are never written."""

from __future__ import annotations

import html
import json
import logging
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from advisor import exports
from advisor.exports import FORMATS, yaml_file
from app import advice_view, share, view, wiring
from app.advice_form import AdviceForm, ask
from app.advice_wiring import advice_outputs
from app.card import csv_of, html_card, svg_card, takeaway
from app.charts import build_charts
from app.finished import finished_view, first_what_if, replay_text
from app.form import PlaygroundForm
from app.headline import headline
from app.microscope_view import microscope
from app.pair_card import pair_card
from app.race import LaneFailed, in_slices, race
from app.recorder import Recorder
from app.runs import MAX_FILE_BYTES, Run, dump_run, load_run, read_limited
from app.session import PairChoice
from dflash.close_look import Candidate, Divergence
from dflash.engines import open_engine
from dflash.errors import DFlashError, TraceError
from dflash.schema import EngineInfo, Message, Request, SamplingParams

EVIL = "<img src=x onerror=alert(1)>\"'><script>alert(2)</script>&lt;b&gt;"
APP = Path(__file__).resolve().parents[2] / "app"
KEY = "key-that-nobody-may-see-0123456789"


class Markup(HTMLParser):
    """Remembers what a browser would take for an element or an event handler."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("img", "script", "iframe", "object"):
            self.bad.append(tag)
        for name, value in attrs:
            leads_away = name in ("href", "src") and not (value or "").startswith("https://")
            if name.startswith("on") or leads_away:
                self.bad.append(f"{tag} {name}={value}")


def elements_of(text: str) -> list[str]:
    parser = Markup()
    parser.feed(text)
    parser.close()
    return parser.bad


@pytest.fixture(scope="module")
def evil_engine(counting_engine):
    """Makes an engine that writes markup, and is called markup too."""

    class EvilEngine(counting_engine):
        info = EngineInfo(EVIL, EVIL, EVIL, EVIL, EVIL, EVIL, "cycles")

        def _piece(self, index: int) -> str:
            return EVIL

        def decode(self, ids: list[int]) -> str:
            return EVIL

    return lambda **options: EvilEngine(info=EvilEngine.info, **options)


@pytest.fixture(scope="module")
def run(evil_engine) -> Run:
    """A run in which every text that can come from outside is markup."""
    engine = evil_engine(differs_at=20)
    request = Request((Message("user", EVIL),), SamplingParams(max_new_tokens=40), 8)
    recorder = Recorder(PairChoice(EVIL), (engine, engine), request, EVIL, kind=EVIL)
    for batch in in_slices(race((engine, engine), request)):
        recorder.add(batch)
    for token_id in range(60):
        recorder.words[token_id] = EVIL
    whole = recorder.run(stopped=False)
    return replace(whole, versions={EVIL: EVIL}, date=EVIL)


def test_markup_checker_sees_what_it_should():
    assert elements_of(EVIL) != []
    assert elements_of(html.escape(EVIL)) == []


def test_every_part_of_a_finished_run_shows_markup_as_text(run):
    for shown_run in (
        run,
        replace(run, source="recorded"),
        replace(run, stopped=True),
        replace(run, failures={0: EVIL, 1: EVIL}),
        load_run(dump_run(replace(run, date="", versions={})), source="opened"),
    ):
        shown = finished_view(
            shown_run, replay_text(shown_run), what_if=first_what_if(shown_run), link_query=None
        )
        parts = [
            shown.status, shown.headline, shown.formula, shown.pair_card, shown.what_if.text,
            headline(shown_run),
        ]  # fmt: skip
        for part in parts:
            assert elements_of(part or "") == []
        for output in wiring.race_outputs(shown):
            if isinstance(output, str) and output.startswith("<"):
                assert elements_of(output) == []


def test_chart_labels_never_carry_text_from_outside(run):
    charts = build_charts(run)
    assert any(chart.figure for chart in charts)
    for chart in charts:
        if chart.figure is not None:
            assert (
                "<img" not in chart.figure.to_json() and "\\u003cimg" not in chart.figure.to_json()
            )
        assert elements_of(f"<p>{html.escape(chart.caption)}</p>{wiring.chart_table(chart)}") == []


def test_the_result_card_shows_markup_as_text_and_is_whole_xml(run):
    assert elements_of(html_card(run)) == []
    drawn = ElementTree.fromstring(svg_card(run))
    names = {element.tag.rpartition("}")[2] for element in drawn.iter()}
    assert names <= {"svg", "rect", "text", "g"}
    assert "alert(1)" in html_card(run)  # shown, not dropped


def test_what_the_browser_draws_by_itself_is_never_parsed_as_markup(run):
    """The stage and the tables get strings; the scripts put them in through textContent only."""
    for line in replay_text(run).splitlines():
        json.loads(line)
    for script in APP.glob("*.js"):
        text = script.read_text(encoding="utf-8")
        found = re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
        assert found is None, f"{script.name} uses {found and found.group()}"


def test_a_file_name_from_a_run_cannot_leave_the_download_folder(run):
    name = json.loads(takeaway(replace(run, pair_id="../../x"), None))["name"]
    assert "/" not in name and "\\" not in name


def test_formulas_in_a_models_words_stay_text_in_a_spreadsheet(run):
    for text in ("=HYPERLINK(1)", "+1", "-1", "@x", "\t=1"):
        trace = run.dflash
        cycle = replace(trace.cycles[0], pieces=(text,), emitted_ids=(1,))
        events = (trace.events[0], cycle)
        row = csv_of(replace(run, dflash=replace(trace, events=events))).splitlines()[-1]
        assert not row.rsplit(",", 1)[1].strip('"').startswith(("=", "+", "-", "@", "\t"))


def test_the_microscope_shows_markup_as_text(run):
    ids = tuple(Candidate(i, 1.0 - i, 0.5) for i in range(5))
    assert elements_of(microscope(run, Divergence(19, 1, 2, ids, ids))) == []


def test_status_tables_and_cards_escape_what_they_are_given(evil_engine):
    shown = [
        view.status_line("bad", EVIL, EVIL),
        view.progress_line(EVIL, 0.5),
        view.table((EVIL,), [(EVIL,)], EVIL),
        view.folded(EVIL, ""),
        view.badge(EVIL, EVIL),
        advice_view.links(f"https://{EVIL} {EVIL} https://a.b/{EVIL}"),
        pair_card("demo", evil_engine()),
    ]
    assert [elements_of(part) for part in shown] == [[]] * len(shown)


def test_an_error_toast_shows_markup_as_text():
    """Gradio draws a toast's message as markup."""
    assert elements_of(wiring.shown(DFlashError(EVIL, EVIL)).message) == []


@pytest.mark.parametrize(
    "field", ["_name_or_path", "model_type", "architectures", "layer_types", "torch_dtype"]
)
def test_what_a_config_says_is_text_in_the_advice_and_quoted_in_every_export(field):
    config = {
        "architectures": ["DFlashDraftModel"], "block_size": 16, "num_hidden_layers": 5,
        "hidden_size": 64, "vocab_size": 1000,
        "dflash_config": {"mask_token_id": 9, "target_layer_ids": [1, 2]},
    }  # fmt: skip
    config[field] = [EVIL] if field in ("architectures", "layer_types") else EVIL
    try:
        answer = ask(AdviceForm(pasted_draft=json.dumps(config), target="qwen3-8b"))
    except DFlashError as error:
        assert elements_of(wiring.shown(error).message) == []
        return
    for part in advice_outputs(answer, "vllm")[1:8]:
        if isinstance(part, str):
            assert elements_of(part) == []
    for name in FORMATS:
        try:
            written = exports.render(answer, name)
        except DFlashError:
            continue
        assert elements_of("".join(f"<li>{html.escape(n)}</li>" for n in written.notes)) == []
        assert "/" not in written.filename


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\0", b"{" * 100_000, b"[" * 100_000, b'{"format": "dflash-race", "version": NaN}', b"null"],
)  # fmt: skip
def test_an_upload_is_read_as_data_or_refused_in_a_sentence(tmp_path, content):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(TraceError):
        load_run(read_limited(path), source="opened")


def test_an_upload_that_is_too_large_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "run.json"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(TraceError, match="at most 20 MB"):
        read_limited(path)


@pytest.mark.parametrize(
    "text",
    ["!!python/object/apply:os.system ['true']", "a: &a [*a]", "a: &x [1]\nb: *x\nc: [*x, *x]"],
)
def test_yaml_builds_plain_values_only(text):
    with pytest.raises(DFlashError):
        yaml_file.parse(text, name="upload.yaml")


def served(handler) -> httpx.MockTransport:
    return httpx.MockTransport(handler)


def test_a_servers_key_is_in_no_log_trace_link_error_or_export(caplog):
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == f"Bearer {KEY}"
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "tiny"}]})
        if request.url.path == "/v1/chat/completions":
            events = [
                {"choices": [{"delta": {"content": "hi"}}]},
                {"choices": [{"delta": {}, "finish_reason": "stop"}]},
                {"choices": [], "usage": {"completion_tokens": 1, "prompt_tokens": 2}},
            ]
            lines = "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"
            return httpx.Response(200, content=lines.encode())
        return httpx.Response(404, json={"detail": "no"})

    with caplog.at_level(logging.DEBUG):
        engine = open_engine(
            "vllm", base_url="http://a.test:8000", baseline_url="http://a.test:8000", api_key=KEY,
            make_transport=lambda: served(handler),
        )  # fmt: skip
        request = Request((Message("user", "x"),), SamplingParams(max_new_tokens=4), 8)
        recorder = Recorder(PairChoice("served"), (engine, engine), request, "here")
        for batch in in_slices(race((engine, engine), request)):
            recorder.add(batch)
        recorder.add([LaneFailed(0, "broke")])
    run = recorder.run(stopped=False)
    form = PlaygroundForm.of_run(request, PairChoice("served"))
    written = [
        dump_run(run),
        html_card(run),
        takeaway(run, None),
        share.link_query(form),
        repr(engine.info),
    ]
    written += [caplog.text, repr(engine)]
    assert all(KEY not in text for text in written)


def test_a_link_never_carries_what_the_form_does_not_show():
    assert set(share._KEYS) == set(PlaygroundForm.__slots__)
