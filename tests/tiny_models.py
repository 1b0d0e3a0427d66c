"""Tiny real models shared by the engine's tests; random, seeded, fp32."""

from __future__ import annotations

import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from dflash.model import DFlashConfig, DFlashDraftModel

VOCAB = 96


WINDOW = 12  # of every target that has one
SHAPE = {
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
DELTA_NET = {
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "layer_types": ["linear_attention", "full_attention"] * 2,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
# Untied: a random Gemma with a tied head repeats its input for ever.
GEMMA = {
    "head_dim": 16,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}


def build_target(kind: str, **changes):
    """A four-layer target of the real class with scaled-up weights, so that logits differ."""
    torch.manual_seed(3)
    shape = SHAPE | changes
    builders = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=True)),
        "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=32)),
        "sliding": lambda: MistralForCausalLM(MistralConfig(**shape, sliding_window=WINDOW)),
        "hybrid": lambda: Qwen3_5ForCausalLM(Qwen3_5TextConfig(**shape | DELTA_NET)),
        "qwen3_moe": lambda: Qwen3MoeForCausalLM(
            Qwen3MoeConfig(**shape, **EXPERTS, head_dim=16, decoder_sparse_step=1)
        ),
        "qwen3_next": lambda: Qwen3NextForCausalLM(
            Qwen3NextConfig(**shape | DELTA_NET | EXPERTS, shared_expert_intermediate_size=32)
        ),
        "gpt_oss": lambda: GptOssForCausalLM(
            GptOssConfig(
                **shape,
                head_dim=16,
                sliding_window=WINDOW,
                num_local_experts=4,
                num_experts_per_tok=2,
                rope_parameters={"rope_type": "default", "rope_theta": 150000.0},
            )
        ),
        "gemma3": lambda: Gemma3ForCausalLM(
            Gemma3TextConfig(**shape | GEMMA, query_pre_attn_scalar=16)
        ),
        "gemma4": lambda: Gemma4ForCausalLM(
            Gemma4TextConfig(
                **shape | GEMMA,
                global_head_dim=32,
                hidden_size_per_layer_input=0,
                num_kv_shared_layers=0,
                final_logit_softcapping=30.0,
            )
        ),
    }
    return builders[kind]().eval()


def build_draft(
    target,
    *,
    window: int | None = None,
    layers: int = 2,
    block_size: int = 16,
    taps: tuple[int, ...] = (0, 2),
    **changes,
):
    """A random draft for a tiny target; its last layer is full attention."""
    torch.manual_seed(5)
    types = ["sliding_attention" if window else "full_attention"] * (layers - 1)
    config = {
        "vocab_size": VOCAB,
        "hidden_size": target.config.hidden_size,
        "intermediate_size": 96,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rope_theta": 10000.0,
        "layer_types": [*types, "full_attention"],
        "sliding_window": window,
        "num_target_layers": target.config.num_hidden_layers,
        "block_size": block_size,
        "dflash_config": {"mask_token_id": 95, "target_layer_ids": list(taps)},
        "initializer_range": 0.25,
    }
    return DFlashDraftModel(DFlashConfig(**config | changes)).eval()
