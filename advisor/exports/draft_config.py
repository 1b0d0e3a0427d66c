"""A draft's config.json, where writing one is legitimate.

Training: a whole new config from the target's shape and the recommended knobs. Serving: a window on
a draft with full attention, which engines without a flag read from the config. Taps, mask and block
size of a trained draft are never rewritten.
"""

from __future__ import annotations

import json
from typing import Any

from advisor.schema import DraftSpec, Knob, TargetSpec
from advisor.situation import Situation
from advisor.training import NUM_DRAFT_LAYERS

_PUBLISHED_LAYOUTS = ("z-lab", "assistant")
_MAX_CHARACTERS = 200_000
_MAX_LAYERS = 1024


def config_for(situation: Situation, knobs: dict[str, Knob]) -> dict[str, Any] | None:
    """The config to write, or ``None`` when none may or can be written."""
    if situation.mode == "train":
        return _new(situation.target, knobs) if situation.target else None
    window = knobs["sliding_window_size"]
    draft = situation.draft
    if draft is None or not draft.raw or not window.tunable or not window.value:
        return None
    if draft.dialect not in _PUBLISHED_LAYOUTS or not _is_plain_json(draft.raw):
        return None
    if (draft.shape.num_layers or 1) > _MAX_LAYERS:
        return None
    return _windowed(draft, window.value)


def _is_plain_json(raw: dict[str, Any]) -> bool:
    """Whether a config can be written back: finite numbers only, and no bottomless nesting."""
    try:
        return len(json.dumps(raw, allow_nan=False)) <= _MAX_CHARACTERS
    except (ValueError, RecursionError):
        return False


def _new(target: TargetSpec, knobs: dict[str, Knob]) -> dict[str, Any] | None:
    shape = target.shape
    block, taps = knobs["block_size"].value, knobs["target_layer_ids"].value
    if not (
        shape.hidden_size and shape.num_layers and shape.num_attention_heads and block and taps
    ):
        return None
    window = knobs["sliding_window_size"].value
    sliding = "sliding_attention" if window else "full_attention"
    config: dict[str, Any] = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "block_size": block,
        "num_target_layers": shape.num_layers,
        "dflash_config": {"target_layer_ids": list(taps)},
        "num_hidden_layers": NUM_DRAFT_LAYERS,
        "layer_types": [sliding] * (NUM_DRAFT_LAYERS - 1) + ["full_attention"],
        "sliding_window": window,
        "use_sliding_window": window is not None,
        "is_causal": False,  # written, because engines differ on what its absence means
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_attention_heads": shape.num_attention_heads,
        "num_key_value_heads": shape.num_kv_heads or shape.num_attention_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab_size,
        "max_position_embeddings": target.max_position_embeddings,
        "rope_theta": target.rope.theta,
        "tie_word_embeddings": False,
    }
    mask = knobs["mask_token_id"].value
    if mask is not None:
        config["dflash_config"]["mask_token_id"] = mask
    return {key: value for key, value in config.items() if value is not None}


def _windowed(draft: DraftSpec, window: int) -> dict[str, Any]:
    num_layers = (
        min(draft.shape.num_layers or 0, _MAX_LAYERS)
        or len(draft.shape.layer_types or ())
        or NUM_DRAFT_LAYERS
    )
    return {
        **draft.raw,
        # The last layer keeps full attention, as the drafts trained with windows have it.
        "layer_types": ["sliding_attention"] * (num_layers - 1) + ["full_attention"],
        "sliding_window": window,
        "use_sliding_window": True,
        # Unwritten, it means causal for sliding layers and bidirectional for full ones, so a layer
        # made sliding would turn causal (https://github.com/sgl-project/sglang/pull/34524).
        "is_causal": bool(draft.is_causal),
    }
