"""Which tokens end an answer. Knows generation configs and tokenizers, read as data."""

from __future__ import annotations

from typing import Any

# End-of-turn markers of chat templates; a tokenizer that has one means it as a stop.
_END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|return|>")


def stop_token_ids(model: Any, tokenizer: Any = None) -> frozenset[int]:
    """The union of every stop id the model and tokenizer name, int or list
    (z-lab/dflash passes only the tokenizer's eos; lucebox PR #97 shows what that costs)."""
    named = [
        getattr(getattr(model, "generation_config", None), "eos_token_id", None),
        getattr(model.config.get_text_config(decoder=True), "eos_token_id", None),
        getattr(tokenizer, "eos_token_id", None),
    ]
    ids = {i for value in named for i in _as_list(value)}
    if tokenizer is not None:
        vocabulary = tokenizer.get_vocab()
        ids |= {vocabulary[marker] for marker in _END_OF_TURN if marker in vocabulary}
    return frozenset(ids)


def _as_list(value: int | list[int] | None) -> list[int]:
    """eos_token_id is written as nothing, one id or several."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
