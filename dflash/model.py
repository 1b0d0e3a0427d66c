"""The DFlash draft in torch: published config fields, published tensor names, one forward.

Knows the draft's own layers and how a checkpoint is read. Knows no target internals beyond the
embedding and head it borrows, no decode loop, no tokenizer. Weights come from safetensors files
only and no code from a checkpoint is ever run.

Shapes: b batch, S new context positions, Q block positions (B slots per block), D hidden, K taps.
"""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel, Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3MLP,
    Qwen3RMSNorm,
    Qwen3RotaryEmbedding,
    apply_rotary_pos_emb,
)

from dflash.errors import CheckpointError
from dflash.fit import check_window
from dflash.loading import check_whole, loading
from dflash.verify import Proposal

logger = logging.getLogger(__name__)


@strict
class DFlashConfig(Qwen3Config):
    """A draft's ``config.json``. ``block_size``, ``mask_token_id`` and ``target_layer_ids`` are
    read from ``dflash_config`` first, then from the top level (published files have both)."""

    # Published drafts say "qwen3"; keeping it makes our checkpoints load where theirs do.
    model_type = "qwen3"

    num_target_layers: int | None = None
    block_size: int | None = None
    mask_token_id: int | None = None
    target_layer_ids: list[int] | None = None
    dflash_config: dict | None = None
    is_causal: bool | None = None
    input_embedding_scale: float | None = None
    output_multiplier: float | None = None
    final_logit_softcapping: float | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        window = self.sliding_window
        super().__post_init__(**kwargs)
        # Qwen3Config drops the window unless use_sliding_window is set; drafts rarely set it.
        if "sliding_attention" in (self.layer_types or ()):
            self.sliding_window = window
            self.use_sliding_window = True

    def to_dict(self) -> dict[str, Any]:
        """The config as it is written, without unset draft settings: the published reader takes
        a written null for a value (``float(None)``)."""
        own = DFlashConfig.__annotations__
        return {k: v for k, v in super().to_dict().items() if v is not None or k not in own}

    def trained(self, name: str) -> Any:
        """A draft setting from where this checkpoint keeps it, or ``None``."""
        value = (self.dflash_config or {}).get(name)
        return getattr(self, name, None) if value is None else value

    def layer_window(self, layer_idx: int) -> int | None:
        """The sliding window of one layer in tokens; ``None`` for full attention."""
        is_sliding = cast(list[str], self.layer_types)[layer_idx] == "sliding_attention"
        return self.sliding_window if is_sliding else None

    def layer_is_causal(self, layer_idx: int) -> bool:
        """Whether slots see only earlier slots. Unwritten means causal for sliding layers and
        bidirectional for full ones (sglang PR #34524)."""
        written = self.trained("causal") if self.is_causal is None else self.is_causal
        if written is None:
            return cast(list[str], self.layer_types)[layer_idx] == "sliding_attention"
        return bool(written)


