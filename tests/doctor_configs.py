"""Healthy configs in every dialect, for the config doctor's tests to break one thing at a time.

Numbers are those of published files: Qwen3-4B and -8B block 16, Qwen3.6-27B with windows, the
DFlash 2 and assistant fixtures of z-lab/dflash, a speculators file, llama.cpp issue 25792.
"""

from __future__ import annotations

import copy
import json
import struct
from pathlib import Path
from typing import Any

Config = dict[str, Any]


def zlab_4b() -> Config:
    """Qwen3-4B, block 16, full attention, block size at the top level."""
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "block_size": 16,
        "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
        "num_target_layers": 36,
        "num_hidden_layers": 5,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "layer_types": ["full_attention"] * 5,
        "sliding_window": None,
        "use_sliding_window": False,
        "rope_theta": 1000000,
        "rope_scaling": None,
        "max_position_embeddings": 40960,
        "attention_bias": False,
        "dtype": "bfloat16",
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "vocab_size": 151936,
        "tie_word_embeddings": False,
    }


def zlab_sliding() -> Config:
    """Qwen3.6-27B, block 16, four sliding layers and a full one, causality written out."""
    return zlab_4b() | {
        "block_size": 16,
        "dflash_config": {"mask_token_id": 248070, "target_layer_ids": [1, 16, 31, 46, 61]},
        "num_target_layers": 64,
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "layer_types": ["sliding_attention"] * 4 + ["full_attention"],
        "sliding_window": 2048,
        "use_sliding_window": True,
        "is_causal": False,
        "rope_theta": 10000000,
        "max_position_embeddings": 262144,
        "bos_token_id": None,
        "eos_token_id": 248044,
        "vocab_size": 248320,
    }


def zlab_nested_eight_taps() -> Config:
    """The June 2026 layout: six layers, eight taps, block size inside dflash_config."""
    config = zlab_sliding() | {
        "num_target_layers": 40,
        "num_hidden_layers": 6,
        "hidden_size": 2048,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        "sliding_window": 4096,
        "dflash_config": {
            "block_size": 16,
            "mask_token_id": 248077,
            "target_layer_ids": [1, 6, 11, 16, 22, 27, 32, 37],
        },
    }
    del config["block_size"]
    return config


def dflash2() -> Config:
    """Muse-Glimmer-30B, DFlash 2, everything inside dflash_config."""
    return {
        "architectures": ["DFlash2DraftModel"],
        "model_type": "qwen3",
        "is_causal": False,
        "dflash_config": {
            "block_size": 16,
            "conv_group_size": 16,
            "conv_kernel_size": 2,
            "final_logit_softcapping": 20.0,
            "mask_token_id": 201818,
            "output_multiplier": 0.19611613513818404,
            "selector_rank": 256,
            "selector_top_k": 16,
            "target_layer_ids": [1, 13, 25, 37, 49],
        },
        "dtype": "bfloat16",
        "bos_token_id": 200000,
        "eos_token_id": 200001,
        "pad_token_id": 200018,
        "head_dim": 128,
        "hidden_size": 6656,
        "intermediate_size": 19968,
        "layer_types": ["sliding_attention"] * 5,
        "sliding_window": 2048,
        "use_sliding_window": True,
        "max_position_embeddings": 131072,
        "num_attention_heads": 32,
        "num_hidden_layers": 5,
        "num_key_value_heads": 8,
        "num_target_layers": 52,
        "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
        "attention_bias": False,
        "vocab_size": 202048,
    }


def assistant() -> Config:
    """Muse-Glimmer assistant: flat, without vocab_size, num_target_layers or dflash_config."""
    return {
        "architectures": ["MuseGlimmerAssistantModel"],
        "model_type": "muse_glimmer_assistant",
        "block_size": 16,
        "mask_token_id": 201818,
        "target_layer_ids": [1, 13, 25, 37, 49],
        "bos_token_id": 200000,
        "eos_token_id": 200001,
        "pad_token_id": 200018,
        "dtype": "bfloat16",
        "head_dim": 128,
        "hidden_size": 6656,
        "intermediate_size": 19968,
        "layer_types": ["sliding_attention"] * 5,
        "sliding_window": 2048,
        "max_position_embeddings": 131072,
        "num_attention_heads": 32,
        "num_hidden_layers": 5,
        "num_key_value_heads": 8,
        "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
    }


def speculators() -> Config:
    """Qwen3-8B in the speculators layout: layer ids stored + 1, a verifier named."""
    return {
        "architectures": ["DFlashSpeculator"],
        "speculators_model_type": "dflash",
        "block_size": 16,
        "mask_token_id": 151669,
        "aux_hidden_state_layer_ids": [2, 10, 18, 26, 34],
        "draft_vocab_size": 151936,
        "sliding_window_non_causal": False,
        "speculators_config": {
            "algorithm": "dflash",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 15}],
            "verifier": {"name_or_path": "Qwen/Qwen3-8B", "architectures": ["Qwen3ForCausalLM"]},
        },
        "transformer_layer_config": {
            "model_type": "qwen3",
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_hidden_layers": 5,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "layer_types": ["full_attention"] * 5,
            "rope_theta": 1000000,
            "max_position_embeddings": 40960,
            "vocab_size": 151936,
        },
    }


