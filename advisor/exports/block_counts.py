"""How each engine counts a block. The only place that adds or takes one.

A block of B is the anchor and B - 1 drafts. Some engines are told the block, others the drafts.
Sources: z-lab/dflash README; vLLM docs/features/speculative_decoding; llama.cpp common/arg.cpp and
https://github.com/noonghunna/club-3090/issues/759; TensorRT-LLM DFlashDecodingConfig.
"""

from __future__ import annotations

from advisor.schema import EngineName

# The number an engine wants for a block of B is B plus this.
_OFFSET: dict[EngineName, int] = {
    "vllm": -1,  # num_speculative_tokens
    "sglang": 0,  # --speculative-num-draft-tokens, anchor included
    "llamacpp": -1,  # --spec-draft-n-max
    "mlx": 0,  # block_size
    "transformers": 0,  # block_size
    "tensorrt-llm": -1,  # max_draft_len
}


def engine_count(engine: EngineName, block_size: int) -> int:
    """The number to tell ``engine`` so that it runs blocks of ``block_size``."""
    return block_size + _OFFSET[engine]


def block_size_of(engine: EngineName, count: int) -> int:
    """The block size that ``engine`` runs when told ``count``."""
    return count - _OFFSET[engine]
