"""config.json in every known dialect -> one DraftSpec or TargetSpec.

Knows how each publisher spells the same facts. Knows no file system, no rule and no engine. The
draft's layer ids come out as layer *outputs* counted from 0: speculators and GGUF files store
that id + 1 (sources: llama.cpp issue 25792; speculators' DFlash converter).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.gguf_metadata import flattened, gguf_draft, gguf_target, gguf_title, is_gguf
from advisor.relatives import find_relative
from advisor.schema import (
    Dialect,
    DraftSpec,
    Finding,
    ModelShape,
    RopeSpec,
    TargetSpec,
)
from advisor.values import Fields

_WRAPPED = ("text_config", "llm_config", "language_config", "thinker_config", "language_model")
_MAX_WRAPPERS = 4


@dataclass(frozen=True, slots=True)
class DraftReading:
    """A draft's config in one convention, and the values in it that had the wrong type."""

    spec: DraftSpec
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetReading:
    """A target's config, and the values in it that had the wrong type."""

    spec: TargetSpec
    findings: tuple[Finding, ...] = ()


def read_draft(
    raw: Mapping[str, Any],
    *,
    name: str | None = None,
    tensor_shapes: dict[str, tuple[int, ...]] | None = None,
) -> DraftReading:
    """Read a draft's config. Never raises: what cannot be read is ``None`` plus a finding.

    A relative of DFlash (DSpark, EAGLE, ...) comes back with dialect ``unknown`` and none of its
    settings, so that nothing downstream can take it for DFlash.
    """
    findings: list[Finding] = []
    raw = flattened(raw)
    dialect = draft_dialect(raw)
    if dialect == "gguf":
        spec = gguf_draft(raw, findings, name=name, tensor_shapes=tensor_shapes)
    elif dialect == "speculators":
        spec = _speculators(raw, findings, name, tensor_shapes)
    elif dialect == "unknown":
        spec = DraftSpec(
            dialect,
            architecture=_architecture(Fields(raw, [])),
            model_type=Fields(raw, []).text("model_type"),
            name=name or own_name(raw),
            raw=dict(raw),
        )
    else:
        spec = _hugging_face(raw, dialect, findings, name, tensor_shapes)
    return DraftReading(spec, tuple(findings))


def draft_dialect(raw: Mapping[str, Any]) -> Dialect:
    """Tell which spelling a draft config uses; ``unknown`` for anything that is not DFlash."""
    if find_relative(raw) is not None:
        return "unknown"
    if is_gguf(raw):
        return "gguf" if any(key.startswith("dflash.") for key in raw) else "unknown"
    if any(
        key in raw
        for key in ("speculators_model_type", "speculators_config", "aux_hidden_state_layer_ids")
    ):
        return "speculators"
    return _hugging_face_dialect(raw)


def _hugging_face_dialect(raw: Mapping[str, Any]) -> Dialect:
    section = raw.get("dflash_config")
    keys = set(raw) | (set(section) if isinstance(section, dict) else set())
    architecture = (_architecture(Fields(raw, [])) or "").lower()
    if "dflash2" in architecture or "selector_rank" in keys:
        return "dflash2"
    if "dflash_config" in raw or "dflash" in architecture:
        return "z-lab"
    model_type = raw.get("model_type")
    is_assistant = isinstance(model_type, str) and model_type.endswith("_assistant")
    return "assistant" if is_assistant or "target_layer_ids" in raw else "unknown"


