"""Which published pair a config belongs to. Knows names and catalogue entries; knows no rule.

A name may be a hub id, a local path that ends like one, or a catalogue id.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import PurePath

from advisor.schema import Dialect, DraftSpec, ModelShape, RopeSpec, TargetSpec
from dflash.presets import DraftFacts, PairPreset, TargetFacts, load_pair, pair_ids

_QUANTIZED_NAME = re.compile(
    r"(?i)(?:^|[-_.])(awq|gptq|fp8|fp4|nvfp4|mxfp4|int[48]|w[48]a\d+|[3-8]-?bit|bnb|gguf|exl[23]|"
    r"i?q\d(?:_\w+)?)(?=$|[-_.])"
)
_FORMAT_NAME = re.compile(r"(?i)[-_.](?:bf16|fp16|f16|fp32|f32|hf|mlx|safetensors)(?=$|[-_.])")


@cache
def known_pairs() -> tuple[PairPreset, ...]:
    """Every pair of the catalogue."""
    return tuple(load_pair(pair_id) for pair_id in pair_ids())


def same_model(name: str | None, other: str | None) -> bool:
    """Whether two names mean the same model, however much of the path each one carries."""
    if not name or not other:
        return False
    ours, theirs = _name_parts(name), _name_parts(other)
    for shipped, given in ((ours, theirs), (theirs, ours)):
        if shipped[0] == "presets":  # its folders are called draft and target, as many others are
            return given[-len(shipped) :] == shipped
    if len(ours) > 1 and len(theirs) > 1 and not (_is_path(name) or _is_path(other)):
        return ours[-2:] == theirs[-2:]
    return ours[-1] == theirs[-1]


def pairs_with_draft(name: str | None) -> tuple[PairPreset, ...]:
    """Return the pairs whose draft, in any revision or mirror, goes by this name."""
    return tuple(
        pair
        for pair in known_pairs()
        if _is_id(name, pair) or any(same_model(name, known) for known in draft_names(pair))
    )


def pairs_with_target(name: str | None) -> tuple[PairPreset, ...]:
    """Return the pairs whose target goes by this name."""
    return tuple(
        pair
        for pair in known_pairs()
        if _is_id(name, pair) or any(same_model(name, known) for known in target_names(pair.target))
    )


def base_of(name: str | None) -> tuple[str, ...]:
    """Return the published target that a name is visibly derived from (Qwen3-8B-abliterated)."""
    if not name or pairs_with_target(name) or pairs_with_target(without_format(name)):
        return ()
    ours = _name_parts(name)[-1]
    known = [n for pair in known_pairs() for n in target_names(pair.target)]
    bases = [n for n in known if _is_word_in(_name_parts(n)[-1], ours)]
    return (max(bases, key=len),) if bases else ()


def _is_word_in(base: str, name: str) -> bool:
    """Whether ``base`` stands in ``name`` as whole words: 8b is not in 18b or 8bit."""
    return re.search(rf"(?:^|[-_.]){re.escape(base)}(?:$|[-_])", name) is not None


def without_format(name: str) -> str:
    """Return the last part of a name without marks of quantisation, dtype or file format."""
    return _FORMAT_NAME.sub("", _QUANTIZED_NAME.sub("", _name_parts(name)[-1]))


def quantization_in(name: str | None) -> str | None:
    """Return how a checkpoint says in its name that it is quantised (AWQ, 4bit, ...)."""
    match = _QUANTIZED_NAME.search(_name_parts(name)[-1]) if name else None
    return match.group(1) if match else None


def draft_names(pair: PairPreset) -> tuple[str, ...]:
    """Every name the pair's draft is published under."""
    names = (n for facts in pair.drafts for n in (facts.hub_id, facts.path, *facts.mirrors))
    return tuple(name for name in names if name)


def target_names(target: TargetFacts) -> tuple[str, ...]:
    """Every name the target is published under."""
    return tuple(name for name in (target.hub_id, target.path, *target.aliases) if name)


