"""Captions, charts, what-if, cards and links say what the run's data says."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import captions, charts, view
from app.card import csv_of, html_card, summary, svg_card, takeaway
from app.finished import finished_view, first_what_if, what_if_view
from app.form import PlaygroundForm
from app.formula import formula_block
from app.headline import headline, stage_end
from app.microscope_view import no_difference
from app.race import BASELINE, DFLASH, race
from app.runs import Run
from app.share import MAX_PROMPT_CHARS, link_query, read_link
from app.whatif import best, cycle_cost, predictions
from dflash.metrics import median_interval
from dflash.schema import Chunk, EngineInfo, Finished, Prefilled, SpecStats, Trace

KNOWN = frozenset({"demo", "my own"})
COUNTING = {
    "block size", "cycle", "cycles", "drafted tokens", "drafts accepted", "position", "tokens",
    "drafts accepted in one cycle", "position in the block", "run of this very request",
    "tokens of the answer",
}  # fmt: skip


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


def test_an_axis_that_counts_has_no_tick_at_a_half(make_run):
    run = make_run(num=9, block_size=4)
    figures = [chart.figure for chart in charts.build_charts(run, [1.5, 1.7])]
    axes = [
        axis
        for figure in [*figures, first_what_if(run).figure]
        for axis in (figure.layout.xaxis, figure.layout.yaxis)
        if axis.title.text in COUNTING
    ]
    assert {axis.title.text for axis in axes} == COUNTING
    assert all(axis.dtick == 1 for axis in axes)


@pytest.mark.parametrize("num", [2, 5, 9])
def test_no_drawing_is_said_to_be_impossible(make_run, num):
    for chart in charts.build_charts(make_run(num=num), [1.5]):
        assert chart.figure is None or "to draw" not in chart.caption


def test_the_parts_of_a_cycle_are_named_in_the_order_of_their_time(make_run):
    for chart in (charts.cycle_time(make_run()), charts.waterfall(make_run())):
        assert [bar.name.split()[0] for bar in chart.figure.data] == ["draft", "verify", "other"]
        assert chart.figure.layout.legend.traceorder == "normal"


@pytest.mark.parametrize(("lane", "other"), [(BASELINE, "DFlash"), (DFLASH, "Autoregressive")])
def test_a_lane_that_failed_has_no_number_and_nothing_is_held_against_it(make_run, lane, other):
    run = replace(make_run(), failures={lane: "the lane broke."})
    end, drawn = stage_end(run), {c.title: c for c in charts.build_charts(run)}
    said = [headline(run, median_interval([2.0, 2.5], seed=0)), end.say, end.aloud]
    said += [svg_card(run), html_card(run), first_what_if(run).text]
    said += [chart.caption for chart in drawn.values()]
    assert not any("×" in text or "✓" in text or "identical" in text for text in said)
    assert "not compared" in said[0] and "lane failed" in end.say
    for title in ("Speedup as the answer grows", "Time of one cycle", "Time cycle by cycle"):
        assert drawn[title].figure is None and "lane failed" in drawn[title].caption
    figure = drawn["Tokens over time"].figure
    assert [line.name for line in figure.data] == [other] and figure.layout.showlegend
    row, rates = summary(run), ("baseline_tps", "dflash_tps")
    assert row["speedup"] is None and row["end_to_end"] is None
    assert row[rates[lane]] == "failed" and row[rates[1 - lane]] > 1
    assert said[0].count("failed") >= 2 and "failed" in svg_card(run)
    assert "<b>" not in formula_block(run) and first_what_if(run).figure is None
    assert ("baseline" if lane == BASELINE else "dflash") not in csv_of(run)


def test_nothing_compared_is_neither_ticked_nor_called_the_same(make_run, ask):
    info = EngineInfo("vllm", "1", "t", None, "server", "bf16", "summary")
    events = (Chunk(0.1, "", 20), Chunk(0.2, "", 40), Finished(0.2, "stop", 40, None))
    silent = Run("x", "own", Trace(ask(block_size=1), info, events), Trace(ask(), info, events))
    for run in (silent, make_run(stop_at=0)):
        assert "nothing to compare" in headline(run) and "✓" not in headline(run)
        assert "the same" not in no_difference(run)
    status = finished_view(silent, "", what_if=first_what_if(silent)).status
    assert "nothing to compare" in status and "same text" not in status
    assert "✓" in headline(make_run()) and "✓" in headline(make_run(stop_at=5))


def test_a_server_that_counts_at_its_end_only_is_not_said_to_have_written_nothing(ask):
    info = EngineInfo("llamacpp", "1", "t", None, "server", "q4", "summary")
    lanes = [
        Trace(ask(block_size=b), info, (Chunk(0.1, "a"), Finished(end_s, "stop", 40, None)))
        for b, end_s in ((1, 0.9), (8, 0.3))
    ]
    assert "0 tokens" not in captions.tokens_over_time(Run("x", "own", *lanes))


def held_up(run: Run, speedup: float) -> Run:
    """The run with its DFlash lane held up once, for as long as it takes to this speedup."""
    now = run.comparison
    by_s = now.baseline.decode_s / speedup - now.dflash.decode_s
    first, *later = run.dflash.events
    moved = (replace(event, t_s=event.t_s + by_s) for event in later)
    return replace(run, dflash=replace(run.dflash, events=(first, *moved)))


@pytest.mark.parametrize("speedup", [0.3, 0.9, 0.98, 0.994])
@pytest.mark.parametrize("pattern", [(3, 0, 7, 2), (1, 0)])
def test_what_a_losing_run_needs_is_always_more_than_what_it_got(make_run, speedup, pattern):
    run = held_up(make_run(pattern=pattern), speedup)
    found = re.search(r"yielded ([\d.]+) tokens on average. It would need (.+?)\.<", headline(run))
    yielded, needed = found.groups()
    assert needed == "a little more" or float(needed) > float(yielded)
    for modelled in (captions.cycle_time(run), what_if_view(run, 8, measured={}).text):
        assert f"The whole race gave {view.factor(speedup)}" in modelled


@pytest.mark.parametrize("speedup", [0.996, 1.004])
def test_a_run_as_fast_as_one_at_a_time_is_called_neither_worth_it_nor_not(make_run, speedup):
    said = headline(held_up(make_run(), speedup))
    assert "gains nothing" in said and "not worth it" not in said and "losing" not in said


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