def _hugging_face(
    raw: Mapping[str, Any],
    dialect: Dialect,
    findings: list[Finding],
    name: str | None,
    tensor_shapes: dict[str, tuple[int, ...]] | None,
) -> DraftSpec:
    outer = Fields(raw, findings)
    section = outer.nested("dflash_config")
    body = _body(outer)

    def trained(key: str) -> Fields:
        """Published files write a draft setting in dflash_config, at the top level, or both."""
        return section if section.has(key) else outer

    causal = trained("is_causal").boolean("is_causal", "is_causal")
    if causal is None:
        causal = trained("causal").boolean("causal", "is_causal")
    anchor = trained("sample_from_anchor").boolean("sample_from_anchor", "block_size")
    return DraftSpec(
        dialect=dialect,
        architecture=_architecture(outer),
        model_type=body.text("model_type", "architecture"),
        name=name or own_name(raw),
        target_name=_target_name(outer, section),
        block_size=trained("block_size").integer("block_size"),
        target_layer_ids=trained("target_layer_ids").integers("target_layer_ids"),
        num_target_layers=trained("num_target_layers").integer("num_target_layers"),
        mask_token_id=trained("mask_token_id").integer("mask_token_id"),
        shape=_shape(body),
        rope=_rope(body),
        is_causal=causal,
        max_position_embeddings=body.integer("max_position_embeddings", "context_length"),
        attention_bias=body.boolean("attention_bias"),
        final_logit_softcapping=trained("final_logit_softcapping").number(
            "final_logit_softcapping"
        ),
        output_multiplier=trained("output_multiplier").number("output_multiplier"),
        sample_from_anchor=bool(anchor),
        quantization=_quantization(raw, findings),
        draft_vocab_size=outer.integer("draft_vocab_size", "vocab_size"),
        tensor_shapes=tensor_shapes,
        raw=dict(raw),
    )


def _speculators(
    raw: Mapping[str, Any],
    findings: list[Finding],
    name: str | None,
    tensor_shapes: dict[str, tuple[int, ...]] | None,
) -> DraftSpec:
    outer = Fields(raw, findings)
    layers = outer.nested("transformer_layer_config")
    # Some writers repeat the window beside the layer config, where the layer config has null.
    overrides = {k: v for k in ("layer_types", "sliding_window") if (v := raw.get(k)) is not None}
    body = Fields({**layers.values, **overrides}, findings, layers.where)
    stored = outer.integers("aux_hidden_state_layer_ids", "target_layer_ids")
    speculators = outer.nested("speculators_config")
    verifier = speculators.nested("verifier")
    non_causal = outer.boolean("sliding_window_non_causal", "is_causal")
    return DraftSpec(
        dialect="speculators",
        architecture=_architecture(outer),
        model_type=body.text("model_type", "architecture"),
        name=name or own_name(raw),
        target_name=verifier.text("name_or_path", "architecture"),
        block_size=outer.integer("block_size"),
        target_layer_ids=None if stored is None else tuple(i - 1 for i in stored),
        num_target_layers=outer.integer("num_target_layers"),
        mask_token_id=outer.integer("mask_token_id"),
        shape=_shape(body),
        rope=_rope(body),
        is_causal=False if non_causal else outer.boolean("is_causal"),
        max_position_embeddings=body.integer("max_position_embeddings", "context_length"),
        attention_bias=body.boolean("attention_bias"),
        sample_from_anchor=bool(outer.boolean("sample_from_anchor", "block_size")),
        quantization=_quantization(raw, findings),
        draft_vocab_size=outer.integer("draft_vocab_size", "vocab_size"),
        tensor_shapes=tensor_shapes,
        raw=dict(raw),
    )


def read_target(
    raw: Mapping[str, Any],
    *,
    name: str | None = None,
    tensor_shapes: dict[str, tuple[int, ...]] | None = None,
) -> TargetReading:
    """Read a target's config; a multimodal wrapper's text model is what counts. Never raises."""
    findings: list[Finding] = []
    raw = flattened(raw)
    if is_gguf(raw):
        spec = gguf_target(raw, findings, name=name, tensor_shapes=tensor_shapes)
        return TargetReading(spec, tuple(findings))
    outer = Fields(raw, findings, "target's ")
    body = _body(outer)

    def either(key: str) -> Fields:
        return body if body.has(key) else outer

    spec = TargetSpec(
        architecture=_architecture(outer),
        model_type=either("model_type").text("model_type", "architecture"),
        name=name or own_name(raw),
        shape=_shape(Fields({**_shared(outer), **body.values}, findings, body.where)),
        rope=_rope(Fields(body.values, [])),
        max_position_embeddings=either("max_position_embeddings").integer(
            "max_position_embeddings", "context_length"
        ),
        tie_word_embeddings=either("tie_word_embeddings").boolean(
            "tie_word_embeddings", "embeddings"
        ),
        quantization=_quantization(raw, findings) or _quantization(body.values, findings),
        eos_token_ids=either("eos_token_id").integer_or_list("eos_token_id", "stop_token_ids"),
        bos_token_id=either("bos_token_id").integer("bos_token_id"),
        pad_token_id=either("pad_token_id").integer("pad_token_id"),
        tensor_shapes=tensor_shapes,
        raw=dict(raw),
    )
    return TargetReading(spec, tuple(findings))


