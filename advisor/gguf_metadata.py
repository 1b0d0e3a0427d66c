"""GGUF metadata, as a header or as JSON -> DraftSpec or TargetSpec.

Knows GGUF's key names. Knows no file. ``dflash.target_layers`` holds layer outputs + 1
(llama.cpp issue 25792); it is turned back here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from advisor.schema import DraftSpec, Finding, ModelShape, RopeSpec, TargetSpec
from advisor.values import Fields

_MAX_GROUPS = 4
_FOLDER_TITLES = ("Target", "Draft", "Model")
_UNQUANTIZED_FILE_TYPES = {0: "float32", 1: "float16", 32: "bfloat16"}


def flattened(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return GGUF metadata with dotted keys, however it was written down as JSON.

    Accepts gguf-dump's ``{"metadata": {key: {"value": ...}}}`` and nested groups
    (``{"dflash": {"block_size": 16}}``); anything else comes back as it is.
    """
    inner = raw.get("metadata")
    if isinstance(inner, dict) and is_gguf(inner):
        raw = {k: v["value"] if _is_dumped(v) else v for k, v in inner.items()}
    if not any(isinstance(raw.get(group), dict) for group in ("dflash", "general")):
        return raw
    return dict(_dotted(raw, "", _MAX_GROUPS))


def _is_dumped(value: Any) -> bool:
    return isinstance(value, dict) and "value" in value


