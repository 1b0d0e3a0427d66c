"""The tuning guide's four rules, exactly as written. Knows sizes and token ids; no evidence.

The guide ("How to Optimize DFlash Performance for Different Model Sizes") goes by parameter count
and prompt length alone. Its rules are always shown beside the answer; what speaks against them is
stated elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dflash.taps import build_target_layer_ids

SMALL_PARAMS = 8e9  # "block_size 1-4 for <=8B"
LARGE_PARAMS = 20e9  # "8-16 for >=20B"
SPARSE_PARAMS = 30e9  # "2-3 well-spaced layers for >=30B"
SMALL_EXAMPLE, SMALL_RANGE = 2, (1, 4)
LARGE_EXAMPLE, LARGE_RANGE = 12, (8, 16)
WINDOW = 4096
LONG_PROMPT_TOKENS = 2000  # "prompts exceeding a few thousand tokens"
SPARSE_EXAMPLE = (2, 14, 26)  # the guide's own, "in a 120B parameter model"
NUM_SPARSE_TAPS = 3
NUM_UNIFORM_TAPS = 5  # the published default that the guide leaves in place


@dataclass(frozen=True, slots=True)
class GuideAnswer:
    """What the guide says for one knob. ``known`` is False when it needs more than was given."""

    value: Any
    reason: str
    known: bool = True
    low: int | None = None
    high: int | None = None
    interpolated: bool = False


def block_size(num_params: float | None) -> GuideAnswer:
    """Answer 2 (of 1-4) up to 8B, 12 (of 8-16) from 20B, a labelled interpolation between."""
    if num_params is None:
        return GuideAnswer(None, "the guide goes by parameter count, which is not known", False)
    if num_params <= SMALL_PARAMS:
        reason = "guide: block size 1-4 for at most 8B parameters, 2 in its example"
        return GuideAnswer(SMALL_EXAMPLE, reason, True, *SMALL_RANGE)
    if num_params >= LARGE_PARAMS:
        reason = "guide: block size 8-16 from 20B parameters, 12 in its example"
        return GuideAnswer(LARGE_EXAMPLE, reason, True, *LARGE_RANGE)
    share = (num_params - SMALL_PARAMS) / (LARGE_PARAMS - SMALL_PARAMS)

    def between(small: int, large: int) -> int:
        return round(small + share * (large - small))

    reason = (
        f"interpolated: the guide is silent between 8B (2) and 20B (12); "
        f"{num_params / 1e9:.3g}B lies {share:.0%} of the way"
    )
    low = between(SMALL_RANGE[0], LARGE_RANGE[0])
    high = between(SMALL_RANGE[1], LARGE_RANGE[1])
    return GuideAnswer(between(SMALL_EXAMPLE, LARGE_EXAMPLE), reason, True, low, high, True)


def target_layer_ids(num_params: float | None, num_layers: int | None) -> GuideAnswer:
    """Answer 3 well-spaced layers from 30B, else the uniform rule over the target's depth."""
    if num_params is None and num_layers is None:
        return GuideAnswer(None, "the guide goes by parameter count, which is not known", False)
    sparse = num_params is not None and num_params >= SPARSE_PARAMS
    if sparse and num_layers is None:
        reason = (
            "guide: 2-3 well-spaced layers from 30B parameters; its own example, "
            "as the target's depth is not known"
        )
        return GuideAnswer(list(SPARSE_EXAMPLE), reason)
    if num_layers is None:
        reason = "guide: uniform over the target's layers, whose number is not known"
        return GuideAnswer(None, reason, False)
    num_taps = NUM_SPARSE_TAPS if sparse else NUM_UNIFORM_TAPS
    reason = (
        f"guide: 2-3 well-spaced layers from 30B parameters ({num_taps} of {num_layers})"
        if sparse
        else f"guide: uniform below 30B parameters ({num_taps} of {num_layers} layers)"
    )
    try:
        return GuideAnswer(build_target_layer_ids(num_layers, num_taps), reason)
    except ValueError as error:
        return GuideAnswer(None, f"guide: {error}", False)


def sliding_window_size(num_params: float | None, prompt_tokens: int | None) -> GuideAnswer:
    """Answer 4096 for prompts of thousands of tokens or above 30B parameters, else no window."""
    if prompt_tokens is not None and prompt_tokens >= LONG_PROMPT_TOKENS:
        reason = f"guide: 4096 for prompts of thousands of tokens ({prompt_tokens} given)"
        return GuideAnswer(WINDOW, reason)
    if num_params is not None and num_params > SPARSE_PARAMS:
        return GuideAnswer(WINDOW, "guide: 4096 for targets above 30B parameters")
    if num_params is None and prompt_tokens is None:
        reason = "the guide goes by prompt length and parameter count; neither is known"
        return GuideAnswer(None, reason, False)
    return GuideAnswer(None, "guide: no window for short prompts on targets of at most 30B")


def mask_token_id(pad_token_id: int | None, eos_token_ids: tuple[int, ...]) -> GuideAnswer:
    """Answer the target tokenizer's pad token, else its EOS."""
    if pad_token_id is not None:
        return GuideAnswer(pad_token_id, "guide: the target tokenizer's pad token")
    if eos_token_ids:
        return GuideAnswer(eos_token_ids[0], "guide: no pad token, so the tokenizer's EOS")
    reason = "guide: the target tokenizer's pad token, else its EOS; no tokenizer was given"
    return GuideAnswer(None, reason, False)
