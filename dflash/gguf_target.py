"""One GGUF file -> an ordinary transformers folder. Run as ``python -m dflash.gguf_target``.

Knows transformers' GGUF reader. Runs in a process of its own (dflash.pairs starts it), because
reading takes a few times the model's memory and the app should not keep that.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def convert(gguf: Path, folder: Path) -> None:
    """Write config, tokenizer and safetensors (dequantised, bf16) of ``gguf`` to ``folder``."""
    source, name = str(gguf.parent), gguf.name
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.bfloat16().save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