def gguf_metadata() -> Config:
    """Qwen3-8B as llama.cpp's converter writes it: layer ids + 1, mask on the tokenizer's key."""
    return {
        "general.architecture": "dflash",
        "general.file_type": 32,
        "dflash.block_size": 16,
        "dflash.target_layers": [2, 10, 18, 26, 34],
        "dflash.block_count": 5,
        "dflash.embedding_length": 4096,
        "dflash.feed_forward_length": 12288,
        "dflash.attention.head_count": 32,
        "dflash.attention.head_count_kv": 8,
        "dflash.attention.key_length": 128,
        "dflash.context_length": 40960,
        "dflash.rope.freq_base": 1000000.0,
        "tokenizer.ggml.mask_token_id": 151669,
        "tokenizer.ggml.eos_token_id": 151645,
    }


def target_4b() -> Config:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "rope_theta": 1000000,
        "tie_word_embeddings": True,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "vocab_size": 151936,
        "torch_dtype": "bfloat16",
    }


def target_8b() -> Config:
    return target_4b() | {"hidden_size": 4096, "tie_word_embeddings": False}


def target_27b_wrapped() -> Config:
    """A multimodal wrapper around a hybrid text model."""
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": target_4b()
        | {
            "model_type": "qwen3_5_text",
            "hidden_size": 5120,
            "num_hidden_layers": 64,
            "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
            "max_position_embeddings": 262144,
            "rope_theta": 10000000,
            "tie_word_embeddings": False,
            "bos_token_id": None,
            "eos_token_id": 248044,
            "vocab_size": 248320,
        },
        "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
    }


def target_muse() -> Config:
    return target_4b() | {
        "hidden_size": 6656,
        "num_hidden_layers": 52,
        "max_position_embeddings": 131072,
        "rope_theta": 500000,
        "tie_word_embeddings": False,
        "bos_token_id": 200000,
        "eos_token_id": 200001,
        "vocab_size": 202048,
    }


def target_35b() -> Config:
    return target_4b() | {
        "hidden_size": 2048,
        "num_hidden_layers": 40,
        "max_position_embeddings": 262144,
        "rope_theta": 10000000,
        "bos_token_id": None,
        "eos_token_id": [248046, 248044],
        "vocab_size": 248320,
    }


HEALTHY: dict[str, tuple[Config, Config]] = {
    "z-lab": (zlab_4b(), target_4b()),
    "z-lab sliding": (zlab_sliding(), target_27b_wrapped()),
    "z-lab nested, eight taps": (zlab_nested_eight_taps(), target_35b()),
    "dflash2": (dflash2(), target_muse()),
    "assistant": (assistant(), target_muse()),
    "speculators": (speculators(), target_8b()),
    "gguf": (gguf_metadata(), target_8b()),
}


def changed(config: Config, /, **changes: Any) -> Config:
    """Return a deep copy with changes; ``a__b`` reaches into a nested object, ``...`` deletes."""
    result = copy.deepcopy(config)
    for path, value in changes.items():
        *parents, key = path.split("__")
        place = result
        for parent in parents:
            place = place[parent]
        if value is ...:
            del place[key]
        else:
            place[key] = value
    return result


def write_json(path: Path, value: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return str(path)


def draft_shapes(config: Config) -> dict[str, list[int]]:
    """The tensors a z-lab checkpoint with this config holds."""
    hidden, dim = config["hidden_size"], config["head_dim"]
    taps = len(config["dflash_config"]["target_layer_ids"])
    shapes = {"fc.weight": [hidden, taps * hidden], "hidden_norm.weight": [hidden]}
    for i in range(config["num_hidden_layers"]):
        shapes[f"layers.{i}.self_attn.q_proj.weight"] = [
            config["num_attention_heads"] * dim, hidden
        ]  # fmt: skip
    return shapes | {"norm.weight": [hidden]}


def write_safetensors(path: Path, shapes: dict[str, list[int]], *, data: bytes = b"") -> None:
    """Write a safetensors header, with whatever bytes of data the test wants after it."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        size = 2
        for n in shape:
            size *= n
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    header = json.dumps(entries).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def _gguf_string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _gguf_value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<Ii", 5, value) if value < 0 else struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _gguf_string(value)
    items = b"".join(_gguf_value(item)[4:] for item in value)
    kind = _gguf_value(value[0])[:4]
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(value)) + items


def write_gguf(path: Path, metadata: Config, tensors: dict[str, list[int]] | None = None) -> str:
    """Write a GGUF header with these pairs and, innermost dimension first, these tensors."""
    listed = tensors or {}
    data = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(metadata))
    for key, value in metadata.items():
        data += _gguf_string(key) + _gguf_value(value)
    for name, shape in listed.items():
        data += _gguf_string(name) + struct.pack("<I", len(shape))
        data += b"".join(struct.pack("<Q", n) for n in shape) + struct.pack("<IQ", 1, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return str(path)
