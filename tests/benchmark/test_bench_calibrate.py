"""Calibration reads true costs off cycles; tuning picks by measurement and judges elsewhere."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from scripted_engine import ScriptedEngine

from dflash.benchmark.calibrate import (
    acceptance,
    affordable,
    calibrate,
    default_widths,
    fit_text,
)
from dflash.benchmark.tune import Measured, predict, tune
from dflash.errors import PromptError
from dflash.measurements import StepCosts
from dflash.metrics import MedianInterval
from dflash.schema import Cycle, Event, Message, Request, SamplingParams

COSTS = StepCosts(
    context_tokens=64,
    ar_step_s=0.1,
    draft_s={2: 0.02, 4: 0.02, 8: 0.02},
    verify_s={2: 0.1, 4: 0.13, 8: 0.2},
)
TAUS = {2: 1.9, 4: 3.4, 6: 3.7, 8: 3.75}


def calibrated(
    engine: ScriptedEngine,
    contexts: Sequence[int] = (40, 80),
    texts: Sequence[str] = ("hello", "world"),
) -> list[StepCosts]:
    clock = itertools.count()
    return list(
        calibrate(
            engine,
            texts,
            block_sizes=[2, 4, 8],
            context_tokens=contexts,
            budget_s=40.0,
            now=lambda: next(clock) * 1.0,
            sampling=SamplingParams(),
        )
    )


def test_the_costs_are_the_engines_own_without_the_draft_prefill() -> None:
    costs = calibrated(ScriptedEngine())
    assert [c.context_tokens for c in costs] == [40, 80]
    for c in costs:
        assert c.ar_step_s == pytest.approx(0.1)
        assert c.draft_s == pytest.approx({2: 0.02, 4: 0.02, 8: 0.02})
        assert c.verify_s == pytest.approx({2: 0.13, 4: 0.13, 8: 0.13})
        assert c.num_repeats > 1


def test_prompts_are_brought_to_the_asked_length() -> None:
    engine = ScriptedEngine()
    for wanted in (20, 400, 5000):
        length = len(engine.encode((Message("user", fit_text(engine, "one two three", wanted)),)))
        assert abs(length - wanted) <= max(2, wanted // 50)


def test_a_length_beyond_the_context_ends_the_calibration_quietly() -> None:
    assert [c.context_tokens for c in calibrated(ScriptedEngine(too_long=60))] == [40]


def test_a_length_that_only_the_longest_text_has_no_room_for_ends_it_quietly_too() -> None:
    texts = ("hi", "one two three four five six seven")
    first, longest = (len(fit_text(ScriptedEngine(), text, 80)) for text in texts)
    assert first < longest
    assert [c.context_tokens for c in calibrated(ScriptedEngine(too_long=first), texts=texts)] == [
        40
    ]


def test_answers_without_a_full_cycle_are_refused_with_the_reason() -> None:
    with pytest.raises(PromptError, match="too short to time a cycle"):
        calibrated(ScriptedEngine(answer=(1, 2)))


def test_block_sizes_are_thinned_out_to_fit_the_time() -> None:
    widths = (2, 3, 4, 6, 8, 12, 16)
    assert affordable(widths, run_s=1.0, share_s=20.0) == widths
    assert affordable(widths, run_s=1.0, share_s=4.0) == (2, 6, 16)
    assert affordable(widths, run_s=1.0, share_s=2.0) == ()
    assert default_widths(10) == (2, 3, 4, 5, 6, 8, 10)


def test_acceptance_comes_from_whole_answers_at_every_block_size() -> None:
    requests = [Request((Message("user", "x"),))] * 3
    engine = ScriptedEngine()
    found = acceptance(engine, requests, block_sizes=(2, 8), end_s=9.0, now=lambda: 0.0)
    # Every answer takes cycles that accept 3, 3, 3 and 2 at block 8; at block 2 all but its last,
    # which had nothing left to draft, accept 1.
    assert found.positions == pytest.approx((1.0, 1.0, 0.75, 0.0, 0.0, 0.0, 0.0))
    assert found.tau_by_block == pytest.approx({2: 1.875, 8: 3.75})
    assert found.num_prompts == 3


class StopsInsideItsLastBlock(ScriptedEngine):
    """The answer's last token is a stop: what was accepted behind it is cut off."""

    def stream(self, request: Request) -> Iterator[Event]:
        for event in super().stream(request):
            if isinstance(event, Cycle) and event.emitted_ids[-1] == self.answer[-1]:
                drafts = (*event.draft_ids, 98, 99)
                event = replace(event, draft_ids=drafts, num_accepted=len(drafts))
            yield event


def test_what_an_answer_s_end_cut_off_is_accepted_but_is_no_tau_to_foretell_from() -> None:
    engine = StopsInsideItsLastBlock(answer=tuple(range(10, 19)), accepted=4)
    requests = [Request((Message("user", "x"),))]
    found = acceptance(engine, requests, block_sizes=(8,), end_s=0.0, now=lambda: 1.0)
    num_tokens, num_cycles = len(engine.answer) - 1, 2
    assert found.tau_by_block == {8: num_tokens / num_cycles}
    assert 1 + sum(found.positions) == (num_tokens + 2) / num_cycles


