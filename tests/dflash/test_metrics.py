"""The identities of the project's central numbers, on traces built by hand and at random."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash.metrics import (
    RunStats,
    acceptance_by_position,
    compare,
    median_interval,
    pooled_spec,
    run_stats,
    spec_stats,
    tau_at,
    trace_spec,
)
from dflash.schema import (
    Chunk,
    Cycle,
    EngineInfo,
    Finished,
    Message,
    Prefilled,
    Request,
    SpecStats,
    Trace,
)

ENGINE = EngineInfo("torch", "1", "target", "draft", "cpu", "float32", "cycles")


def make_trace(
    accepted: list[int],
    *,
    block_size: int,
    cycle_s: float = 0.1,
    cut_last: int = 0,
    done: bool = True,
) -> Trace:
    """A run whose cycles accepted the given counts; the last one emits ``cut_last`` tokens fewer."""
    request = Request((Message("user", "hi"),), block_size=block_size)
    events: list = [Prefilled(0.5, 7, token_id=1)]
    for i, count in enumerate(accepted):
        cut = cut_last if i == len(accepted) - 1 else 0
        emitted = tuple(range(count + 1 - cut))
        events.append(
            Cycle(
                t_s=0.5 + cycle_s * (i + 1),
                draft_ids=(3,) * (block_size - 1),
                num_accepted=count,
                bonus_id=9,
                emitted_ids=emitted,
                draft_s=cycle_s * (0.6 if i == 0 else 0.4),
                verify_s=cycle_s * (0.4 if i == 0 else 0.6),
            )
        )
    if done:
        tokens = 1 + sum(len(e.emitted_ids) for e in events[1:])
        events.append(Finished(events[-1].t_s, "length", tokens, spec=None, peak_memory_bytes=11))
    return Trace(request, ENGINE, tuple(events))


def chunk_trace(text: str, *, num_tokens: int | None) -> Trace:
    request = Request((Message("user", "hi"),))
    chunks = tuple(Chunk(0.2 + 0.1 * i, c) for i, c in enumerate(text))
    spec = SpecStats(4, 28, 8, None, "reported")
    done = Finished(9.0, "stop", num_tokens, spec)
    return Trace(request, ENGINE, (*chunks, done))


accepted_lists = st.lists(st.integers(0, 7), min_size=1, max_size=40)


@given(accepted_lists)
def test_tau_is_one_plus_accepted_over_cycles_and_the_histogram_adds_up(
    accepted: list[int],
) -> None:
    spec = trace_spec(make_trace(accepted, block_size=8))
    assert spec is not None and spec.acceptance_histogram is not None
    assert spec.tau == pytest.approx(1 + sum(accepted) / len(accepted))
    assert sum(spec.acceptance_histogram) == spec.num_cycles
    assert len(spec.acceptance_histogram) == 8
    assert spec.num_draft_tokens == 7 * len(accepted)


@given(accepted_lists)
def test_positions_sum_to_tau_at_every_smaller_block(accepted: list[int]) -> None:
    positions = acceptance_by_position(trace_spec(make_trace(accepted, block_size=8)))
    assert positions is not None and len(positions) == 7
    for block_size in range(1, 9):
        naive = 1 + statistics.fmean(min(a, block_size - 1) for a in accepted)
        assert tau_at(positions, block_size) == pytest.approx(naive)
    assert tau_at(positions, 9) is None


@pytest.mark.parametrize(
    ("histogram", "tau"),
    # Counts of the per-request payloads that vLLM (10 over 43) and SGLang (63 over 43) document.
    [((39, 1, 0, 3), 1.2326), ((0, 23, 20), 2.4651)],
)
def test_published_payloads_give_their_published_tau(
    histogram: tuple[int, ...], tau: float
) -> None:
    cycles = sum(histogram)
    accepted = sum(j * n for j, n in enumerate(histogram))
    spec = SpecStats(cycles, cycles * (len(histogram) - 1), accepted, histogram, "reported")
    assert spec.tau == pytest.approx(tau, abs=5e-5)
    positions = acceptance_by_position(spec)
    assert positions is not None and 1 + sum(positions) == pytest.approx(spec.tau)


def test_num_output_tokens_counts_the_prefill_token_and_every_emitted_one() -> None:
    trace = make_trace([3, 0, 7], block_size=8)
    assert run_stats(trace).num_output_tokens == 1 + sum(len(c.emitted_ids) for c in trace.cycles)


def test_a_cut_last_cycle_keeps_the_raw_acceptance_but_not_the_tokens() -> None:
    whole, cut = make_trace([2, 5], block_size=8), make_trace([2, 5], block_size=8, cut_last=4)
    assert trace_spec(cut) == trace_spec(whole)
    assert run_stats(cut).num_output_tokens == 1 + 3 + 2


@given(st.lists(st.integers(0, 7), min_size=7, max_size=30), st.floats(0.01, 1.0))
def test_tpot_is_cycle_cost_over_tau_and_speedup_follows(
    accepted: list[int], cycle_s: float
) -> None:
    dflash = make_trace(accepted, block_size=8, cycle_s=cycle_s)
    tokens = len(dflash.output_ids)
    baseline = make_trace([0] * (tokens - 1), block_size=1, cycle_s=0.05)
    result = compare(baseline, dflash)
    stats = result.dflash
    assert stats.spec and stats.draft_s and stats.verify_s and stats.tpot_s and result.speedup
    cost_s = (stats.draft_s + stats.verify_s) / stats.spec.num_cycles
    assert stats.tpot_s == pytest.approx(cost_s / stats.spec.tau)
    assert result.speedup == pytest.approx(0.05 * stats.spec.tau / cost_s)


def test_cycles_alone_are_counted_as_the_whole_trace_is() -> None:
    trace = make_trace([3, 0, 7], block_size=8)
    assert spec_stats(trace.cycles, 8) == trace_spec(trace)
    assert spec_stats([], 8) is None


def test_the_baseline_drafts_nothing_and_has_no_tau() -> None:
    stats = run_stats(make_trace([0, 0, 0], block_size=1))
    assert stats.spec is None
    assert stats.num_output_tokens == 4
    assert stats.tpot_s == pytest.approx(0.1)
    assert stats.output_tps == pytest.approx(10)


def test_tpot_of_a_single_token_is_unknown_not_zero() -> None:
    stats = run_stats(make_trace([], block_size=4))
    assert (stats.num_output_tokens, stats.tpot_s, stats.output_tps) == (1, None, None)
    assert RunStats(5, None, 0.1, 2.0, None).tpot_s is None


def test_end_to_end_speedup_charges_the_prefill_to_both_arms() -> None:
    baseline = make_trace([0] * 8, block_size=1)  # 0.5 + 0.8 s for 9 tokens
    dflash = make_trace([3, 3], block_size=4)  # 0.5 + 0.2 s for 9 tokens
    result = compare(baseline, dflash)
    assert result.speedup == pytest.approx(4.0)
    assert result.end_to_end_speedup == pytest.approx(1.3 / 0.7)


def test_a_ratio_of_two_times_needs_eight_tokens_on_both_sides() -> None:
    long, short = make_trace([0] * 7, block_size=1), make_trace([5], block_size=8)
    assert compare(long, long).speedup == pytest.approx(1)
    for lanes in ((long, short), (short, long), (short, short)):
        result = compare(*lanes)
        assert (result.speedup, result.end_to_end_speedup) == (None, None)


def test_a_request_without_an_end_has_no_end_to_end_time() -> None:
    whole, cut = make_trace([3, 3], block_size=4), make_trace([3, 3], block_size=4, done=False)
    result = compare(whole, cut)
    assert result.speedup == pytest.approx(1) and result.end_to_end_speedup is None
    assert result.num_compared == 9


def test_the_draft_prefill_is_what_the_first_draft_pass_cost_above_the_others() -> None:
    assert run_stats(make_trace([1, 1, 1], block_size=4)).draft_prefill_s == pytest.approx(0.02)
    assert run_stats(make_trace([1], block_size=4)).draft_prefill_s is None


def test_outputs_are_compared_token_by_token_and_the_shorter_one_ends_them() -> None:
    long, short = make_trace([3, 3], block_size=4), make_trace([3, 3], block_size=4, cut_last=2)
    assert compare(long, long).outputs_match is True
    verdict = compare(long, short)
    assert (verdict.outputs_match, verdict.first_difference) == (False, 7)


def test_a_cancelled_run_is_not_called_different_for_being_shorter() -> None:
    whole, cancelled = make_trace([3, 3], block_size=4), make_trace([3], block_size=4, done=False)
    verdict = compare(whole, cancelled)
    assert (verdict.outputs_match, verdict.first_difference) == (None, None)
    other = make_trace([0, 0, 0, 0, 0], block_size=4, done=False)
    assert compare(whole, other).first_difference == 2


def test_chunks_give_text_and_reported_counts_but_never_tokens_or_cycles() -> None:
    known, unknown = chunk_trace("hello", num_tokens=3), chunk_trace("help", num_tokens=None)
    stats = run_stats(known)
    assert (stats.num_output_tokens, stats.ttft_s) == (3, 0.2)
    assert stats.tpot_s == pytest.approx(0.4 / 2)
    assert stats.spec is not None and stats.spec.tau == 3.0
    assert acceptance_by_position(stats.spec) is None
    assert run_stats(unknown).tpot_s is None
    verdict = compare(known, unknown)
    assert (verdict.first_difference, verdict.difference_unit) == (3, "character")
    assert compare(chunk_trace("", num_tokens=0), known).outputs_match is False


def test_pooling_weighs_cycles_and_not_replies() -> None:
    parts = [trace_spec(make_trace(a, block_size=b)) for a, b in (([7] * 9, 8), ([0], 4))]
    pooled = pooled_spec([*parts, None])
    assert pooled is not None and pooled.tau == pytest.approx(1 + 63 / 10)
    assert pooled.acceptance_histogram == (1, 0, 0, 0, 0, 0, 0, 9)
    assert pooled_spec([None]) is None


def test_the_interval_holds_the_median_repeats_by_seed_and_narrows_with_n() -> None:
    few = median_interval([2.0, 3.0, 4.0, 5.0], seed=1)
    many = median_interval([2.0, 3.0, 4.0, 5.0] * 25, seed=1)
    assert few and many and few.low and few.high and many.low and many.high
    assert few.low <= few.median <= few.high
    assert few == median_interval([2.0, 3.0, 4.0, 5.0], seed=1)
    assert many.high - many.low < few.high - few.low
    assert median_interval([], seed=1) is None
    one = median_interval([2.5], seed=1)
    assert one and (one.median, one.low, one.n) == (2.5, None, 1)
