"""The verdict of a race of servers: it passes only when text, acceptance and counters all agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dflash.engines.counters import Counters
from dflash.schema import SpecStats
from scripts.served_race import Row, summarise, table

OURS = SpecStats(10, 150, 40, None, "observed")
THEIRS = SpecStats(10, 150, 40, None, "reported")
ROW = Row(0, "code", 51, True, OURS, THEIRS, 38, True, 0.02, 0.005, 0.1, 0.1, 4.0, 3.5)
BEFORE, AFTER = Counters(7, 105, 9, None, 0, 1), Counters(27, 405, 89, None, 0, 3)


def verdict(*rows: Row, after: Counters = AFTER) -> dict:
    return summarise(list(rows), 16, BEFORE, after)


def test_a_race_in_which_everything_agrees_passes_and_its_table_shows_it():
    report = verdict(ROW, replace(ROW, prompt_index=1, category="chat"))
    assert report["passed"] and report["counters_agree"]
    assert report["overall"]["tau_ours"] == report["overall"]["tau_reported"] == 5.0
    shown = table({**report, "server": "vllm 0", "provenance": {"machine": "two cores"}})
    assert "PASSED" in shown and "4.00x" in shown and "code" in shown


@pytest.mark.parametrize(
    "change",
    [
        {"text_equal": False},
        {"theirs": replace(THEIRS, num_accepted_tokens=41)},
        {"theirs": replace(THEIRS, num_cycles=11)},
        {"theirs": None},
    ],
)
def test_one_answer_that_differs_fails_the_race(change: dict):
    assert not verdict(ROW, replace(ROW, **change))["passed"]


def test_counters_that_do_not_add_up_fail_the_race():
    assert not verdict(ROW, replace(ROW), after=replace(AFTER, num_accepted_tokens=90))["passed"]


def test_a_last_block_cut_by_the_length_limit_is_not_held_against_anyone():
    cut = replace(ROW, comparable=False, theirs=replace(THEIRS, num_accepted_tokens=40))
    report = verdict(cut, ROW)
    assert report["num_comparable"] == 1 and report["passed"]


def test_a_server_may_stop_counting_at_the_end_of_the_answer():
    stopped = replace(ROW, theirs=replace(THEIRS, num_accepted_tokens=38))
    assert stopped.same_acceptance
    assert not replace(stopped, theirs=replace(THEIRS, num_accepted_tokens=39)).same_acceptance
