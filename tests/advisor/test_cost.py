"""The cost model against arithmetic done by hand, and against what must hold on any machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor import cost
from advisor.catalog import load_hardware
from advisor.schema import Costs, Hardware, ModelShape, Workload

QWEN3_8B = ModelShape(
    num_params=8_190_735_360, num_layers=36, hidden_size=4096, intermediate_size=12288,
    num_attention_heads=32, num_kv_heads=8, head_dim=128, vocab_size=151936, dtype="bfloat16",
)  # fmt: skip
DRAFT_8B = ModelShape(
    num_layers=5, hidden_size=4096, intermediate_size=12288, num_attention_heads=32,
    num_kv_heads=8, head_dim=128, dtype="bfloat16",
)  # fmt: skip
MOE = ModelShape(
    num_params=35_000_000_000, num_active_params=3_000_000_000, num_layers=40, hidden_size=2048,
    num_experts=256, num_experts_per_token=8, dtype="bfloat16",
)  # fmt: skip


def test_speedup_is_the_paper_s_equation():
    costs = Costs(0.01, {4: 0.002}, {4: 0.012})
    assert cost.speedup(costs, 2.8, 4) == pytest.approx(0.01 * 2.8 / 0.014)
    assert cost.break_even_tau(costs, 4) == pytest.approx(1.4)


def test_draft_parameters_are_counted_like_the_published_weights():
    counted = cost.estimated_params(DRAFT_8B, num_taps=5, with_head=False)
    assert counted * 2 == pytest.approx(1.95 * 2**30, rel=0.01)  # the published 1.95 GiB


def test_kv_bytes_respect_windows_and_linear_layers():
    full = cost.kv_bytes_per_sequence(QWEN3_8B, 1000)
    assert full == 2 * 2 * 8 * 128 * 36 * 1000
    kinds = ("sliding_attention",) * 4 + ("full_attention",)
    windowed = ModelShape(num_layers=5, num_kv_heads=8, head_dim=128, layer_types=kinds, sliding_window=100)  # fmt: skip
    assert cost.kv_bytes_per_sequence(windowed, 1000) == 2 * 2 * 8 * 128 * (4 * 100 + 1000)
    assert cost.kv_bytes_per_sequence(windowed, 1000, window=50) == 2 * 2 * 8 * 128 * 5 * 50
    linear = ModelShape(num_layers=4, num_kv_heads=8, head_dim=128, layer_types=("linear_attention",) * 3 + ("full_attention",))  # fmt: skip
    assert cost.kv_bytes_per_sequence(linear, 1000) == 2 * 2 * 8 * 128 * 1000


def test_an_moe_target_reads_more_experts_as_more_tokens_are_verified():
    one, block, many = (cost.weights_read(MOE, MOE.num_params, n) for n in (1, 16, 100_000))
    assert one == pytest.approx(MOE.num_active_params)
    assert one < block < many == pytest.approx(MOE.num_params)
    share = 8 / 256
    experts = (MOE.num_params - MOE.num_active_params) / (1 - share)
    shared = MOE.num_params - experts
    assert block == pytest.approx(shared + experts * (1 - (1 - share) ** 16))


def test_costs_rise_with_width_context_and_concurrency_and_fall_with_quantisation():
    machine = load_hardware("h200").hardware()

    def seconds(shape=QWEN3_8B, width=1, **work):
        return cost.pass_s(shape, machine, Workload(**work), width=width)

    plain = seconds()
    assert plain < seconds(width=16)
    assert plain < seconds(prompt_tokens=32_000)
    assert plain < seconds(concurrency=32)
    assert seconds(replace(QWEN3_8B, bits_per_weight=4.5)) < plain


def test_the_published_h200_cycle_is_met_within_a_fifth():
    machine = load_hardware("h200").hardware()
    costs = cost.modelled_costs(QWEN3_8B, DRAFT_8B, machine, Workload(), block_sizes=[8, 16])
    assert cost.break_even_tau(costs, 16) == pytest.approx(1.29, rel=0.2)  # paper, Math500
    # Halving the block saved about 3 % of the cycle there (Table 8).
    assert cost.break_even_tau(costs, 8) == pytest.approx(cost.break_even_tau(costs, 16), rel=0.05)


def test_nothing_is_modelled_without_bandwidth_or_size():
    blind = Hardware("auto", "some laptop", 8_000_000_000, None)
    assert cost.modelled_costs(QWEN3_8B, None, blind, Workload(), block_sizes=[4]) is None
    machine = load_hardware("h200").hardware()
    assert cost.modelled_costs(ModelShape(), None, machine, Workload(), block_sizes=[4]) is None


def test_memory_counts_weights_caches_taps_and_logits():
    work = Workload(prompt_tokens=32_000, output_tokens=768)
    need = cost.memory_need(QWEN3_8B, DRAFT_8B, work, block_size=16)
    assert need.target_weights == QWEN3_8B.num_params * 2
    assert need.taps == 5 * 32_768 * 4096 * 2 == 1.25 * 2**30
    assert need.target_kv == cost.kv_bytes_per_sequence(QWEN3_8B, 32_768)
    assert need.complete
    assert need.total == sum(
        (need.target_weights, need.draft_weights, need.target_kv, need.draft_kv, need.taps, need.workspace)
    )  # fmt: skip
    windowed = cost.memory_need(QWEN3_8B, DRAFT_8B, work, block_size=16, draft_window=4096)
    assert windowed.draft_kv == need.draft_kv / 8
