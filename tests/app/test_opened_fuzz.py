"""Any file that opens can be shown: whatever a saved race holds, the page draws it or refuses it."""

from __future__ import annotations

import json
from dataclasses import replace
from urllib.parse import parse_qsl

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from app import wiring
from app.finished import finished_view, first_what_if, replay_text
from app.form import PlaygroundForm
from app.race import in_slices, race
from app.recorder import Recorder
from app.runs import Run, dump_run, load_run
from app.session import PairChoice
from app.share import link_query, read_link
from dflash.close_look import SlotOdds
from dflash.errors import TraceError
from dflash.schema import (
    Chunk,
    Cycle,
    EngineInfo,
    Event,
    Finished,
    Message,
    Prefilled,
    Request,
    SamplingParams,
    SpecStats,
    Trace,
)

TEXT = st.text(max_size=12)
IDS = st.integers(0, 2**31 - 1)
SECONDS = st.floats(0, 1e6)
ENGINE = EngineInfo("torch", "1", "t", "d", "cpu", "float32", "cycles")
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def cycles(draw: st.DrawFn, block_size: int) -> Cycle:
    """A cycle that a file may hold: consistent, and otherwise anything."""
    drafted = draw(st.lists(IDS, max_size=block_size - 1))
    accepted = draw(st.integers(0, len(drafted)))
    emitted = draw(st.lists(IDS, max_size=accepted + 1))
    return Cycle(
        draw(SECONDS), tuple(drafted), accepted, draw(IDS), tuple(emitted), draw(SECONDS),
        draw(SECONDS), tuple(draw(st.lists(TEXT, max_size=len(emitted)))),
        tuple(draw(st.lists(IDS, max_size=3))),
    )  # fmt: skip


@st.composite
def traces(draw: st.DrawFn, block_sizes: st.SearchStrategy[int]) -> Trace:
    """Events in the order of their clocks, of one kind of engine or a strange mix of both."""
    block_size = draw(block_sizes)
    sampling = SamplingParams(
        draw(st.sampled_from([0.0, 0.7])), max_new_tokens=draw(st.integers(1, 99))
    )
    middle = cycles(block_size) | st.builds(Chunk, SECONDS, TEXT, st.none() | st.integers(0, 10**6))
    events: list[Event] = draw(st.lists(middle, max_size=8))
    if draw(st.booleans()):
        events.insert(0, Prefilled(draw(SECONDS), draw(IDS), draw(IDS), draw(TEXT)))
    if draw(st.booleans()):
        events.append(draw(_finished()))
    times = sorted(event.t_s for event in events)
    events = [replace(event, t_s=t) for event, t in zip(events, times, strict=True)]
    return Trace(
        Request((Message("user", "x" + draw(TEXT)),), sampling, block_size), ENGINE, tuple(events)
    )


def _finished() -> st.SearchStrategy[Finished]:
    counts = st.integers(0, 10**6)
    spec = st.builds(
        SpecStats, st.none() | counts, counts, counts,
        st.none() | st.lists(counts, max_size=17).map(tuple),
        st.sampled_from(["observed", "reported", "counters"]),
    )  # fmt: skip
    return st.builds(
        Finished, SECONDS, st.sampled_from(["stop", "length"]), st.none() | counts,
        st.none() | spec, st.none() | counts, st.none() | counts,
    )  # fmt: skip


def shown(run: Run) -> None:
    """Everything that the page does with a run that was opened."""
    view = finished_view(run, replay_text(run), what_if=first_what_if(run), link_query="v=1")
    wiring.race_outputs(view)
    for line in replay_text(run).rstrip("\n").split("\n"):
        json.loads(line)
    json.loads(view.takeaway)


# Shrinking a whole race takes minutes, so a failure is shown as it was found.
_AS_FOUND = (Phase.explicit, Phase.reuse, Phase.generate)


@settings(
    max_examples=15, deadline=None, phases=_AS_FOUND,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
@given(
    traces(st.just(1)),
    traces(st.integers(1, 16)),
    st.dictionaries(IDS, TEXT, max_size=4),
    st.booleans(),
    st.floats(0, 1),
)
def test_every_race_that_a_file_can_hold_is_drawn(baseline, dflash, words, stopped, probability):
    slot = SlotOdds(probability, None, 3)
    odds = tuple((slot,) * len(c.draft_ids) for c in dflash.cycles if c.draft_ids)
    run = Run("id", "demo", baseline, dflash, words, stopped=stopped, odds=odds)
    opened = load_run(dump_run(run), source="opened")
    assert opened.dflash == dflash
    shown(opened)


@pytest.fixture(scope="module")
def saved(counting_engine):
    engine = counting_engine()
    request = Request((Message("user", "hello"),), SamplingParams(max_new_tokens=24), 8)
    recorder = Recorder(PairChoice("demo"), (engine, engine), request, "here")
    for batch in in_slices(race((engine, engine), request)):
        recorder.add(batch)
    run = recorder.run(stopped=False)
    slot = SlotOdds(0.5, 0.25, 2)
    odds = tuple((slot,) * len(c.draft_ids) for c in run.dflash.cycles if c.draft_ids)
    return json.loads(dump_run(replace(run, odds=odds)))


def places(data: object, path: tuple = ()) -> list[tuple]:
    """Every place in a JSON value, by the keys that lead there."""
    items = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    return [path] + [p for key, value in items for p in places(value, (*path, key))]


@settings(
    max_examples=15, deadline=None, phases=_AS_FOUND,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(data=st.data(), junk=JUNK)
def test_a_saved_race_with_anything_anywhere_is_drawn_or_refused_in_a_sentence(saved, data, junk):
    changed = json.loads(json.dumps(saved))
    path = data.draw(st.sampled_from(places(changed)[1:]))
    node = changed
    for key in path[:-1]:
        node = node[key]
    if data.draw(st.booleans()):
        node[path[-1]] = junk
    else:
        del node[path[-1]]
    try:
        run = load_run(json.dumps(changed), source="opened")
    except TraceError as error:
        assert "\n" not in str(error) and len(str(error)) < 600
        return
    shown(run)


@settings(max_examples=100, deadline=None)
@given(
    st.builds(
        PlaygroundForm,
        st.just("demo"),
        TEXT,
        TEXT,
        st.text(max_size=200),
        st.integers(1, 16),
        st.integers(1, 4096),
        st.floats(0, 2),
        st.integers(0, 2**31 - 1),
        st.integers(0, 1000),
        st.floats(0.01, 1),
        st.booleans(),
    )  # fmt: skip
)
def test_every_form_comes_back_from_its_own_link(form):
    query = link_query(form)
    fields = read_link(dict(parse_qsl(query)), known_pairs=frozenset({"demo"}))
    again = replace(form, **fields)
    assert again.prompt == form.prompt and again.block_size == form.block_size
    assert again.temperature == pytest.approx(form.temperature)
    assert again.seed == form.seed and again.enable_thinking == form.enable_thinking
