"""The guide's four rules, exactly as written."""

from __future__ import annotations

import pytest

from advisor import guide


@pytest.mark.parametrize(
    ("num_params", "value", "low", "high"),
    [(135e6, 2, 1, 4), (4e9, 2, 1, 4), (8e9, 2, 1, 4), (20e9, 12, 8, 16), (120e9, 12, 8, 16)],
)
def test_block_size_is_two_up_to_8b_and_twelve_from_20b(num_params, value, low, high):
    said = guide.block_size(num_params)
    assert (said.value, said.low, said.high, said.interpolated) == (value, low, high, False)


def test_block_size_between_8b_and_20b_is_interpolated_and_says_so():
    said = guide.block_size(14e9)
    assert (said.value, said.interpolated) == (7, True)
    assert said.reason.startswith("interpolated")
    sizes = [guide.block_size(n * 1e9).value for n in range(8, 21)]
    assert sizes == sorted(sizes)


def test_taps_are_three_spaced_layers_from_30b_and_uniform_below():
    assert guide.target_layer_ids(120e9, None).value == [2, 14, 26]
    assert guide.target_layer_ids(30e9, 48).value == [1, 23, 45]
    assert guide.target_layer_ids(8e9, 36).value == [1, 9, 17, 25, 33]
    assert not guide.target_layer_ids(8e9, None).known
    assert not guide.target_layer_ids(8e9, 3).known


@pytest.mark.parametrize(
    ("num_params", "prompt_tokens", "window"),
    [(8e9, 200, None), (8e9, 8000, 4096), (30e9, 200, None), (31e9, 200, 4096), (None, 5000, 4096)],
)
def test_window_is_4096_for_long_prompts_or_large_targets(num_params, prompt_tokens, window):
    assert guide.sliding_window_size(num_params, prompt_tokens).value == window


def test_mask_is_the_pad_token_else_eos():
    assert guide.mask_token_id(0, (7,)).value == 0
    assert guide.mask_token_id(None, (7, 8)).value == 7
    assert not guide.mask_token_id(None, ()).known