class DraftCache:
    """Context keys and values per layer; block slots never enter it. One per run."""

    def __init__(self, config: DFlashConfig) -> None:
        self.length = 0  # context positions seen, also when a window has dropped the oldest
        self._windows = [config.layer_window(i) for i in range(config.num_hidden_layers)]
        self._kv: list[tuple[torch.Tensor, torch.Tensor] | None] = [None] * len(self._windows)

    def extend(
        self,
        layer_idx: int,
        keys: torch.Tensor,  # [b, Hkv, S, d]
        values: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append S context positions and return all that the next block may look at."""
        past = self._kv[layer_idx]
        if past is not None:
            keys = torch.cat((past[0], keys), dim=2)
            values = torch.cat((past[1], values), dim=2)
        window = self._windows[layer_idx]
        if window is not None:
            # The first slot sees window - 1 context positions, later slots fewer.
            keep = max(window - 1, 1)
            keys, values = keys[:, :, -keep:], values[:, :, -keep:]
        self._kv[layer_idx] = (keys, values)
        return keys, values


class DFlashAttention(nn.Module):
    """Queries from the block; keys and values from the projected context and the block."""

    def __init__(self, config: DFlashConfig, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        num_kv_heads = cast(int, config.num_key_value_heads)  # filled in by the config
        self.num_groups = config.num_attention_heads // num_kv_heads
        self.window = config.layer_window(layer_idx)
        self.is_causal = config.layer_is_causal(layer_idx)
        width, kv_width = (n * config.head_dim for n in (config.num_attention_heads, num_kv_heads))
        bias = config.attention_bias
        self.q_proj = nn.Linear(config.hidden_size, width, bias=bias)
        self.k_proj = nn.Linear(config.hidden_size, kv_width, bias=bias)
        self.v_proj = nn.Linear(config.hidden_size, kv_width, bias=bias)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=bias)
        self.q_norm = Qwen3RMSNorm(config.head_dim, eps=config.rms_norm_eps)
        self.k_norm = Qwen3RMSNorm(config.head_dim, eps=config.rms_norm_eps)

    def forward(
        self,
        block: torch.Tensor,  # [b, Q, D], normalised
        context: torch.Tensor,  # [b, S, D], projected taps
        rotary: tuple[torch.Tensor, torch.Tensor],  # cos, sin [b, S + Q, d]
        cache: DraftCache | None,
        attention_mask: torch.Tensor | None,  # [b or 1, 1, Q, S + Q], True = visible
    ) -> torch.Tensor:
        num_context = context.shape[1]
        cos, sin = rotary
        sources = torch.cat((context, block), dim=1)  # [b, S + Q, D]
        queries = self.q_norm(self._heads(self.q_proj(block)))
        keys = self.k_norm(self._heads(self.k_proj(sources)))
        values = self._heads(self.v_proj(sources))  # [b, Hkv, S + Q, d]
        queries, _ = apply_rotary_pos_emb(
            queries, queries, cos[:, num_context:], sin[:, num_context:]
        )
        keys, _ = apply_rotary_pos_emb(keys, keys, cos, sin)
        if cache is not None:
            past_keys, past_values = cache.extend(
                self.layer_idx, keys[:, :, :num_context], values[:, :, :num_context]
            )
            keys = torch.cat((past_keys, keys[:, :, num_context:]), dim=2)
            values = torch.cat((past_values, values[:, :, num_context:]), dim=2)
        if attention_mask is None:
            attention_mask = self._block_mask(queries.shape[2], keys.shape[2], keys.device)
        out = nn.functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=attention_mask, enable_gqa=self.num_groups > 1
        )
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        """[b, n, H*d] -> [b, n, H, d] -> [b, H, n, d]."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def _block_mask(self, num_slots: int, num_keys: int, device: Any) -> torch.Tensor | None:
        """Who sees whom when the block follows its context directly; ``None`` = everyone."""
        if not self.is_causal and self.window is None:
            return None
        slots = torch.arange(num_keys - num_slots, num_keys, device=device)[:, None]
        ahead = torch.arange(num_keys, device=device)[None] - slots  # key minus query position
        visible = torch.ones_like(ahead, dtype=torch.bool)
        if self.is_causal:
            visible &= ahead <= 0
        if self.window is not None:
            visible &= ahead.abs() < self.window
        return visible[None, None]


class DFlashLayer(nn.Module):
    """Pre-norm attention and MLP, as published."""

    def __init__(self, config: DFlashConfig, layer_idx: int) -> None:
        super().__init__()
        self.self_attn = DFlashAttention(config, layer_idx)
        self.mlp = Qwen3MLP(config)
        self.input_layernorm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(
        self,
        block: torch.Tensor,
        context: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        cache: DraftCache | None,
        attention_mask: torch.Tensor | None,
    ) -> torch.Tensor:
        block = block + self.self_attn(
            self.input_layernorm(block), context, rotary, cache, attention_mask
        )
        return block + self.mlp(self.post_attention_layernorm(block))


class DFlashDraftModel(PreTrainedModel):
    """The block-diffusion draft (paper section 3): reads taps of the target, fills mask slots."""

    config_class = DFlashConfig
    base_model_prefix = "model"
    _supports_sdpa = True
    layer_class: type[DFlashLayer] = DFlashLayer

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__(config)
        taps = config.trained("target_layer_ids")
        if not taps:
            raise CheckpointError(
                "the draft config names no target_layer_ids.",
                "Add dflash_config.target_layer_ids: the layers the draft was trained on; "
                "they cannot be guessed.",
            )
        self.target_layer_ids: list[int] = list(taps)
        self.mask_token_id: int | None = config.trained("mask_token_id")
        self.block_size: int | None = config.trained("block_size")
        self.fc = nn.Linear(len(taps) * config.hidden_size, config.hidden_size, bias=False)
        self.hidden_norm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.layers = nn.ModuleList(
            self.layer_class(config, i) for i in range(config.num_hidden_layers)
        )
        self.norm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = Qwen3RotaryEmbedding(config)
        self.post_init()

    @classmethod
    def _from_config(cls, config: Any, **kwargs: Any) -> DFlashDraftModel:
        """What ``AutoModel.from_config`` calls: a fresh draft, and one clear warning."""
        logger.warning(
            "This DFlash draft has random weights: from_config builds a draft to be trained "
            "(taps %s). Load a trained one with dflash.load_draft.",
            config.trained("target_layer_ids"),
        )
        return super()._from_config(config, **kwargs)

    def forward(
        self,
        block_embeds: torch.Tensor,  # [b, Q, D]
        target_hidden: torch.Tensor,  # [b, S, K*D], new context only
        position_ids: torch.Tensor,  # [b, S + Q]: context positions, then block positions
        cache: DraftCache | None = None,
        attention_mask: torch.Tensor | None = None,  # [b or 1, 1, Q, S + Q], True = visible
    ) -> torch.Tensor:  # [b, Q, D], after the final norm
        """Run the block against its context. With a cache, earlier context is already in it."""
        context = self.hidden_norm(self.fc(target_hidden))
        rotary = self.rotary_emb(block_embeds, position_ids)
        for layer in self.layers:
            block_embeds = layer(block_embeds, context, rotary, cache, attention_mask)
        if cache is not None:
            cache.length += target_hidden.shape[1]
        return self.norm(block_embeds)

    def shape_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Apply the output multiplier and soft cap that the checkpoint was trained with."""
        multiplier = self.config.trained("output_multiplier")
        cap = self.config.trained("final_logit_softcapping")
        if multiplier:
            logits = logits * float(multiplier)
        return torch.tanh(logits / cap) * cap if cap else logits

    def propose_from(
        self,
        hidden: torch.Tensor,  # [B-1, D], mask slots only
        logits: torch.Tensor,  # [B-1, V]
        anchor_id: int,
        temperature: float,
        generator: torch.Generator | None,
    ) -> Proposal:
        """Turn a block's logits into tokens. Here the argmax per slot, at every temperature:
        drawing each slot alone accepts far less (z-lab/dflash PR #169)."""
        return Proposal(tuple(logits.argmax(dim=-1).tolist()))

    def spec_generate(
        self,
        target: PreTrainedModel,
        input_ids: torch.Tensor,  # int64 [1, S]
        max_new_tokens: int,
        temperature: float = 0.0,
        block_size: int | None = None,
        stop_token_ids: list[int] | None = None,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int = 0,
    ) -> torch.Tensor:  # int64 [1, S + n]
        """Generate with this draft; see ``dflash.generate.dflash_generate``."""
        from dflash.generate import dflash_generate

        return dflash_generate(
            self,
            target,
            input_ids,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            block_size=block_size,
            stop_token_ids=stop_token_ids,
            top_p=top_p,
            top_k=top_k,
            seed=seed,
        )


AutoModel.register(DFlashConfig, DFlashDraftModel)


def load_draft(
    draft_id: str | Path,  # a folder or a hub id
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    revision: str | None = None,
    sliding_window_size: int | None = None,
) -> DFlashDraftModel:
    """Load a published or self-trained draft; every tensor must be there and fit.

    ``sliding_window_size`` bounds the context of a draft that has full attention only, as on MLX
    (guide section 4). Raises ``CheckpointError`` naming what is missing. Reads safetensors only.
    """
    what = f"the draft {str(draft_id)!r}"
    with loading(what, "Give a folder or hub id with config.json and model.safetensors."):
        config = read_draft_config(str(draft_id), revision)
        window = {} if sliding_window_size is None else _windowed(config, sliding_window_size)
        loaded: Any = draft_class(config).from_pretrained(
            str(draft_id),
            dtype=dtype,
            revision=revision or "main",
            use_safetensors=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,  # reported below, in our words
            output_loading_info=True,
            **window,
        )
    draft, report = loaded
    check_whole(what, report, "Check num_hidden_layers and the number of target_layer_ids.")
    return draft.to(device or "cpu").eval()


def _windowed(config: dict[str, Any], size: int) -> dict[str, Any]:
    """The config fields that bound every layer's context and leave all else as trained."""
    draft = draft_class(config).config_class.from_dict(config)
    num_layers = draft.num_hidden_layers
    check_window([draft.layer_window(i) for i in range(num_layers)], size)
    return {
        "layer_types": ["sliding_attention"] * num_layers,
        "sliding_window": size,
        "use_sliding_window": True,
        "is_causal": draft.layer_is_causal(0),
    }


def read_draft_config(draft_id: str, revision: str | None = None) -> dict[str, Any]:
    """The draft's ``config.json`` as data. Raises ``CheckpointError`` for one that could only
    be used by guessing."""
    try:
        config, _ = PreTrainedConfig.get_config_dict(draft_id, revision=revision or "main")
    except RecursionError as error:
        raise CheckpointError(f"the config of {draft_id!r} is nested too deeply.") from error
    nested = config.get("dflash_config") or {}
    for name in ("mask_token_id", "target_layer_ids"):
        if nested.get(name, config.get(name)) is None:
            raise CheckpointError(
                f"the config of {draft_id!r} has no {name}.",
                "It was chosen in training and is never guessed; take it from the model card.",
            )
    rope = config.get("rope_parameters") or {}
    if rope.get("rope_theta", config.get("rope_theta")) is None:
        raise CheckpointError(
            f"the config of {draft_id!r} has no rope_theta.",
            "Copy it from the target's config; no default is safe.",
        )
    return config


def draft_class(config: dict[str, Any]) -> type[DFlashDraftModel]:
    """The class for a config's architecture. Raises ``CheckpointError`` for a relative
    (DSpark, EAGLE, ...) that must not be read as DFlash."""
    name = (config.get("architectures") or ["DFlashDraftModel"])[0]
    if name == "DFlash2DraftModel":
        return importlib.import_module("dflash.model2").DFlash2DraftModel
    if name != "DFlashDraftModel":
        raise CheckpointError(
            f"this checkpoint is a {name}, not a DFlash draft.",
            "Choose a checkpoint whose architectures say DFlashDraftModel or DFlash2DraftModel.",
        )
    return DFlashDraftModel
