"""A calibration of this pair on this machine settles the block, a tuning run its speedup too."""

from __future__ import annotations

import pytest

from advisor.answer import recommend_for
from advisor.gather import PUBLISHED_DEPTHS, Request
from dflash.device import machine_id
from dflash.measurements import (
    Calibration,
    Interval,
    Provenance,
    StepCosts,
    TunedBlock,
    TuneResult,
    save,
)
from dflash.presets import load_pair, pair_ids


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    """An empty store of measurements."""
    monkeypatch.setenv("DFLASH_MEASUREMENTS", str(tmp_path))
    return tmp_path


def about(machine: str) -> Provenance:
    return Provenance(
        target_id="Qwen/Qwen3-8B", draft_id="z-lab/Qwen3-8B-DFlash-b16", machine_id=machine,
        machine="here", date="2026-12-01T10:00:00+00:00", pair_id="qwen3-8b",
    )  # fmt: skip


def calibration(machine: str) -> Calibration:
    costs = StepCosts(
        context_tokens=128, ar_step_s=0.01, draft_s={4: 0.001, 16: 0.002},
        verify_s={4: 0.011, 16: 0.06}, num_repeats=5,
    )  # fmt: skip
    return Calibration(provenance=about(machine), by_context=(costs,))


def test_without_measurements_the_checkpoint_s_block_stands():
    assert recommend_for(Request(draft="qwen3-8b", task="chat")).knobs["block_size"].value == 16


def test_a_calibration_of_this_machine_lowers_the_block(store):
    save(calibration(machine_id()), store)
    block = recommend_for(Request(draft="qwen3-8b", task="chat")).knobs["block_size"]
    assert (block.value, block.rung) == (4, "measured")
    assert "calibrated on here" in block.reason


def test_acceptance_measured_at_each_block_size_stands_above_positions_of_the_largest(store):
    measured = calibration(machine_id()).model_copy(
        update={
            "tau_per_position": (0.9,) * 15,
            "tau_by_block": {4: 3.0, 16: 6.0},
            "num_prompts": 12,
        }
    )
    save(measured, store)
    answer = recommend_for(Request(draft="qwen3-8b", task="chat"))
    assert {point["block_size"]: point["speedup"] for point in answer.curve} == pytest.approx(
        {4: 0.01 * 3.0 / 0.012, 16: 0.01 * 6.0 / 0.062}
    )
    gain = answer.estimate["speedup"]
    assert gain.source == "modelled" and gain.low < gain.value < gain.high
    assert answer.headline.startswith(
        "Use DFlash: 2.50x at block size 4 (modelled from calibrated costs and measured acceptance"
    )
    assert answer.estimate["tau"].basis.endswith("median of 12 prompts")


def test_a_calibration_of_another_machine_or_for_a_named_one_is_not_used(store):
    save(calibration("elsewhere"), store)
    assert recommend_for(Request(draft="qwen3-8b")).knobs["block_size"].rung == "published"
    save(calibration(machine_id()), store)
    named = recommend_for(Request(draft="qwen3-8b", hardware="h200"))
    assert named.knobs["block_size"].rung == "published"


def test_a_tuning_run_gives_the_measured_speedup_with_its_interval(store):
    block = TunedBlock(
        block_size=6, decode_speedup=Interval(median=1.5, low=1.4, high=1.6, n=8), tau=2.5
    )
    result = TuneResult(
        provenance=about(machine_id()), tuned=(block,), judged=block, num_tuning_prompts=6,
        num_judging_prompts=6,
    )  # fmt: skip
    save(result, store)
    answer = recommend_for(Request(draft="qwen3-8b"))
    gain = answer.estimate["speedup"]
    assert answer.knobs["block_size"].value == 6
    assert (gain.low, gain.value, gain.high, gain.source) == (1.4, 1.5, 1.6, "measured")
    assert answer.headline == (
        "Use DFlash: 1.50x at block size 6 (measured, 1.40x to 1.60x, n = 8)."
    )


@pytest.mark.parametrize(
    ("prompt_tokens", "rung"),
    [(None, "measured"), (3000, "measured"), (200, "published"), (30_000, "published")],
)
def test_a_window_that_was_tuned_here_answers_for_prompts_about_as_long(store, prompt_tokens, rung):
    """And only for those: a window that pays at 4,000 tokens says nothing of 200 or 30,000."""
    gain = Interval(median=1.5, low=1.4, high=1.6, n=8)
    wide = TunedBlock(block_size=6, decode_speedup=gain)
    narrow = TunedBlock(
        block_size=6, sliding_window_size=512,
        decode_speedup=gain.model_copy(update={"median": 1.55}),
    )  # fmt: skip
    result = TuneResult(
        provenance=about(machine_id()), tuned=(wide, narrow), judged=narrow, prompt_tokens=4000,
        num_tuning_prompts=6, num_judging_prompts=6,
    )  # fmt: skip
    save(result, store)
    answer = recommend_for(Request(draft="qwen3-8b", prompt_tokens=prompt_tokens))
    window = answer.knobs["sliding_window_size"]
    assert window.rung == rung
    if rung == "measured":
        assert window.value == 512 and "none, 512 on prompts of about 4000" in window.reason
        assert answer.exports["mlx"].count("512") >= 1
    assert answer.knobs["block_size"].value == 6


def test_the_assumed_depths_are_those_of_the_catalogue():
    known = {}
    for pair in map(load_pair, pair_ids()):
        if pair.target.hub_id and pair.target.num_layers:
            known[pair.target.hub_id.split("/")[-1]] = pair.target
    for num_params, num_layers, name in PUBLISHED_DEPTHS:
        assert known[name].num_layers == num_layers
        if known[name].num_params:
            assert known[name].num_params == pytest.approx(num_params, rel=0.12)
