"""The contract: ladder, exact choice, verdicts, guide beside evidence, nothing made up."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.cost import FORMULA_ERROR
from advisor.recommend import recommend
from advisor.schema import RUNGS, Costs, DraftSpec, ModelShape, TargetSpec, TokenizerSpec, Workload
from advisor.situation import AssumedDepth, Published, Situation, TauBand, Tuned, TunedPoint
from advisor.training import plan

SECONDS = st.floats(1e-4, 1.0)
BLOCKS = st.lists(st.integers(2, 24), min_size=1, max_size=8, unique=True)
QWEN3_4B = TargetSpec(
    name="Qwen/Qwen3-4B",
    shape=ModelShape(num_params=4_022_468_096, num_layers=36, hidden_size=2560),
    eos_token_ids=(151645,),
)
DRAFT_4B = DraftSpec(
    dialect="z-lab", name="z-lab/Qwen3-4B-DFlash-b16", block_size=16,
    target_layer_ids=(1, 9, 17, 25, 33), num_target_layers=36, mask_token_id=151669,
    shape=ModelShape(num_layers=5, hidden_size=2560, layer_types=("full_attention",) * 5),
    raw={"block_size": 16},
)  # fmt: skip


@settings(deadline=None)
@given(
    ar_step_s=SECONDS,
    cycles=st.dictionaries(
        st.integers(2, 24), st.tuples(SECONDS, SECONDS), min_size=1, max_size=12
    ),
    rates=st.lists(st.floats(0, 1), min_size=1, max_size=23),
)
def test_with_costs_and_positions_the_fastest_covered_block_is_returned_exactly(
    ar_step_s, cycles, rates
):
    rates = sorted(rates, reverse=True)
    costs = Costs(
        ar_step_s, {b: d for b, (d, _) in cycles.items()}, {b: v for b, (_, v) in cycles.items()}
    )
    naive = {1: 1.0}
    for block in cycles:
        if block <= len(rates) + 1:
            tau = 1 + sum(rates[: block - 1])
            naive[block] = ar_step_s * tau / (costs.draft_s[block] + costs.verify_s[block])
    answer = recommend(Situation(costs=costs, tau_per_position=tuple(rates)))
    if naive == {1: 1.0}:  # refused earlier, where the files are read
        return
    chosen = answer.knobs["block_size"].value
    assert naive[chosen] == max(naive.values())
    assert (answer.verdict == "off") == (max(naive.values()) <= 1)
    assert answer.knobs["block_size"].rung == "measured"
    assert answer.estimate["speedup"].value == pytest.approx(naive[chosen])


def test_when_nothing_beats_plain_decoding_the_verdict_is_off_and_block_one():
    costs = Costs(0.01, {4: 0.01, 8: 0.01}, {4: 0.02, 8: 0.03})
    answer = recommend(Situation(costs=costs, tau_per_position=(0.6, 0, 0, 0, 0, 0, 0)))
    assert (answer.verdict, answer.knobs["block_size"].value) == ("off", 1)
    assert "it would need 3.00 tokens per cycle and gets 1.60" in answer.headline
    assert "speculative" not in answer.exports["vllm"]
    assert answer.estimate["speedup"].value == 1


def test_every_knob_stands_on_the_highest_rung_it_has():
    situation = Situation(
        draft=DRAFT_4B,
        target=QWEN3_4B,
        published=Published("qwen3-4b", "", "https://x", block_size=16, mask_token_id=151669),
        costs=Costs(0.01, {4: 0.001, 16: 0.002}, {4: 0.011, 16: 0.030}),
        tau=6.0,
        tau_block_size=16,
        tokenizer=TokenizerSpec(eos_token_ids=(151645,), pad_token_id=151643),
        workload=Workload(prompt_tokens=100),
    )
    answer = recommend(situation)
    for knob in answer.knobs.values():
        assert list(knob.rungs) == [rung for rung in RUNGS if rung in knob.rungs]
        assert knob.value == knob.rungs[knob.rung]
        assert knob.rung == next(iter(knob.rungs))
    block = answer.knobs["block_size"]
    assert block.rungs == {"measured": 4, "checkpoint": 16, "published": 16, "guide": 2}
    assert answer.knobs["mask_token_id"].rungs["guide"] == 151643


def test_trained_in_knobs_stay_the_checkpoint_s_even_when_the_guide_is_followed():
    answer = recommend(
        Situation(policy="guide", draft=DRAFT_4B, target=QWEN3_4B, workload=Workload(prompt_tokens=9))
    )  # fmt: skip
    assert answer.knobs["block_size"].value == 2
    assert answer.knobs["target_layer_ids"].value == [1, 9, 17, 25, 33]
    assert answer.knobs["mask_token_id"].value == 151669
    assert not answer.knobs["mask_token_id"].tunable


def test_the_guide_never_exceeds_the_block_the_draft_was_trained_at():
    small = dataclasses.replace(DRAFT_4B, block_size=8)
    answer = recommend(Situation(policy="guide", num_params=20_000_000_000, draft=small))
    assert (answer.knobs["block_size"].value, answer.knobs["block_size"].rungs["guide"]) == (8, 12)


def test_with_only_size_and_prompt_the_guide_answers_all_it_can():
    answer = recommend(
        Situation(
            mode="train", policy="guide", num_params=120_000_000_000,
            workload=Workload(prompt_tokens=200),
        )
    )  # fmt: skip
    values = {name: knob.value for name, knob in answer.knobs.items()}
    assert values == {
        "block_size": 12, "target_layer_ids": [2, 14, 26], "sliding_window_size": 4096,
        "mask_token_id": None,
    }  # fmt: skip
    assert answer.knobs["mask_token_id"].rung is None


def test_evidence_that_contradicts_the_guide_is_stated_with_its_source():
    answer = recommend(Situation(mode="train", num_params=4_000_000_000))
    found = {finding.id: finding for finding in answer.findings}
    assert answer.knobs["block_size"].value == 16
    assert "says block_size 2" in found["guide.block-size"].message
    assert "arxiv.org" in found["guide.block-size"].evidence


def test_nothing_known_means_null_not_a_guess():
    answer = recommend(Situation(mode="serve"))
    assert all(estimate.value is None for estimate in answer.estimate.values())
    assert all(estimate.source == "unknown" for estimate in answer.estimate.values())
    assert answer.verdict == "try"


def test_costs_without_acceptance_give_the_break_even_and_no_speedup():
    costs = Costs(0.01, {16: 0.002}, {16: 0.012})
    answer = recommend(Situation(costs=costs, draft=DRAFT_4B))
    assert answer.estimate["speedup"].value is None
    assert answer.break_even_tau.value == pytest.approx(1.4)
    assert "above 1.40 tokens per cycle" in answer.headline


def test_blocks_above_the_trained_one_are_left_out_and_named():
    costs = Costs(0.01, {8: 0.001, 32: 0.001}, {8: 0.011, 32: 0.011})
    answer = recommend(Situation(costs=costs, tau_per_position=(0.9,) * 31, draft=DRAFT_4B))
    assert answer.knobs["block_size"].value == 8
    assert any(f.id == "block-size.above-trained" for f in answer.findings)
    assert answer.alternatives[-1].block_size == 32


def test_a_published_band_gives_an_interval_and_its_own_source():
    band = TauBand(4.0, 3.0, 5.0, 16, "published tau")
    published = Published("p", "", "https://x", block_size=16, tau_band=band)
    costs = Costs(0.01, {16: 0.002}, {16: 0.011})
    answer = recommend(Situation(costs=costs, draft=DRAFT_4B, published=published))
    gain = answer.estimate["speedup"]
    slack = 1 + FORMULA_ERROR
    assert (gain.low, gain.value, gain.high) == pytest.approx(
        (3 / 1.3 / slack, 4 / 1.3, 5 / 1.3 * slack)
    )
    assert (gain.source, answer.estimate["tau"].source) == ("modelled", "published")


def test_a_tuning_run_s_winner_stands_though_a_loser_looked_faster_on_the_tuning_prompts():
    points = (TunedPoint(4, 2.0, 1.9, 2.1, 12), TunedPoint(8, 1.9, 1.8, 2.0, 12))
    tuned = Tuned(points, TunedPoint(4, 1.7, 1.6, 1.8, 12), "tuned here")  # judged on others
    answer = recommend(Situation(tuned=tuned, draft=DRAFT_4B))
    assert (answer.knobs["block_size"].value, answer.knobs["block_size"].rung) == (4, "measured")
    assert answer.estimate["speedup"].value == 1.7
    lost = next(a for a in answer.alternatives if a.block_size == 8)
    assert "slower than the winner there" in lost.reason


def test_a_tuning_run_outranks_every_prediction():
    points = tuple(
        TunedPoint(block, gain, gain - 0.1, gain + 0.1, 12, tau=3.0)
        for block, gain in ((4, 1.9), (16, 1.4))
    )
    tuned = Tuned(points, TunedPoint(4, 1.8, 1.7, 1.9, 12, tau=3.0), "tuned here")
    answer = recommend(Situation(tuned=tuned, draft=DRAFT_4B))
    assert answer.knobs["block_size"].rungs["measured"] == 4
    assert answer.estimate["speedup"].value == 1.8
    assert (answer.estimate["speedup"].low, answer.verdict) == (1.7, "use")


def test_a_window_is_free_only_where_the_checkpoint_has_none():
    long = Workload(prompt_tokens=20_000)
    free = recommend(Situation(draft=DRAFT_4B, workload=long)).knobs["sliding_window_size"]
    assert (free.value, free.tunable) == (4096, True)
    kinds = ("sliding_attention",) * 4 + ("full_attention",)
    shape = dataclasses.replace(DRAFT_4B.shape, layer_types=kinds, sliding_window=2048)
    trained = dataclasses.replace(DRAFT_4B, shape=shape)
    fixed = recommend(Situation(draft=trained, workload=long)).knobs["sliding_window_size"]
    assert (fixed.value, fixed.rung, fixed.tunable) == (2048, "checkpoint", False)


def test_training_recommends_all_four_with_depth_and_cost():
    target = TargetSpec(
        name="mine",
        shape=ModelShape(
            num_layers=36, hidden_size=2560, intermediate_size=9728, num_attention_heads=32,
            num_kv_heads=8, head_dim=128, vocab_size=151936,
        ),
    )  # fmt: skip
    situation = Situation(
        mode="train", target=target, tokenizer=TokenizerSpec(num_tokens=151669),
        workload=Workload(prompt_tokens=8000),
    )  # fmt: skip
    answer = recommend(situation)
    values = {name: knob.value for name, knob in answer.knobs.items()}
    assert values == {
        "block_size": 16, "target_layer_ids": [1, 9, 17, 25, 33], "sliding_window_size": 4096,
        "mask_token_id": 151669,
    }  # fmt: skip
    assert all(knob.tunable for knob in answer.knobs.values())
    assert answer.training["draft_layers"]["value"] == 5
    decay = answer.training["loss_decay_gamma"]
    assert (decay["value"], decay["rung"]) == (7, "published")
    assert "arxiv.org/abs/2602.06036" in decay["reason"]
    assert answer.training["trainable_params"]["value"] * 2 == pytest.approx(2**30, rel=0.01)
    assert answer.draft_config["layer_types"] == ["sliding_attention"] * 4 + ["full_attention"]


def test_a_loss_decay_that_nobody_published_is_unknown():
    decay = plan(Situation(mode="train"), block_size=12, num_taps=5)["loss_decay_gamma"]
    assert (decay["value"], decay["rung"]) == (None, None)
    assert "none is published for 12" in decay["reason"]


def test_assumed_depth_is_named_wherever_it_is_used():
    answer = recommend(
        Situation(mode="train", num_params=8 * 10**9, assumed_depth=AssumedDepth(36, "Qwen3-8B"))
    )
    assert "36 layers assumed as in Qwen3-8B" in answer.knobs["target_layer_ids"].reason
    assert any(f.id == "target.depth-assumed" for f in answer.findings)


def test_every_loser_has_a_reason():
    costs = Costs(0.01, {4: 0.001, 8: 0.001, 16: 0.001}, {4: 0.011, 8: 0.012, 16: 0.03})
    answer = recommend(Situation(costs=costs, tau=5.0, tau_block_size=16))
    losers = {a.block_size: a.reason for a in answer.alternatives}
    assert set(losers) == {1, 4, 8, 16} - {answer.knobs["block_size"].value}
    assert "tokens per cycle for" in losers[16]


def test_a_recommendation_takes_under_fifty_milliseconds():
    band = TauBand(4.0, 3.0, 5.0, 16, "published tau")
    situation = Situation(
        draft=DRAFT_4B, target=QWEN3_4B, costs=Costs(0.01, dict.fromkeys(range(2, 17), 0.001), dict.fromkeys(range(2, 17), 0.01)),
        published=Published("p", "", "https://x", tau_band=band),
    )  # fmt: skip
    times = []
    for _ in range(5):
        started = time.perf_counter()
        answer = recommend(situation)
        times.append(time.perf_counter() - started)
    assert min(times) < 0.05
    json.dumps(dataclasses.asdict(answer), allow_nan=False)


def test_a_prediction_below_one_is_off_with_its_interval_even_above_a_checkpoint_block():
    band = TauBand(1.3, 1.2, 2.5, 16, "published tau")
    published = Published("p", "", "https://x", block_size=16, tau_band=band)
    costs = Costs(0.01, dict.fromkeys((4, 16), 0.005), {4: 0.011, 16: 0.02}, "modelled", "model")
    situation = Situation(costs=costs, draft=DRAFT_4B, published=published)
    answer = recommend(situation)
    assert answer.verdict == "off"
    assert "Measure before you turn it on" in answer.headline
