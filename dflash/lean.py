"""Lean CPU forwards of dense Llama- and Qwen3-class targets and of the drafts that read them.

Knows transformers' two model classes and our draft module, and takes their weights out of them.
Refuses (``supports``) whatever it does not compute exactly; the caller then runs the module.
Shapes: n positions, B block, S context positions, V vocabulary, K taps, D hidden, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaForCausalLM, PreTrainedModel, Qwen3ForCausalLM

from dflash.lean_layers import (
    Heads,
    LeanCache,
    LeanLayer,
    RotaryTable,
    causal_mask,
    rms_norm,
    rotate_,
    run_layer,
)
from dflash.lean_linear import LeanLinear, drafting_product, lean_linear, plan
from dflash.model import DFlashDraftModel, DFlashLayer

_TARGETS = (LlamaForCausalLM, Qwen3ForCausalLM)
_DTYPES = (torch.float32, torch.bfloat16)
_PROJECTIONS = ("_proj", "lm_head", "fc")
_WATCHING = "transformers.utils.output_capturing"
_FIXED_ROPES = ("default", "linear", "llama3", "yarn")  # others change with the text's length


class LeanTarget:
    """A target's forward over caches allocated once. Runs may interleave: one cache each."""

    @staticmethod
    def supports(model: PreTrainedModel) -> bool:
        """Whether this model is computed exactly as its own class computes it."""
        return (
            type(model) in _TARGETS
            and type(model.get_input_embeddings()) is nn.Embedding
            and "full_attention" in _layer_types(model.config)
            and len(_layer_types(model.config)) == 1
            and _is_plain(model, model.model.rotary_emb, model.config)
            and not any(map(_is_altered, model.modules()))
        )

    def __init__(self, model: PreTrainedModel, target_layer_ids: Sequence[int]) -> None:
        self._taps = tuple(target_layer_ids)
        decoder = model.model
        self._embedding = decoder.embed_tokens.weight.detach()  # [V, D]
        self._heads = _heads(model.config)
        self._layers = [_lean_layer(layer, self._heads, adopt=True) for layer in decoder.layers]
        self._norm = _norm(decoder.norm)
        self._lm_head = lean_linear(model.lm_head)
        self._rotary = _rotary(decoder.rotary_emb, self._embedding.dtype)
        plan([*(p for layer in self._layers for p in layer.linears), self._lm_head])

    def new_cache(self, capacity: int) -> LeanCache:
        """An empty cache for one run of at most ``capacity`` positions."""
        self._rotary.grow(capacity)
        return LeanCache(len(self._layers), self._heads, capacity, self._embedding.dtype)

    @torch.inference_mode()
    def forward(
        self,
        ids: torch.Tensor,  # [1, n], int64
        cache: LeanCache,
        num_logits: int,
        taps: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Append n positions; return the last logits [num_logits, V] and states [1, n, K*D].

        The states are the outputs of the tapped layers, side by side in tap order.
        """
        n, start = ids.shape[1], cache.length
        end = cache.reserve(n)
        x = F.embedding(ids[0], self._embedding)  # [n, D]
        cos, sin = self._rotary.at(start, end)
        keys, values = cache.visible(0, end)
        rows = cache.rows(start, end)
        mask = causal_mask(n, end, x.dtype)
        outputs: dict[int, torch.Tensor] = {}
        for i, layer in enumerate(self._layers):
            x = run_layer(
                x, layer, self._heads, cos=cos, sin=sin, write=rows[i],
                keys=keys[i], values=values[i], mask=mask, is_causal=True,
            )  # fmt: skip
            if taps and i in self._taps:
                outputs[i] = x
        cache.length = end
        hidden = torch.cat([outputs[i] for i in self._taps], -1)[None] if outputs else None
        return self._lm_head(self._norm(x[n - num_logits :])), hidden


class LeanDraft:
    """A draft's forward: the context enters the cache once, a block never does."""

    @staticmethod
    def supports(model: DFlashDraftModel, target: Any) -> bool:
        """Whether this draft, with this target's embedding and head, is computed exactly."""
        embedding, head = target.get_input_embeddings(), target.get_output_embeddings()
        return (
            type(model) is DFlashDraftModel
            and all(type(layer) is DFlashLayer for layer in model.layers)
            and type(embedding) is nn.Embedding
            and type(head) is nn.Linear
            and not model.config.trained("output_multiplier")
            and not model.config.trained("final_logit_softcapping")
            and _is_plain(model, model.rotary_emb, model.config)
        )

    def __init__(self, model: DFlashDraftModel, target: Any) -> None:
        config: Any = model.config
        layers: Any = model.layers
        assert model.mask_token_id is not None
        self._mask_token_id = model.mask_token_id
        self._embedding = target.get_input_embeddings().weight.detach()  # [V, D]
        self._heads = _heads(config)
        self._layers = [_lean_layer(layer, self._heads, adopt=False) for layer in layers]
        self._sight = [(layer.self_attn.window, layer.self_attn.is_causal) for layer in layers]
        # The context is the same for every layer, so one product projects it for all of them.
        self._context_kv = lean_linear(
            *(p for layer in layers for p in (layer.self_attn.k_proj, layer.self_attn.v_proj))
        )
        gains = torch.stack([layer.self_attn.k_norm.weight.detach() for layer in layers])
        self._key_norm = rms_norm(gains[:, None], config.rms_norm_eps)  # [L, 1, d]
        self._fc = lean_linear(model.fc)
        self._hidden_norm, self._norm = _norm(model.hidden_norm), _norm(model.norm)
        self._lm_head = drafting_product(target.get_output_embeddings())
        self._rotary = _rotary(model.rotary_emb, self._embedding.dtype)
        products = [p for layer in self._layers for p in layer.linears]
        exact_head = [self._lm_head] if isinstance(self._lm_head, LeanLinear) else []
        plan(
            [self._fc, self._context_kv, *products, *exact_head],
            num_other_bytes=sum(p.nbytes for p in target.parameters()),
        )

    def new_cache(self, capacity: int) -> LeanCache:
        """An empty cache for one run; its last block counts towards ``capacity`` positions."""
        self._rotary.grow(capacity)
        return LeanCache(len(self._layers), self._heads, capacity, self._embedding.dtype)

    @torch.inference_mode()
    def propose(
        self,
        target_hidden: torch.Tensor,  # [1, n, K*D], positions not yet in the cache
        anchor_id: int,
        block_size: int,
        cache: LeanCache,
    ) -> torch.Tensor:  # [B-1, V]
        """Take in n context positions and return the logits of the slots after the anchor.

        With a large head they carry the noise of ``drafting_product``.
        """
        self._extend(target_hidden[0], cache)
        start = cache.length
        end = cache.reserve(block_size)
        ids = torch.tensor([anchor_id] + [self._mask_token_id] * (block_size - 1))
        x = F.embedding(ids, self._embedding)  # [B, D]
        cos, sin = self._rotary.at(start, end)
        keys, values = cache.visible(0, end)
        rows = cache.rows(start, end)
        masks = {sight: self._mask(block_size, end, *sight) for sight in set(self._sight)}
        for i, layer in enumerate(self._layers):
            x = run_layer(
                x, layer, self._heads, cos=cos, sin=sin, write=rows[i],
                keys=keys[i], values=values[i], mask=masks[self._sight[i]], is_causal=False,
            )  # fmt: skip
        return self._lm_head(self._norm(x[1:]))

    def _extend(self, target_hidden: torch.Tensor, cache: LeanCache) -> None:
        """Project new context [n, K*D] and append every layer's keys and values."""
        n, num_kv = target_hidden.shape[0], self._heads.num_kv_heads
        start = cache.length
        end = cache.reserve(n)
        context = self._hidden_norm(self._fc(target_hidden))  # [n, D]
        kv = self._context_kv(context).view(n, len(self._layers), 2 * num_kv, -1)
        kv[:, :, :num_kv] = self._key_norm(kv[:, :, :num_kv])
        cos, sin = self._rotary.at(start, end)
        rotate_(kv[:, :, :num_kv], cos[:, None], sin[:, None])
        cache.kv[:, start:end] = kv.transpose(0, 1)
        cache.length = end

    def _mask(
        self, num_slots: int, end: int, window: int | None, is_causal: bool
    ) -> torch.Tensor | None:
        """Who a block's slots see in one kind of layer; ``None`` = everyone."""
        if window is None and not is_causal:
            return None
        slots = torch.arange(end - num_slots, end)[:, None]
        ahead = torch.arange(end)[None] - slots  # key minus query position
        hidden = torch.zeros_like(ahead, dtype=torch.bool)
        if is_causal:
            hidden |= ahead > 0
        if window is not None:
            hidden |= ahead.abs() >= window
        bias = torch.zeros(hidden.shape, dtype=self._embedding.dtype)
        return bias.masked_fill_(hidden, float("-inf"))


def _layer_types(config: Any) -> set[str]:
    """The kinds of attention in a config; Llama configs name none."""
    return set(getattr(config, "layer_types", None) or ["full_attention"])


def _is_plain(model: nn.Module, rotary: Any, config: Any) -> bool:
    """Ordinary weights on a CPU, nothing wrapped or quantised, and angles that depend on the
    position alone."""
    parameters = list(model.parameters())
    dtype = parameters[0].dtype
    projections = [m for name, m in model.named_modules() if name.endswith(_PROJECTIONS)]
    return (
        dtype in _DTYPES
        and all(p.device.type == "cpu" and p.dtype == dtype for p in parameters)
        and all(type(p.data) is torch.Tensor for p in parameters)
        and all(type(m) is nn.Linear for m in projections)
        and config.hidden_act == "silu"
        and rotary.rope_type in _FIXED_ROPES
        and 2 * rotary.inv_freq.numel() == _heads(config).head_dim
    )


def _is_altered(module: nn.Module) -> bool:
    """Whether calling the module does more than its class says: a hook, or a forward of its own.

    transformers leaves hooks behind that only watch, once ``output_hidden_states`` was asked for.
    """
    hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
    return "forward" in vars(module) or any(h.__module__ != _WATCHING for h in hooks)


def _heads(config: Any) -> Heads:
    """How attention is cut into heads."""
    head_dim = getattr(config, "head_dim", None)
    return Heads(
        config.num_attention_heads,
        config.num_key_value_heads,
        head_dim or config.hidden_size // config.num_attention_heads,
    )


def _norm(module: Any) -> Any:
    return rms_norm(module.weight.detach(), module.variance_epsilon)


def _rotary(module: Any, dtype: torch.dtype) -> RotaryTable:
    return RotaryTable(module.inv_freq, module.attention_scaling, dtype)


def _lean_layer(layer: Any, heads: Heads, *, adopt: bool) -> LeanLayer:
    """Fuse one decoder layer's weights."""
    attention, mlp = layer.self_attn, layer.mlp
    head_norm = None
    if hasattr(attention, "q_norm"):
        gains = [attention.q_norm.weight.detach()] * heads.num_heads
        gains += [attention.k_norm.weight.detach()] * heads.num_kv_heads
        head_norm = rms_norm(torch.stack(gains), attention.q_norm.variance_epsilon)
    return LeanLayer(
        norm=_norm(layer.input_layernorm),
        qkv=lean_linear(attention.q_proj, attention.k_proj, attention.v_proj, adopt=adopt),
        head_norm=head_norm,
        out=lean_linear(attention.o_proj),
        mlp_norm=_norm(layer.post_attention_layernorm),
        gate_up=lean_linear(mlp.gate_proj, mlp.up_proj, adopt=adopt),
        down=lean_linear(mlp.down_proj),
    )
