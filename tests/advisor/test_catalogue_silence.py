"""Every published draft, written out as its config.json, passes the doctor in silence."""

from __future__ import annotations

from typing import Any

import pytest
from doctor_configs import write_json

from advisor.check import check
from advisor.known import draft_names, known_pairs, target_names
from dflash.presets import DraftFacts, PairPreset

REVISIONS = [
    pytest.param(pair, facts, id=f"{pair.id}-{i}")
    for pair in known_pairs()
    for i, facts in enumerate(pair.drafts)
    if facts.target_layer_ids is not None and facts.hidden_size is not None
]
FAMILY_DEFAULTS = {
    "num_hidden_layers": 5,
    "block_size": 16,
    "mask_token_id": 12,
    "rope_theta": 1000000.0,
    "sliding_window": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
}


def written(facts: DraftFacts, *, name: str | None) -> dict[str, Any]:
    """A revision as its own config.json; what is not published gets a harmless value."""

    def known(key: str, value: Any) -> Any:
        return FAMILY_DEFAULTS[key] if value is None else value

    layers = known("num_hidden_layers", facts.num_layers)
    types = list(facts.layer_types or ["full_attention"] * layers)
    slides = "sliding_attention" in types
    inner = {
        "mask_token_id": known("mask_token_id", facts.mask_token_id),
        "target_layer_ids": list(facts.target_layer_ids or ()),
        "block_size": known("block_size", facts.block_size),
    }
    config: dict[str, Any] = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_target_layers": facts.num_target_layers,
        "num_hidden_layers": layers,
        "hidden_size": facts.hidden_size,
        "num_attention_heads": known("num_attention_heads", facts.num_attention_heads),
        "num_key_value_heads": known("num_key_value_heads", facts.num_kv_heads),
        "layer_types": types,
        "sliding_window": known("sliding_window", facts.sliding_window) if slides else None,
        "rope_theta": known("rope_theta", facts.rope_theta),
        "dtype": "bfloat16",
        "vocab_size": facts.vocab_size,
        "max_position_embeddings": facts.max_position_embeddings,
        "is_causal": facts.is_causal,
        "attention_bias": facts.attention_bias,
    }
    if facts.yarn_factor is not None:
        config["rope_scaling"] = {
            "rope_type": "yarn",
            "factor": facts.yarn_factor,
            "original_max_position_embeddings": facts.yarn_original_context_tokens or 4096,
        }
    if name is not None:
        config["_name_or_path"] = name
    if facts.format == "assistant":
        return config | inner | {"model_type": "muse_glimmer_assistant"}
    if facts.format == "dflash2":
        config["architectures"] = ["DFlash2DraftModel"]
        inner |= {"selector_rank": 256, "selector_top_k": 16}
    if facts.format == "speculators":
        return speculators_layout(config, inner)
    return config | {"dflash_config": inner}


def speculators_layout(config: dict[str, Any], inner: dict[str, Any]) -> dict[str, Any]:
    return {
        "speculators_model_type": "dflash",
        "block_size": inner["block_size"],
        "mask_token_id": inner["mask_token_id"],
        "aux_hidden_state_layer_ids": [i + 1 for i in inner["target_layer_ids"]],
        "transformer_layer_config": config,
    }


def target_config(pair: PairPreset, facts: DraftFacts) -> dict[str, Any]:
    target = pair.target
    return {
        "_name_or_path": next(iter(target_names(target)), pair.id),
        "model_type": target.family,
        "hidden_size": target.hidden_size or facts.hidden_size,
        "num_hidden_layers": target.num_layers or facts.num_target_layers,
        "vocab_size": target.vocab_size or facts.vocab_size,
        "max_position_embeddings": target.context_tokens,
        "eos_token_id": list(target.eos_token_ids) or None,
        "pad_token_id": target.pad_token_id,
        "tie_word_embeddings": target.tied_embeddings,
        "torch_dtype": "bfloat16",
    }


@pytest.mark.parametrize(("pair", "facts"), REVISIONS)
def test_no_published_draft_gets_an_error_or_a_warning(pair, facts, tmp_path):
    target = write_json(tmp_path / "target" / "config.json", target_config(pair, facts))
    own_name = next(iter(draft_names(pair)), pair.id)
    # A mask that is EOS is only believed of the one draft that was published so.
    is_odd = facts.mask_token_id in pair.target.eos_token_ids
    for name in (own_name,) if is_odd else (own_name, None):
        draft = write_json(tmp_path / "draft" / "config.json", written(facts, name=name))
        for given in (None, target):
            report = check(draft, target=given)
            assert [f for f in report.findings if f.severity != "note"] == []
            assert report.draft.target_layer_ids == facts.target_layer_ids


@pytest.mark.parametrize("pair", known_pairs(), ids=lambda pair: pair.id)
def test_a_catalogue_id_is_enough_and_unknown_facts_are_not_called_missing(pair):
    names = [pair.id, *draft_names(pair)]
    for name in names:
        report = check(name, target=next(iter(target_names(pair.target)), pair.id))
        assert [f for f in report.findings if f.severity != "note"] == [], name


def test_the_catalogue_test_covers_the_published_drafts():
    assert len(REVISIONS) >= 25
