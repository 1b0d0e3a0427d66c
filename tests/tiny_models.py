"""Tiny real models shared by the engine's tests; random, seeded, fp32."""

from __future__ import annotations

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from dflash.model import DFlashConfig, DFlashDraftModel

VOCAB = 96


def build_target(kind: str):
    """A four-layer target of the real class with scaled-up weights, so that logits differ."""
    torch.manual_seed(3)
    shape = {
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.25,
        "eos_token_id": None,
        "bos_token_id": None,
        "pad_token_id": None,
    }
    builders = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=True)),
        "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=32)),
        "sliding": lambda: MistralForCausalLM(MistralConfig(**shape, sliding_window=12)),
        "hybrid": lambda: Qwen3_5ForCausalLM(
            Qwen3_5TextConfig(
                **shape,
                head_dim=32,
                linear_num_key_heads=2,
                linear_num_value_heads=4,
                linear_key_head_dim=16,
                linear_value_head_dim=16,
                layer_types=["linear_attention", "full_attention"] * 2,
            )
        ),
    }
    return builders[kind]().eval()


def build_draft(target, *, window: int | None = None, layers: int = 2, block_size: int = 16):
    """A random draft for a tiny target; its last layer is full attention."""
    torch.manual_seed(5)
    types = ["sliding_attention" if window else "full_attention"] * (layers - 1)
    config = DFlashConfig(
        vocab_size=VOCAB,
        hidden_size=target.config.hidden_size,
        intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        rope_theta=10000.0,
        layer_types=[*types, "full_attention"],
        sliding_window=window,
        num_target_layers=target.config.num_hidden_layers,
        block_size=block_size,
        dflash_config={"mask_token_id": 95, "target_layer_ids": [0, 2]},
        initializer_range=0.25,
    )
    return DFlashDraftModel(config).eval()
