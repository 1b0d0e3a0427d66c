"""A tiny random pair as two folders in the published layout, with a real tokenizer: what a command
line can be pointed at."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from dflash.model import DFlashConfig, DFlashDraftModel
from dflash.train.tokenizer import MASK, train_tokenizer

WORDS = ("the quick brown fox jumps over the lazy dog again", "one two three four five six seven")


def write_tiny_pair(folder: Path, *, block_size: int = 8) -> tuple[Path, Path]:
    """Write target and draft below ``folder`` and return their folders."""
    target_path, draft_path = folder / "target", folder / "draft"
    tokenizer = train_tokenizer(WORDS, target_path, vocab_size=300)
    size = len(tokenizer)
    torch.manual_seed(1)
    shape = {
        "vocab_size": size,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.25,
        "max_position_embeddings": 256,
    }
    special = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    target = LlamaForCausalLM(LlamaConfig(**shape, num_hidden_layers=4, **special))
    target.generation_config = GenerationConfig(**special)
    target.save_pretrained(target_path)
    config = DFlashConfig(
        **shape,
        num_hidden_layers=1,
        head_dim=16,
        layer_types=["full_attention"],
        num_target_layers=4,
        block_size=block_size,
        dflash_config={
            "mask_token_id": tokenizer.get_vocab()[MASK],
            "target_layer_ids": [0, 2],
        },
    )
    DFlashDraftModel(config).save_pretrained(draft_path)
    return target_path, draft_path
