"""Captions, charts, what-if, cards and links say what the run's data says."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import captions, charts, view
from app.card import csv_of, html_card, summary, svg_card, takeaway
from app.finished import first_what_if
from app.form import PlaygroundForm
from app.formula import formula_block
from app.headline import headline
from app.race import race
from app.runs import Run
from app.share import MAX_PROMPT_CHARS, link_query, read_link
from app.whatif import best, cycle_cost, predictions
from dflash.metrics import median_interval
from dflash.schema import Chunk, EngineInfo, Finished, Prefilled, SpecStats, Trace

KNOWN = frozenset({"demo", "my own"})


@pytest.fixture
def make_run(counting_engine, ask):
    def build(*, prompt="count", block_size=8, num=64, stop_at=None, **engine_options) -> Run:
        engine = counting_engine(**engine_options)
        request = ask(prompt, block_size=block_size, num=num)
        lanes = ([], [])
        for item in race((engine, engine), request):
            lanes[item.lane].append(item.event)
        cut = slice(stop_at)
        left = Trace(ask(prompt, block_size=1, num=num), engine.info, tuple(lanes[0][cut]))
        return Run(
            "id1",
            "demo",
            left,
            Trace(request, engine.info, tuple(lanes[1][cut])),
            stopped=stop_at is not None,
            machine="a laptop",
            date="2026-12-01",
        )

    return build


def test_every_chart_has_a_figure_a_caption_and_a_table(make_run):
    for chart in charts.build_charts(make_run(), [1.5, 1.7]):
        assert chart.figure is not None and chart.caption.endswith((".", "?"))
        assert chart.rows and all(len(row) == len(chart.headers) for row in chart.rows)


def test_repeats_of_a_request_are_drawn_with_the_interval_of_their_median():
    speedups = [1.4, 1.5, 1.6, 1.5, 1.4]
    chart = charts.over_repeats(speedups)
    spread = median_interval(speedups, seed=0)
    band = chart.figure.layout.shapes[0]
    assert (band.y0, band.y1) == (spread.low, spread.high) and len(chart.rows) == 5
    assert "5 runs of this request: median 1.50×" in chart.caption
    assert "run it again" in charts.over_repeats([1.5]).caption
    assert charts.over_repeats([]).figure is None


def test_the_what_if_marks_a_recorded_run_as_recorded_and_has_a_table(make_run):
    shown = first_what_if(replace(make_run(), source="recorded"))
    assert [line.name for line in shown.figure.data] == ["modelled", "recorded"]
    assert "as a table" in shown.text and "to break even" in shown.text


def test_a_smaller_block_read_from_a_larger_one_is_called_an_upper_estimate(make_run):
    options = predictions(make_run(block_size=8))
    assert "upper estimate" in captions.what_if(options, 4)
    assert "upper estimate" not in captions.what_if(options, 8)


@pytest.mark.parametrize("stop_at", [0, 1, 2, 5])
@pytest.mark.parametrize("block_size", [1, 2, 16])
def test_a_run_cut_anywhere_is_still_drawn_and_worded(make_run, stop_at, block_size):
    run = make_run(stop_at=stop_at, block_size=block_size)
    assert all(chart.caption for chart in charts.build_charts(run))
    assert headline(run) and svg_card(run) and html_card(run) and first_what_if(run).text
    assert formula_block(run)


def test_a_server_that_reports_no_cycles_gets_a_reason_instead_of_a_drawing(ask):
    info = EngineInfo("llamacpp", "1", "t", "d", "server", "q4", "summary")
    spec = SpecStats(None, 80, 40, None, "reported")
    events = (Prefilled(0.1, 9, 1, "a"), Chunk(0.2, " b"), Finished(0.3, "stop", 12, spec))
    run = Run("x", "own", Trace(ask(block_size=1), info, events), Trace(ask(), info, events))
    drawn = {chart.title: chart for chart in charts.build_charts(run)}
    for title, reason in (
        ("Acceptance by position", "did not report acceptance"),
        ("Where blocks end", "not single cycles"),
        ("Time cycle by cycle", "not single cycles"),
    ):
        assert drawn[title].figure is None and reason in drawn[title].caption
    assert "50 % of drafts accepted" in headline(run) and "block 8" not in headline(run)
    assert headline(run) and svg_card(run) and summary(run)["tau"] is None
    handed_out = json.loads(takeaway(run, None))
    assert handed_out["csv"] is None and "no single cycles" in handed_out["no_csv"]
    assert "No single cycles" in html_card(run)


def test_no_label_lies_over_the_data_and_every_level_is_named_in_the_legend(make_run):
    levels = []
    for chart in charts.build_charts(make_run(), [1.5, 1.7]):
        assert not chart.figure.layout.annotations
        levels += [shape for shape in chart.figure.layout.shapes if shape.type == "line"]
    assert {"one AR step", "break-even"} < {level.name for level in levels}
    assert all(level.showlegend for level in levels)


def test_the_positions_caption_quotes_the_positions(make_run):
    run = make_run(pattern=(3, 3, 3, 3))
    assert captions.acceptance_positions(run).startswith("From position 4 on")
    easy = make_run(pattern=(7, 7, 7, 7))
    assert "easy to foresee" in captions.acceptance_positions(easy)
    hopeless = make_run(pattern=(0, 0, 0, 0))
    assert "Even the first guess" in captions.acceptance_positions(hopeless)


def test_more_than_tau_is_called_this_machines_noise(make_run):
    run = make_run()
    disturbed = replace(run, baseline=make_run(step_s=1.0).baseline)
    assert "Run it again." in headline(disturbed)
    assert "Run it again." not in headline(run)


def test_a_losing_case_is_said_to_lose(make_run):
    run = make_run(pattern=(0,))
    assert run.comparison.speedup < 1
    assert "not worth it" in headline(run) and "slower" in captions.speedup_so_far(run)
    assert best(predictions(run)).block_size == 1


def test_the_wasted_work_caption_counts_passes(make_run):
    run = make_run(pattern=(3,), num=65)
    passes = len(run.dflash.cycles)
    assert f"ran {passes} times for 64 tokens" in captions.wasted_work(run)


def test_the_prediction_at_the_runs_own_block_is_what_was_measured(make_run):
    run = make_run(pattern=(7, 2, 5), num=200)
    own = predictions(run)[-1]
    spec = run.comparison.dflash.spec
    assert own.tau == pytest.approx(spec.tau)
    assert own.speedup == pytest.approx(run.comparison.speedup, rel=0.05)


def test_a_smaller_block_is_predicted_from_the_same_positions(make_run):
    """With a constant verify cost the counting engine can really be run at the smaller block."""
    wide = make_run(pattern=(7,), block_size=8, num=240)
    for block_size in (2, 4, 6):
        really = make_run(pattern=(7,), block_size=block_size, num=240)
        predicted = predictions(wide)[block_size - 1]
        assert predicted.tau == pytest.approx(really.comparison.dflash.spec.tau, rel=0.05)
        assert predicted.speedup == pytest.approx(really.comparison.speedup, rel=0.05)


def test_a_cycle_cost_leaves_out_the_first_and_the_cut_cycle(make_run):
    cost = cycle_cost(make_run().dflash)
    assert (cost.draft_s, cost.verify_s) == (pytest.approx(0.004), pytest.approx(0.010))


def test_the_table_of_cycles_has_every_cycle_and_no_formula_cell(make_run):
    run = make_run()
    rows = list(csv.DictReader(io.StringIO(csv_of(run))))
    assert len(rows) == len(run.baseline.cycles) + len(run.dflash.cycles)
    assert not any(row["text"].startswith(("=", "+", "-", "@")) for row in rows)


def test_cards_are_self_contained_and_show_markup_as_text(make_run):
    run = make_run(prompt="<script>alert(1)</script> & \x00 \u2028 ]]>")
    tree = ElementTree.fromstring(svg_card(run))
    assert any("<script>" in (node.text or "") for node in tree.iter())
    page = html_card(run)
    assert "<script>" not in page and "http://www.w3.org/2000/svg" in page
    assert "href=" not in page and "src=" not in page


def test_a_summary_is_plain_json(make_run):
    row = json.loads(json.dumps(summary(make_run())))
    assert row["block"] == 8 and row["speedup"] > 1 and row["lossless"].startswith("identical")


def test_a_link_gives_the_form_back():
    form = PlaygroundForm(
        "demo", "", "", "a & b = <c>?\n€", 5, 33, 0.75, 9, 40, 0.95, True
    )  # fmt: skip
    fields = read_link(dict(parse_qsl(link_query(form))), known_pairs=KNOWN)
    assert PlaygroundForm(**{"target": "", "draft": "", **fields}) == form


def test_a_prompt_too_long_for_a_link_has_none():
    form = PlaygroundForm("demo", "", "", "x" * (MAX_PROMPT_CHARS + 1), 5, 3, 0, 0, 0, 1, False)
    assert link_query(form) is None


@given(
    st.dictionaries(st.sampled_from(["v", "pair", "p", "b", "n", "t", "s", "k", "tp"]), st.text())
)
def test_any_link_restores_what_it_can_and_never_raises(query):
    fields = read_link(query, known_pairs=KNOWN)
    assert fields.get("pair_id", "demo") in KNOWN
    assert 0 <= fields.get("temperature", 0) <= 100


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "unknown"), (0.0042, "4.2 ms"), (0.25, "250 ms"), (2.5, "2.5 s"), (125, "2 min 5 s")],
)
def test_durations_are_said_as_a_person_would(seconds, words):
    assert view.duration(seconds) == words


def test_units_are_right():
    assert view.rate(54.04) == "54.0 tok/s" and view.rate(1234.4) == "1,234 tok/s"
    assert view.factor(3.456) == "3.46×" and view.factor(12.34) == "12.3×"
    assert view.factor(None) == "–" and view.count(1, "token") == "1 token"
    assert view.parameters(134_515_008) == "135 M parameters"


def test_all_words_shown_are_escaped():
    nasty = '<b onclick="x">'
    for made in (
        view.status_line("bad", nasty, nasty),
        view.badge(nasty, nasty),
        view.table((nasty,), [(nasty,)], nasty),
        view.folded(nasty, ""),
        view.progress_line(nasty, 0.5, nasty),
    ):
        assert "<b" not in made.replace("<body", "")
