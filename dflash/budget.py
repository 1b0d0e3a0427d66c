"""What a run may ask for, and where its answer is cut. Shared by the torch and MLX loops."""

from __future__ import annotations

from numbers import Integral

from dflash.errors import BlockSizeError, EngineError


def token_budget(num_prompt_tokens: int, max_new_tokens: int, context_length: int) -> int:
    """How many tokens may be generated. Raises ``EngineError`` when the prompt is too long."""
    room = context_length - num_prompt_tokens
    if num_prompt_tokens == 0:
        raise EngineError("the prompt has no tokens.", "Type something to answer.")
    if room < 1:
        raise EngineError(
            f"the prompt has {num_prompt_tokens} tokens and this model's context is "
            f"{context_length}.",
            f"Shorten it to at most {context_length - 1} tokens.",
        )
    return min(max_new_tokens, room)


def cut_at_stop(ids: tuple[int, ...], stop_ids: frozenset[int]) -> tuple[int, ...]:
    """Keep ids up to and including the first stop token."""
    end = next((i for i, token in enumerate(ids) if token in stop_ids), len(ids) - 1)
    return ids[: end + 1]


def check_block_size(block_size: int | None, trained: int | None) -> int:
    """Return the block size, or raise ``BlockSizeError`` (a ``ValueError``) with the range."""
    if block_size is None:
        raise BlockSizeError("the draft config names no block_size.", "Pass block_size=...")
    if not isinstance(block_size, Integral):
        raise BlockSizeError(f"block_size must be a whole number, got {block_size!r}.")
    if block_size < 1 or (trained is not None and block_size > trained):
        raise BlockSizeError(
            f"block_size must be 1 to {trained}, got {block_size}.",
            f"1 turns drafting off; {trained} is what the draft was trained with.",
        )
    return block_size
