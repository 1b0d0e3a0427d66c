"""The draft's forward over many blocks of a row at once, and the fit's loss on top of it.

Knows the v1 draft's layers with full attention, the only kind that is fitted here. Computes what
the module computes under the mask of all blocks, without the products that this mask throws away:
a slot's scores against its own block and against the context come from two small products.
Shapes: b rows, S positions, A anchors per row, B slots per block, H heads, G of them per key head,
d head size, N = b*A*(B-1) mask slots.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from transformers.models.qwen3.modeling_qwen3 import apply_rotary_pos_emb

from dflash.model import DFlashAttention, DFlashDraftModel
from dflash.train.loss import draft_loss


class BlockInputs(NamedTuple):  # which torch.compile takes apart
    """What a step feeds: blocks of rows, and what the target said in their places."""

    embeds: torch.Tensor  # [b, A*B, D]
    tapped: torch.Tensor  # [b, S, K*D]
    position_ids: torch.Tensor  # [b, S + A*B]
    sees_context: torch.Tensor  # [b, A, S], True = visible
    teacher: torch.Tensor  # [N, D], the target's state that predicts the token
    labels: torch.Tensor  # [N], the token
    weights: torch.Tensor  # [N], 0 where there is nothing to learn


def compiled_where_possible(function: Callable[..., Any], device: torch.device) -> Any:
    """The function compiled for fixed shapes, which pays after a few minutes, where a C++ compiler
    is found; a GPU's kernels are quick enough as they are."""
    if device.type == "cpu" and shutil.which("g++"):
        return torch.compile(function, dynamic=False)
    return function


def blocks_hidden(
    draft: DFlashDraftModel,
    embeds: torch.Tensor,  # [b, A*B, D]
    tapped: torch.Tensor,  # [b, S, K*D]
    position_ids: torch.Tensor,  # [b, S + A*B]
    sees_context: torch.Tensor,  # [b, A, S], True = visible
) -> torch.Tensor:  # [b, A, B, D]
    """What the module says of all blocks under ``Blocks.attention_mask()``."""
    context = draft.hidden_norm(draft.fc(tapped))
    rotary = draft.rotary_emb(embeds, position_ids)
    hidden: Any = embeds
    for layer in draft.layers:
        module: Any = layer
        attended = _attention(
            module.self_attn, module.input_layernorm(hidden), context, rotary, sees_context
        )
        hidden = hidden + attended
        hidden = hidden + module.mlp(module.post_attention_layernorm(hidden))
    return draft.norm(hidden).unflatten(1, (sees_context.shape[1], -1))


def blocks_loss(
    draft: DFlashDraftModel,
    inputs: BlockInputs,
    head: torch.Tensor,  # [V, D]
    scored: torch.Tensor,  # [R]
    hard_share: float,
) -> torch.Tensor:
    """``draft_loss`` of every mask slot. One function, so that it can be compiled whole."""
    hidden = blocks_hidden(
        draft, inputs.embeds, inputs.tapped, inputs.position_ids, inputs.sees_context
    )
    return draft_loss(
        hidden[:, :, 1:].flatten(0, 2), inputs.teacher, inputs.labels, inputs.weights, head,
        scored=scored, hard_share=hard_share,
    )  # fmt: skip


def _attention(
    module: DFlashAttention,
    block: torch.Tensor,  # [b, A*B, D], normalised
    context: torch.Tensor,  # [b, S, D]
    rotary: tuple[torch.Tensor, torch.Tensor],  # [b, S + A*B, d]
    sees_context: torch.Tensor,  # [b, A, S]
) -> torch.Tensor:  # [b, A*B, D]
    num_context, num_anchors = context.shape[1], sees_context.shape[1]
    cos, sin = rotary
    sources = torch.cat((context, block), dim=1)
    heads = lambda x: x.unflatten(-1, (-1, module.head_dim)).transpose(1, 2)  # noqa: E731
    queries = module.q_norm(heads(module.q_proj(block)))  # [b, H, A*B, d]
    keys, values = module.k_norm(heads(module.k_proj(sources))), heads(module.v_proj(sources))
    queries, _ = apply_rotary_pos_emb(queries, queries, cos[:, num_context:], sin[:, num_context:])
    keys, _ = apply_rotary_pos_emb(keys, keys, cos, sin)
    # Query heads of one key head stand side by side: [b, Hkv, G, A, B, d].
    queries = queries.unflatten(1, (-1, module.num_groups)).unflatten(3, (num_anchors, -1))
    queries = queries * module.head_dim**-0.5
    own_keys, own_values = (
        x[:, :, num_context:].unflatten(2, (num_anchors, -1)) for x in (keys, values)
    )
    to_context = (queries.flatten(2, 4) @ keys[:, :, :num_context].mT).unflatten(
        2, queries.shape[2:5]
    )
    hidden = ~sees_context[:, None, None, :, None]
    to_context = to_context.float().masked_fill(hidden, float("-inf"))  # [b, Hkv, G, A, B, S]
    to_own = queries @ own_keys[:, :, None].mT  # [b, Hkv, G, A, B, B]
    shares = torch.cat((to_context, to_own.float()), dim=-1).softmax(dim=-1).to(values.dtype)
    from_context, from_own = shares[..., :num_context], shares[..., num_context:]
    mixed = from_context.flatten(2, 4) @ values[:, :, :num_context]  # [b, Hkv, G*A*B, d]
    mixed = mixed + (from_own @ own_values[:, :, None]).flatten(2, 4)
    mixed = mixed.unflatten(2, (module.num_groups, -1)).flatten(1, 2)  # [b, H, A*B, d]
    out: torch.Tensor = module.o_proj(mixed.transpose(1, 2).flatten(2))
    return out