def _dotted(values: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and depth > 0:
            yield from _dotted(value, f"{prefix}{key}.", depth - 1)
        else:
            yield f"{prefix}{key}", value


def is_gguf(raw: Mapping[str, Any]) -> bool:
    """Whether these keys are GGUF metadata rather than a config.json."""
    return any(key.startswith(("general.", "dflash.", "tokenizer.ggml.")) for key in raw)


def gguf_title(raw: Mapping[str, Any]) -> str | None:
    """The name in the file. A converter makes it of the folder's if there is no model card, and
    what folders are usually called names no model."""
    title = raw.get("general.name")
    if not isinstance(title, str) or not title.strip() or title in _FOLDER_TITLES:
        return None
    return title


def gguf_draft(
    raw: Mapping[str, Any],
    findings: list[Finding],
    *,
    name: str | None,
    tensor_shapes: dict[str, tuple[int, ...]] | None,
) -> DraftSpec:
    """Read the metadata of a DFlash GGUF. The draft's own mask id wins over the tokenizer's."""
    fields = Fields(raw, findings)
    stored = fields.integers("dflash.target_layers", "target_layer_ids")
    own_mask = "dflash.mask_token_id"
    mask_key = own_mask if fields.has(own_mask) else "tokenizer.ggml.mask_token_id"
    selector = fields.has("dflash.selector_rank")
    return DraftSpec(
        dialect="gguf",
        architecture="DFlash2DraftModel" if selector else "DFlashDraftModel",
        model_type=fields.text("general.architecture", "architecture"),
        name=name or gguf_title(raw),
        block_size=fields.integer("dflash.block_size", "block_size"),
        target_layer_ids=None if stored is None else tuple(i - 1 for i in stored),
        num_target_layers=fields.integer("dflash.num_target_layers", "num_target_layers"),
        mask_token_id=fields.integer(mask_key, "mask_token_id"),
        shape=_shape(fields, "dflash"),
        rope=_rope(fields, "dflash"),
        is_causal=fields.boolean("dflash.attention.causal", "is_causal"),
        max_position_embeddings=fields.integer("dflash.context_length", "context_length"),
        sample_from_anchor=bool(fields.boolean("dflash.sample_from_anchor", "block_size")),
        quantization=_quantization(fields),
        tensor_shapes=_torch_order(tensor_shapes),
        raw=dict(raw),
    )


def gguf_target(
    raw: Mapping[str, Any],
    findings: list[Finding],
    *,
    name: str | None,
    tensor_shapes: dict[str, tuple[int, ...]] | None,
) -> TargetSpec:
    """Read the metadata of a target's GGUF file."""
    fields = Fields(raw, findings)
    architecture = fields.text("general.architecture", "architecture")
    arch = architecture or next((k.split(".")[0] for k in raw if k.endswith(".block_count")), "")
    eos = fields.integer("tokenizer.ggml.eos_token_id", "stop_token_ids")
    return TargetSpec(
        architecture=architecture,
        model_type=architecture,
        name=name or gguf_title(raw),
        shape=_shape(fields, arch),
        rope=_rope(fields, arch),
        max_position_embeddings=fields.integer(f"{arch}.context_length", "context_length"),
        # A file without an output tensor reuses the embedding.
        tie_word_embeddings=None if not tensor_shapes else "output.weight" not in tensor_shapes,
        quantization=_quantization(fields),
        eos_token_ids=() if eos is None else (eos,),
        bos_token_id=fields.integer("tokenizer.ggml.bos_token_id"),
        pad_token_id=fields.integer("tokenizer.ggml.padding_token_id"),
        tensor_shapes=_torch_order(tensor_shapes),
        raw=dict(raw),
    )


def _shape(fields: Fields, arch: str) -> ModelShape:
    return ModelShape(
        num_layers=fields.integer(f"{arch}.block_count", "num_hidden_layers"),
        hidden_size=fields.integer(f"{arch}.embedding_length", "hidden_size"),
        intermediate_size=fields.integer(f"{arch}.feed_forward_length"),
        num_attention_heads=_heads(fields, f"{arch}.attention.head_count"),
        num_kv_heads=_heads(fields, f"{arch}.attention.head_count_kv"),
        head_dim=fields.integer(f"{arch}.attention.key_length"),
        vocab_size=_vocab_size(fields, arch),
        num_experts=fields.integer(f"{arch}.expert_count"),
        num_experts_per_token=fields.integer(f"{arch}.expert_used_count"),
        layer_types=_layer_types(fields, arch),
        sliding_window=fields.integer(f"{arch}.attention.sliding_window", "sliding_window"),
    )


def _heads(fields: Fields, key: str) -> int | None:
    """Hybrid targets write one count per layer, which no single number stands for."""
    return None if isinstance(fields.values.get(key), list) else fields.integer(key)


def _vocab_size(fields: Fields, arch: str) -> int | None:
    if fields.has(f"{arch}.vocab_size"):
        return fields.integer(f"{arch}.vocab_size", "vocab_size")
    tokens = fields.values.get("tokenizer.ggml.tokens")
    if isinstance(tokens, dict):  # our header reader keeps the length of a long list only
        return Fields(tokens, fields.findings).integer("length", "vocab_size")
    return len(tokens) if isinstance(tokens, list) and tokens else None


def _layer_types(fields: Fields, arch: str) -> tuple[str, ...] | None:
    pattern = fields.values.get(f"{arch}.attention.sliding_window_pattern")
    if not isinstance(pattern, list) or not all(isinstance(item, bool | int) for item in pattern):
        return None
    return tuple("sliding_attention" if item else "full_attention" for item in pattern)


def _rope(fields: Fields, arch: str) -> RopeSpec:
    theta = fields.number(f"{arch}.rope.freq_base", "rope")
    prefix = f"{arch}.rope.scaling."
    scaling = {
        key.removeprefix(prefix): value
        for key, value in fields.values.items()
        if key.startswith(prefix)
    }
    kind = scaling.get("type")
    return RopeSpec(
        theta=theta,
        theta_top=theta,
        rope_type=kind if isinstance(kind, str) else None,
        parameters=scaling,
    )


def _quantization(fields: Fields) -> str | None:
    file_type = fields.integer("general.file_type", "quantization")
    if file_type is None or file_type in _UNQUANTIZED_FILE_TYPES:
        return None
    return f"gguf file type {file_type}"


def _torch_order(
    shapes: dict[str, tuple[int, ...]] | None,
) -> dict[str, tuple[int, ...]] | None:
    """GGUF writes the innermost dimension first; [out, in] is torch's order."""
    return None if shapes is None else {name: shape[::-1] for name, shape in shapes.items()}
