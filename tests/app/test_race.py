"""The race: virtual time, fairness, stopping, one broken lane."""

from __future__ import annotations

import itertools

import pytest

from app.race import BASELINE, DFLASH, LaneEvent, LaneFailed, in_slices, race, warm_up
from dflash.metrics import compare
from dflash.schema import Finished, Trace


def lanes_of(events):
    lanes = ([], [])
    for item in events:
        if isinstance(item, LaneEvent):
            lanes[item.lane].append(item.event)
    return lanes


def test_the_lane_whose_clock_is_behind_always_goes_next(counting_engine, ask):
    engine = counting_engine()
    clocks = [0.0, 0.0]
    finished = [False, False]
    for item in race((engine, engine), ask()):
        other = 1 - item.lane
        assert finished[other] or clocks[item.lane] <= clocks[other]
        clocks[item.lane] = item.event.t_s
        finished[item.lane] = isinstance(item.event, Finished)
    assert finished == [True, True]


def test_a_race_has_the_same_events_as_two_runs_one_after_the_other(counting_engine, ask):
    engine = counting_engine()
    raced = lanes_of(race((engine, engine), ask(block_size=6)))
    assert raced[BASELINE] == list(engine.stream(ask(block_size=1)))
    assert raced[DFLASH] == list(engine.stream(ask(block_size=6)))


def test_stopping_takes_effect_before_the_next_step_and_closes_both_streams(counting_engine, ask):
    engine = counting_engine()
    seen = []
    for item in race((engine, engine), ask(num=1000), should_stop=lambda: len(seen) >= 20):
        seen.append(item)
    assert len(seen) == 20
    assert engine.open_streams == 0


def test_abandoning_a_race_closes_both_streams_and_the_engine_runs_again(counting_engine, ask):
    engine = counting_engine()
    running = in_slices(race((engine, engine), ask(num=1000)), slice_s=0)
    list(itertools.islice(running, 7))
    assert engine.open_streams == 2
    running.close()
    assert engine.open_streams == 0
    left, right = lanes_of(race((engine, engine), ask()))
    assert left[-1].num_output_tokens == right[-1].num_output_tokens == 64


def test_a_lane_that_breaks_leaves_the_other_alive(counting_engine, ask):
    engine = counting_engine(fails_after={1: 3})
    events = list(race((engine, engine), ask()))
    failed = [e for e in events if isinstance(e, LaneFailed)]
    assert [f.lane for f in failed] == [BASELINE]
    assert failed[0].message == "the lane broke. Run it again."
    assert isinstance(lanes_of(events)[DFLASH][-1], Finished)


def test_slices_lose_nothing_and_come_at_most_as_often_as_asked(counting_engine, ask):
    engine = counting_engine()
    whole = list(race((engine, engine), ask()))
    ticks = itertools.count()
    slices = list(in_slices(race((engine, engine), ask()), slice_s=5, now=lambda: next(ticks)))
    assert [e for batch in slices for e in batch] == whole
    assert all(len(batch) >= 4 for batch in slices[:-1])


def test_warming_up_runs_both_lanes_without_events(counting_engine, ask):
    engine = counting_engine()
    warm_up(engine, ask(num=2000))
    assert 0 < engine.steps < 100
    assert engine.open_streams == 0


@pytest.mark.parametrize("slice_s", [0.0, 0.08])
def test_what_happens_between_two_slices_is_on_no_clock(counting_engine, ask, slice_s):
    """The page may take as long as it likes to draw: the measured speed does not move."""
    engine = counting_engine()
    alone = [list(engine.stream(ask(block_size=b))) for b in (1, 8)]
    drawn = ([], [])
    for batch in in_slices(race((engine, engine), ask()), slice_s=slice_s):
        for item in batch:
            drawn[item.lane].append(item.event)
    traces = [Trace(ask(), engine.info, tuple(e)) for e in (*alone, *drawn)]
    without, with_page = compare(*traces[:2]), compare(*traces[2:])
    assert with_page.speedup == pytest.approx(without.speedup, rel=0.02)