def own_name(raw: Mapping[str, Any]) -> str | None:
    """Return the id a config was saved under, if it says so."""
    for key in ("_name_or_path", "name_or_path"):
        value = raw.get(key)
        if isinstance(value, str) and value.strip():
            return value
    return gguf_title(raw)


def _architecture(fields: Fields) -> str | None:
    names = fields.texts("architectures", "architecture")
    return names[0] if names else None


def _target_name(outer: Fields, section: Fields) -> str | None:
    for fields in (section, outer):
        for key in ("target_model", "target_model_name_or_path", "verifier_name_or_path"):
            value = fields.values.get(key)
            if isinstance(value, str) and value.strip():
                return value
    return None


def _body(fields: Fields) -> Fields:
    """Return the config of the text model inside a multimodal wrapper, or the config itself."""
    for _ in range(_MAX_WRAPPERS):
        key = next((k for k in _WRAPPED if isinstance(fields.values.get(k), dict)), None)
        if key is None:
            break
        fields = fields.nested(key)
    return fields


def _shared(outer: Fields) -> dict[str, Any]:
    """What a wrapper may state once for the model inside it."""
    keys = ("vocab_size", "dtype", "torch_dtype")
    return {key: outer.values[key] for key in keys if outer.has(key)}


def _shape(body: Fields) -> ModelShape:
    experts = ("num_experts", "num_local_experts", "n_routed_experts")
    experts_key = next((key for key in experts if body.has(key)), experts[0])
    dtype = "dtype" if body.has("dtype") else "torch_dtype"
    return ModelShape(
        num_layers=body.integer("num_hidden_layers"),
        hidden_size=body.integer("hidden_size"),
        intermediate_size=body.integer("intermediate_size"),
        num_attention_heads=body.integer("num_attention_heads"),
        num_kv_heads=body.integer("num_key_value_heads"),
        head_dim=body.integer("head_dim"),
        vocab_size=body.integer("vocab_size"),
        num_experts=body.integer(experts_key),
        num_experts_per_token=body.integer("num_experts_per_tok"),
        layer_types=body.texts("layer_types"),
        sliding_window=body.integer("sliding_window"),
        dtype=body.text(dtype, "dtype"),
    )


def _rope(body: Fields) -> RopeSpec:
    parameters = body.nested("rope_parameters", "rope")
    for layer_type in ("full_attention", "sliding_attention"):  # one set per layer type
        if isinstance(parameters.values.get(layer_type), dict):
            parameters = parameters.nested(layer_type, "rope")
            break
    scaling = body.nested("rope_scaling", "rope")
    top = body.number("rope_theta", "rope")
    nested = parameters.number("rope_theta", "rope")
    if nested is None:
        nested = scaling.number("rope_theta", "rope")
    written = parameters.values or scaling.values
    kind = Fields(written, body.findings, "rope_parameters.")
    rope_type = kind.text("rope_type" if kind.has("rope_type") else "type", "rope")
    return RopeSpec(
        theta=nested if nested is not None else top,
        theta_top=top,
        theta_nested=nested,
        rope_type=rope_type,
        parameters=dict(written),
    )


def _quantization(raw: Mapping[str, Any], findings: list[Finding]) -> str | None:
    for key in ("quantization_config", "compression_config", "quantization"):
        section = raw.get(key)
        if isinstance(section, str) and section:
            return section
        if isinstance(section, dict) and section:
            method = section.get("quant_method") or section.get("quant_algo")
            return method if isinstance(method, str) else key
        if section is not None and not isinstance(section, dict | str):
            Fields(raw, findings).nested(key, "quantization")  # records the wrong type
    return None
