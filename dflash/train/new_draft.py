"""A draft that has not learned anything yet, shaped for its target.

Knows target configs and the published draft layout. Knows no data. Where the target's layers have
the same shapes as the draft's, they are copied: a better start than noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from dflash.errors import PairError
from dflash.model import DFlashConfig, DFlashDraftModel
from dflash.stops import stop_token_ids
from dflash.targets import decoder_layers, text_config

# A copied layer is sure of the wrong token at first; flat logits start at half the loss.
_START_SCALE = 0.3
_MASK_NAMES = ("<|mask|>", "<mask>", "[MASK]", "<|MASK|>", "<|mask_token|>")


def new_draft(
    target: PreTrainedModel,
    *,
    block_size: int,
    num_layers: int,
    target_layer_ids: Sequence[int],
    mask_token_id: int,
    seed: int,
) -> DFlashDraftModel:
    """Build a fresh fp32 draft in the published layout, layers copied from the target's last."""
    config = text_config(target)
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # inside fork_rng: nothing outside sees it
        draft = DFlashDraftModel(
            _draft_config(config, block_size, num_layers, target_layer_ids, mask_token_id)
        ).float()
    _start_from_target(draft, target)
    return draft


def choose_mask_token(
    tokenizer: PreTrainedTokenizerBase, target: PreTrainedModel, seen_ids: set[int]
) -> int:
    """Pick an id that never stands in a conversation: a token called mask, an unused special
    token, or an embedding row no token has. Raises ``PairError`` when there is none."""
    vocabulary = tokenizer.get_vocab()
    named = [vocabulary[name] for name in _MASK_NAMES if name in vocabulary]
    if tokenizer.mask_token_id is not None:
        named.insert(0, tokenizer.mask_token_id)
    ended = stop_token_ids(target, tokenizer) | {tokenizer.pad_token_id, tokenizer.bos_token_id}
    special = [i for i, t in sorted(tokenizer.added_tokens_decoder.items()) if t.special]
    embedding: Any = target.get_input_embeddings()
    spare = range(len(tokenizer), embedding.weight.shape[0])
    for token_id in (*named, *reversed(special), *spare):
        if token_id not in ended and token_id not in seen_ids:
            return token_id
    raise PairError(
        "this target's vocabulary has no token free to be the mask.",
        "Name one that never occurs in a conversation with --mask-token-id.",
    )


def _draft_config(
    config: Any,
    block_size: int,
    num_layers: int,
    target_layer_ids: Sequence[int],
    mask_token_id: int,
) -> DFlashConfig:
    """The published fields; sizes are the target's so that its embedding and head fit."""
    heads = config.num_attention_heads
    return DFlashConfig(
        architectures=["DFlashDraftModel"],
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=num_layers,
        num_attention_heads=heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        vocab_size=config.vocab_size,
        max_position_embeddings=config.max_position_embeddings,
        rms_norm_eps=config.rms_norm_eps,
        rope_parameters=_plain_rope(config),
        attention_bias=False,
        tie_word_embeddings=False,
        layer_types=["full_attention"] * num_layers,
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        dtype="bfloat16",
        block_size=block_size,
        num_target_layers=config.num_hidden_layers,
        dflash_config={
            "mask_token_id": mask_token_id,
            "target_layer_ids": list(target_layer_ids),
        },
    )


def _plain_rope(config: Any) -> dict[str, Any]:
    """Rotary embedding over whole heads at the target's base; scaling is not carried over."""
    theta = (getattr(config, "rope_parameters", None) or {}).get("rope_theta", 10000.0)
    return {"rope_type": "default", "rope_theta": float(theta)}


@torch.no_grad()
def _start_from_target(draft: DFlashDraftModel, target: PreTrainedModel) -> None:
    """Copy what fits: the last layers, the final norm; pass the last tap through ``fc``."""
    sources = list(decoder_layers(target))[-len(draft.layers) :]
    for layer, source in zip(draft.layers, sources, strict=True):
        given = source.state_dict()
        fitting = {
            name: given[name].float()
            for name, own in layer.state_dict().items()
            if name in given and given[name].shape == own.shape
        }
        layer.load_state_dict(fitting, strict=False)
    size = draft.config.hidden_size
    draft.fc.weight.mul_(0.1)
    draft.fc.weight[:, -size:] += torch.eye(size)
    norm = getattr(target.get_decoder(), "norm", None)
    if norm is not None and norm.weight.shape == draft.norm.weight.shape:
        draft.norm.weight.copy_(_START_SCALE * norm.weight.float())
    first = getattr(sources[0], "input_layernorm", None)
    if first is not None and first.weight.shape == draft.hidden_norm.weight.shape:
        draft.hidden_norm.weight.copy_(first.weight.float())
