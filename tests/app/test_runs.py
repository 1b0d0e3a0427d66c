"""A race as a file: written, read back, and refused when it is not one."""

from __future__ import annotations

import json

import pytest

from app.handlers import replay_text
from app.race import race
from app.runs import Run, dump_run, load_run, trace_text
from dflash.errors import TraceError
from dflash.schema import Trace


@pytest.fixture
def run(counting_engine, ask):
    engine = counting_engine(differs_at=40)
    lanes = ([], [])
    for item in race((engine, engine), ask()):
        lanes[item.lane].append(item.event)
    return Run(
        "id1",
        "demo",
        Trace(ask(block_size=1), engine.info, tuple(lanes[0])),
        Trace(ask(), engine.info, tuple(lanes[1])),
        words={9000: " <b>x</b>", 3: "\n"},
        failures={1: "the server went away."},
        machine="a laptop",
        date="2026-12-01",
        versions={"torch": "2.13"},
    )


def test_a_run_read_back_equals_the_one_written(run):
    assert load_run(dump_run(run), source="measured here") == run
    assert load_run(dump_run(run), source="opened").source == "opened"


def test_a_run_read_back_replays_as_the_same_lines(run):
    again = load_run(dump_run(run), source="measured here")
    assert replay_text(again) == replay_text(run)


def test_the_text_of_a_trace_is_its_pieces_in_order(run):
    assert trace_text(run.baseline).startswith(" t1 t2 t3")
    assert trace_text(run.baseline) == trace_text(run.dflash)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda d: d.update(format="other"), "not a saved race"),
        (lambda d: d.update(version=7), "version 7"),
        (lambda d: d.update(version="\n" + "x" * 5000), "version '"),
        (lambda d: d.update(words={"-3": "x"}), "token id"),
        (lambda d: d.update(words=[1]), "words"),
        (lambda d: d.update(failures={"5": "x"}), "lane"),
        (lambda d: d.update(machine=5), "short text"),
        (lambda d: d["dflash"]["events"].append({"type": "bang"}), "bang"),
        (lambda d: d.pop("baseline"), "recorded run"),
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(run, change, named):
    data = json.loads(dump_run(run))
    change(data)
    with pytest.raises(TraceError, match=named) as caught:
        load_run(json.dumps(data), source="opened")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "NaN", "[" * 100_000, '{"format": NaN}'])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(TraceError):
        load_run(text, source="opened")
