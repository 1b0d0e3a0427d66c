"""Recorded runs survive a round trip, and nothing else is taken for one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash.errors import TraceError
from dflash.metrics import run_stats
from dflash.schema import (
    Chunk,
    Cycle,
    EngineInfo,
    Finished,
    Message,
    Prefilled,
    Request,
    SamplingParams,
    SpecStats,
    Trace,
)
from dflash.trace_file import parse_json, read_trace, trace_from_dict, trace_to_dict, write_trace

ENGINE = EngineInfo("torch", "0.1", "demo", None, "cpu", "float32", "cycles")
TRACE = Trace(
    Request(
        (Message("system", "be kind"), Message("user", "añ\u2028<b>")), SamplingParams(seed=3), 4
    ),
    ENGINE,
    (
        Prefilled(0.5, 7, 11, "A"),
        Cycle(0.6, (1, 2, 3), 2, 9, (1, 2, 9), 0.04, 0.05, ("a", "", "ü"), (1, 2, 9, 4)),
        Cycle(0.7, (1, 2, 3), 0, 5, (5,), 0.04, 0.05),
        Finished(0.7, "stop", 5, SpecStats(2, 6, 2, (1, 0, 1, 0), "observed"), 123),
    ),
)
SERVER_TRACE = Trace(
    Request((Message("user", "hi"),)),
    ENGINE,
    (Chunk(0.1, "he"), Chunk(0.2, "llo"), Finished(0.3, "length", None, None)),
)


def changed(**places: object) -> dict:
    """The JSON form of TRACE with dotted places replaced ('events.1.num_accepted')."""
    data = json.loads(json.dumps(trace_to_dict(TRACE)))
    for place, value in places.items():
        *parents, last = place.split("__")
        node = data
        for part in parents:
            node = node[int(part) if isinstance(node, list) else part]
        node[int(last) if isinstance(node, list) else last] = value
    return data


@pytest.mark.parametrize("trace", [TRACE, SERVER_TRACE], ids=["cycles", "chunks"])
def test_a_trace_comes_back_equal_through_a_file(trace: Trace, tmp_path: Path) -> None:
    write_trace(tmp_path / "run.json", trace)
    again = read_trace(tmp_path / "run.json")
    assert again == trace
    assert run_stats(again) == run_stats(trace)
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ({"format": "other"}, "not a recorded run"),
        ({"version": 2}, "version 2"),
        ({"speed": 3}, "unknown key 'speed'"),
        ({"events": 5}, "events must be a list"),
        ({"events__1__type": "cicle"}, "events[1]: the type is 'cicle'"),
        ({"events__1__num_acepted": 1}, "did you mean 'num_accepted'"),
        ({"events__1__num_accepted": 4}, "4, of 3 drafts"),
        ({"request__block_size": 3}, "too many for block 3"),
        ({"events__1__num_accepted": True}, "not of type int"),
        ({"events__1__draft_ids": "123"}, "not a list"),
        ({"events__1__t_s": 0.1}, "before the event in front"),
        ({"events__1__draft_s": -1.0}, "negative duration"),
        ({"events__1__emitted_ids": [1, 2, 3, 4]}, "emits 4 tokens"),
        ({"events__3__finish_reason": "tired"}, "not one of stop, length"),
        ({"events__0__t_s": float("inf")}, "no usable number"),
        ({"request__block_size": 0}, "block_size must be at least 1"),
        ({"request__messages": []}, "the prompt is empty"),
        ({"engine": None}, "the run.engine is None"),
        ({"events__0__t_s": 10**400}, "no usable number"),
        ({"events__1__draft_ids": [10**400]}, "no usable number"),
        ({"request__block_size": 2**40}, "is more than the 4096 of any run"),
        ({"version": "x" * 5000}, "version 'xxx"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_the_place(places: dict, words: str) -> None:
    with pytest.raises(TraceError) as caught:
        trace_from_dict(changed(**places))
    assert words in str(caught.value) and len(str(caught.value)) < 300


def test_a_missing_key_and_events_out_of_order_are_refused() -> None:
    data = changed()
    del data["events"][1]["bonus_id"]
    with pytest.raises(TraceError, match="'bonus_id' is missing"):
        trace_from_dict(data)
    for order in ([1, 0, 2, 3], [0, 3, 1, 2]):
        shuffled = changed()
        shuffled["events"] = [{**shuffled["events"][i], "t_s": 1.0} for i in order]
        with pytest.raises(TraceError):
            trace_from_dict(shuffled)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
PLACES = ["request", "engine", "events", "events__0", "events__1", "events__1__emitted_ids"]
PLACES += ["events__1__pieces", "request__messages", "request__sampling", "events__3__spec"]


@given(st.sampled_from(PLACES), json_values)
def test_any_value_anywhere_gives_a_trace_or_a_trace_error(place: str, value: object) -> None:
    try:
        trace = trace_from_dict(changed(**{place: value}))
    except TraceError:
        return
    run_stats(trace)


def test_half_a_character_is_refused_and_a_whole_one_is_read() -> None:
    assert parse_json(r'"\ud83e\udd99"') == "🦙"
    with pytest.raises(TraceError, match="not readable as JSON"):
        parse_json(r'{"piece": "\uD83E"}')


@given(st.text(max_size=40) | st.just("[" * 100_000) | st.just('{"a": NaN}'))
def test_any_text_is_json_or_a_trace_error(text: str) -> None:
    try:
        parse_json(text)
    except TraceError as error:
        assert "JSON" in str(error)