def test_acceptance_stops_with_the_time_but_after_a_whole_prompt() -> None:
    requests = [Request((Message("user", "x"),))] * 3
    engine = ScriptedEngine()
    found = acceptance(engine, requests, block_sizes=(2, 8), end_s=0.0, now=lambda: 1.0)
    assert (found.num_prompts, set(found.tau_by_block)) == (1, {2, 8})


def test_the_prediction_is_the_papers_equation_for_every_block_size() -> None:
    by_block = {p.block_size: p for p in predict(COSTS, TAUS)}
    assert by_block[4].tau == pytest.approx(1 + 0.9 + 0.8 + 0.7)
    assert by_block[4].speedup == pytest.approx(0.1 * 3.4 / 0.15)
    assert [p.block_size for p in predict(COSTS, TAUS)] == [4, 8, 2]
    assert [p.block_size for p in predict(COSTS, {2: 1.9, 4: 3.4})] == [4, 2]


class Table:
    """``measure`` from a table; remembers what it was asked."""

    def __init__(self, tuning: dict[int, float], judging: dict[int, float]) -> None:
        self.results = {"tuning": tuning, "judging": judging}
        self.asked: list[tuple[str, tuple[int, ...]]] = []
        self.windows: dict[int, float] = {}  # what a window makes of any speedup

    def __call__(
        self, which: str, block_sizes: Sequence[int], window: int | None
    ) -> dict[int, Measured]:
        self.asked.append((which if window is None else f"{which} {window}", tuple(block_sizes)))
        found, gain = self.results[which], self.windows.get(window or 0, 1.0)
        return {
            b: Measured(b, MedianInterval(found[b] * gain, None, None, 1), None, window)
            for b in block_sizes
            if b in found
        }


def test_the_winner_is_chosen_by_measurement_on_one_set_and_reported_from_the_other() -> None:
    measure = Table({2: 1.4, 4: 2.1, 8: 2.6}, {4: 2.0, 8: 2.2})
    tuned = tune(predict(COSTS, TAUS), trained_block_size=8, measure=measure)
    assert measure.asked == [("tuning", (2, 4, 8)), ("judging", (8,))]
    assert (tuned.winner.block_size, tuned.winner.decode_speedup.median) == (8, 2.2)
    assert tuned.predicted(4) == pytest.approx(0.1 * 3.4 / 0.15)


def test_the_trained_block_is_always_run_and_judged_beside_a_smaller_winner() -> None:
    costs = COSTS.model_copy(
        update={"draft_s": {2: 0.1, 4: 0.1, 6: 0.1}, "verify_s": {2: 0.1, 4: 0.1, 6: 0.1}}
    )
    measure = Table({2: 1.0, 4: 3.0, 6: 1.0, 8: 2.0}, {4: 2.9, 8: 2.0})
    tuned = tune(predict(costs, TAUS), trained_block_size=8, measure=measure)
    assert measure.asked == [("tuning", (2, 4, 6, 8)), ("judging", (4, 8))]
    assert [m.block_size for m in tuned.judged] == [4, 8]


def test_each_window_is_run_at_the_fastest_block_and_the_winner_judged_with_its_own() -> None:
    measure = Table({2: 1.4, 4: 2.1, 8: 2.0}, {4: 2.0, 8: 2.2})
    measure.windows = {512: 1.5, 1024: 1.2}
    tuned = tune(predict(COSTS, TAUS), trained_block_size=8, measure=measure, windows=(512, 1024))
    assert measure.asked == [
        ("tuning", (2, 4, 8)), ("tuning 512", (4,)), ("tuning 1024", (4,)),
        ("judging 512", (4,)), ("judging", (8,)),
    ]  # fmt: skip
    assert [(m.block_size, m.sliding_window_size) for m in tuned.judged] == [(4, 512), (8, None)]
    assert tuned.winner.decode_speedup.median == pytest.approx(2.0 * 1.5)
    assert tuned.predicted(4, 512) is None


def test_a_window_that_slows_down_is_shown_and_not_used() -> None:
    measure = Table({2: 1.4, 4: 2.1, 8: 2.6}, {8: 2.2})
    measure.windows = {512: 0.5}
    tuned = tune(predict(COSTS, TAUS), trained_block_size=8, measure=measure, windows=(512,))
    assert measure.asked[-1] == ("judging", (8,))
    assert (tuned.winner.block_size, tuned.winner.sliding_window_size) == (8, None)
    assert tuned.tuned[-1].sliding_window_size == 512


def test_nothing_measured_is_an_error_and_not_a_recommendation() -> None:
    with pytest.raises(PromptError, match="tuning prompts"):
        tune(predict(COSTS, TAUS), trained_block_size=8, measure=Table({}, {}))
    with pytest.raises(PromptError, match="judging prompts"):
        tune(predict(COSTS, TAUS), trained_block_size=8, measure=Table({8: 2.0}, {}))
