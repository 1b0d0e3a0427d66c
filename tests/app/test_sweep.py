"""The Benchmark tab's sweep, on a scripted engine: order, figures, stop, refusals."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from app.charts_sweep import heat_map
from app.runs import Run
from app.session import EnginePool
from app.sweep import SweepForm, foretold, results_table, sweep
from app.sweep_wiring import sweep_outputs
from dflash.errors import DFlashError
from dflash.schema import (
    Cycle,
    EngineInfo,
    Finished,
    Message,
    Prefilled,
    Request,
    SamplingParams,
    Trace,
)


class ScriptedEngine:
    """Answers in 12 tokens; a cycle of block B costs 1 + B/10 and keeps half of its drafts."""

    trained_block_size = 8
    info = EngineInfo("torch", "test", "target", "draft", "cpu", "float32", "cycles")

    def stream(self, request):
        yield Prefilled(1.0, 4, 1, "a")
        left, t, block = 11, 1.0, request.block_size
        while left:
            kept = min(block // 2 if block > 1 else 0, left - 1)
            cost = 1.0 if block == 1 else 1 + block / 10
            t, left = t + cost, left - kept - 1
            ids = tuple(range(kept + 1))
            yield Cycle(t, tuple(range(block - 1)), kept, 0, ids, cost / 4, cost, ("b",) * len(ids))
        yield Finished(t, "length", 12, None)

    def close(self):
        pass


@pytest.fixture
def pool():
    return EnginePool(lambda choice, report: ScriptedEngine())


def form(**changes):
    fields = {
        "pair_id": "demo",
        "prompt_sets": ["code", "chat"],
        "block_sizes": [2, 8],
        "prompts_per_set": 2,
        "repeats": 2,
        "max_new_tokens": 12,
    }
    return SweepForm(**(fields | changes))


def test_a_sweep_measures_every_cell_and_frees_the_device(pool):
    states = list(sweep(pool, form(), lambda: False))
    last = states[-1]
    assert last.finished
    assert len(last.runs) == 3 * 4 * 2
    assert [b.block_size for b in last.blocks] == [2, 8]
    assert last.blocks[1].by_category["code"].decode_speedup.median > 1.5
    assert not pool.device.locked()
    assert any("left" in s.text for s in states)


def test_a_finished_sweep_is_handed_out_as_one_row_per_run(pool):
    *_, last = sweep(pool, form(), lambda: False)
    _, _, _, _, download, *_ = sweep_outputs(last)
    rows = Path(download["value"]).read_text(encoding="utf-8").splitlines()
    assert download["visible"] and len(rows) == 1 + len(last.runs) > 1


def test_the_table_puts_the_losing_cells_first_and_the_heat_map_counts_them(pool):
    last = list(sweep(pool, form(), lambda: False))[-1]
    table = results_table(last.blocks)
    assert table.index("<td>2</td>") < table.index("<td>8</td>")
    assert "2.04×" in table
    chart = heat_map(last.blocks)
    assert "0 of 4 cells are slower" in chart.caption


def test_stopping_keeps_what_was_measured_and_says_so(pool):
    stop = threading.Event()
    states = []
    for state in sweep(pool, form(), stop.is_set):
        states.append(state)
        if state.runs:
            stop.set()
    assert states[-1].text.startswith("stopped after")
    assert 0 < len(states[-1].runs) < 24
    assert not pool.device.locked()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt_sets": []}, "no kind of prompt"),
        ({"block_sizes": [16]}, "2 to 8"),
        ({"block_sizes": []}, "2 to 8"),
        ({"repeats": 100}, "at most 600"),
    ],
)
def test_a_sweep_that_cannot_be_made_is_refused_in_words(pool, changes, words):
    with pytest.raises(DFlashError, match=words):
        list(sweep(pool, form(**changes), lambda: False))
    assert not pool.device.locked()


def raced(pair_id: str = "demo", source: str = "measured here") -> Run:
    """A race of the scripted engine: 12 s on the plain lane, 6.4 s at block 8."""
    request = Request((Message("user", "x"),), SamplingParams(max_new_tokens=12), 8)
    requests = (replace(request, block_size=1), request)
    engine = ScriptedEngine()
    traces = [Trace(one, engine.info, tuple(engine.stream(one))) for one in requests]
    return Run("id", pair_id, *traces, source=source)


def test_how_long_a_sweep_takes_is_told_before_it_starts():
    """4 prompts x 2 repeats x (12 s plain + two blocks of 6.4 s each)."""
    said = foretold(form(), raced())
    assert "4 prompts × 3 arms (block 1 included) × 2 repeats = 24 runs" in said
    assert "about 3 min 18 s at most" in said


FAILED = replace(raced(), failures={0: "the lane broke."})


@pytest.mark.parametrize("last", [None, raced("other"), raced(source="recorded"), FAILED])
def test_no_time_is_told_without_a_race_of_this_pair_here(last):
    assert "known once this pair has raced" in foretold(form(), last)


def test_a_heat_map_turns_its_colour_at_one(pool):
    drawn = heat_map(list(sweep(pool, form(), lambda: False))[-1].blocks).figure
    figure = drawn.data[0]
    assert drawn.layout.xaxis.type == "category", "there is nothing between two block sizes"
    turn = figure.colorscale[1][0]
    assert figure.zmin + turn * (figure.zmax - figure.zmin) == pytest.approx(1)