def same_numbers(draft: DraftSpec, facts: DraftFacts) -> bool:
    """Whether the taps are equal and no other known number but the block differs."""
    if draft.target_layer_ids is None or draft.target_layer_ids != facts.target_layer_ids:
        return False
    both = (
        (draft.num_target_layers, facts.num_target_layers),
        (draft.shape.hidden_size, facts.hidden_size),
        (draft.shape.num_layers, facts.num_layers),
        (draft.mask_token_id, facts.mask_token_id),
    )
    return all(None in (ours, theirs) or ours == theirs for ours, theirs in both)


def draft_from_facts(pair: PairPreset) -> DraftSpec:
    """Return what the catalogue knows of a pair's draft. ``raw`` is empty: no file was read."""
    facts = pair.draft
    dialect: Dialect = facts.format
    return DraftSpec(
        dialect=dialect,
        architecture="DFlash2DraftModel" if dialect == "dflash2" else "DFlashDraftModel",
        name=facts.hub_id or facts.path or pair.id,
        target_name=next(iter(target_names(pair.target)), None),
        block_size=facts.block_size,
        target_layer_ids=facts.target_layer_ids,
        num_target_layers=facts.num_target_layers,
        mask_token_id=facts.mask_token_id,
        shape=_draft_shape(facts),
        rope=RopeSpec(theta=facts.rope_theta, rope_type="yarn" if facts.yarn_factor else None),
        is_causal=facts.is_causal,
        max_position_embeddings=facts.max_position_embeddings,
        attention_bias=facts.attention_bias,
        final_logit_softcapping=facts.final_logit_softcapping,
        output_multiplier=facts.output_multiplier,
    )


def target_from_facts(pair: PairPreset) -> TargetSpec:
    """Return what the catalogue knows of a pair's target. ``raw`` is empty: no file was read."""
    facts = pair.target
    return TargetSpec(
        model_type=facts.family,
        name=next(iter(target_names(facts)), pair.id),
        shape=ModelShape(
            num_params=facts.num_params,
            num_active_params=facts.num_active_params,
            bits_per_weight=_bits_per_weight(facts),
            num_layers=facts.num_layers,
            hidden_size=facts.hidden_size,
            intermediate_size=facts.intermediate_size,
            num_attention_heads=facts.num_attention_heads,
            num_kv_heads=facts.num_kv_heads,
            head_dim=facts.head_dim,
            vocab_size=facts.vocab_size,
            num_experts=facts.num_experts,
            num_experts_per_token=facts.num_experts_per_token,
            layer_types=facts.layer_types,
            sliding_window=facts.sliding_window,
        ),
        max_position_embeddings=facts.context_tokens,
        tie_word_embeddings=facts.tied_embeddings,
        eos_token_ids=facts.eos_token_ids,
        pad_token_id=facts.pad_token_id,
    )


def _bits_per_weight(facts: TargetFacts) -> float | None:
    if facts.weights_bytes is None or facts.num_params is None:
        return None
    return 8 * facts.weights_bytes / facts.num_params


def _draft_shape(facts: DraftFacts) -> ModelShape:
    return ModelShape(
        # Published drafts are bf16: two bytes a parameter.
        num_params=facts.num_params or (facts.weights_bytes and facts.weights_bytes // 2),
        num_layers=facts.num_layers,
        hidden_size=facts.hidden_size,
        intermediate_size=facts.intermediate_size,
        num_attention_heads=facts.num_attention_heads,
        num_kv_heads=facts.num_kv_heads,
        head_dim=facts.head_dim,
        vocab_size=facts.vocab_size,
        layer_types=facts.layer_types,
        sliding_window=facts.sliding_window,
    )


def _is_id(name: str | None, pair: PairPreset) -> bool:
    return name is not None and name.strip().lower() == pair.id


def _is_path(name: str) -> bool:
    return name.startswith(("/", ".", "~", "presets/")) or len(PurePath(name).parts) > 2


def _name_parts(name: str) -> tuple[str, ...]:
    """Split a name into lower-case parts; a hub cache folder counts as the id it stands for, and
    a GGUF's title (Qwen3 8B) as the folder it was converted from (Qwen3-8B)."""
    words = "-".join(name.lower().split())
    parts = tuple(part for part in words.replace("\\", "/").split("/") if part)
    for part in parts:
        if part.startswith("models--"):
            return tuple(part.split("--")[1:])
    return parts or ("",)
