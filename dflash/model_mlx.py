"""The DFlash draft in MLX: the same names and step order as dflash.model.

Knows mlx and mlx-lm's rope and loading. Knows no target internals beyond the embedding and head
it borrows. A published draft's per-layer windows are respected; ``sliding_window_size`` is for
drafts that have full attention only.
Shapes: b batch, S new context positions, Q block slots, D hidden, K taps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from huggingface_hub import snapshot_download
from mlx_lm import load as load_target
from mlx_lm.models.activations import swiglu
from mlx_lm.models.rope_utils import initialize_rope

from dflash.errors import CheckpointError
from dflash.fit import check_window

__all__ = ["DFlashDraftModel", "DraftCache", "load", "load_draft", "make_cache"]


class DraftConfig:
    """A draft's ``config.json`` as the MLX model needs it; nothing is guessed.

    Raises ``CheckpointError`` naming the missing field."""

    def __init__(self, config: dict[str, Any], sliding_window_size: int | None = None) -> None:
        self.raw = config
        self.hidden_size: int = self._need("hidden_size")
        self.num_layers: int = self._need("num_hidden_layers")
        self.num_heads: int = self._need("num_attention_heads")
        self.num_kv_heads: int = config.get("num_key_value_heads") or self.num_heads
        self.head_dim: int = config.get("head_dim") or self.hidden_size // self.num_heads
        self.intermediate_size: int = self._need("intermediate_size")
        self.rms_norm_eps: float = config.get("rms_norm_eps", 1e-6)
        self.attention_bias: bool = bool(config.get("attention_bias"))
        self.max_positions: int = config.get("max_position_embeddings", 32768)
        self.num_target_layers: int | None = config.get("num_target_layers")
        self.block_size: int | None = self.trained("block_size")
        self.mask_token_id: int = self._need("mask_token_id")
        self.target_layer_ids: list[int] = list(self._need("target_layer_ids"))
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        theta = rope.get("rope_theta", config.get("rope_theta"))
        if theta is None:
            raise CheckpointError("the draft config has no rope_theta.", "Copy the target's.")
        self.rope_theta: float = theta
        is_scaled = rope.get("rope_type", rope.get("type", "default")) != "default"
        self.rope_scaling = rope if is_scaled else None
        self._read_windows(sliding_window_size)

    def _read_windows(self, override: int | None) -> None:
        types = self.raw.get("layer_types") or ["full_attention"] * self.num_layers
        if len(types) != self.num_layers:
            raise CheckpointError(
                f"the draft config has {self.num_layers} layers and {len(types)} layer_types.",
                "Take the config from the draft's own repository.",
            )
        window = self.raw.get("sliding_window")
        trained = [window if t == "sliding_attention" else None for t in types]
        if override is not None:
            check_window(trained, override)
        self.windows: list[int | None] = [override] * len(types) if override else trained
        written = self.raw.get("is_causal")
        if written is None:
            written = self.trained("causal")
        self.causal = [
            bool(written) if written is not None else t == "sliding_attention" for t in types
        ]

    def trained(self, name: str) -> Any:
        """A draft setting from ``dflash_config``, else from the top level, else ``None``."""
        value = (self.raw.get("dflash_config") or {}).get(name)
        return self.raw.get(name) if value is None else value

    def _need(self, name: str) -> Any:
        value = self.trained(name)
        if value is None or value == []:
            raise CheckpointError(
                f"the draft config has no {name}.", "It is never guessed; see the model card."
            )
        return value


class DraftCache:
    """Context keys and values per layer; block slots never enter it. One per run."""

    def __init__(self, windows: list[int | None]) -> None:
        self.length = 0
        self._windows = windows
        self._kv: list[tuple[mx.array, mx.array] | None] = [None] * len(windows)

    def extend(self, layer_idx: int, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append S positions [b, Hkv, S, d]; return all that the next block may look at."""
        past = self._kv[layer_idx]
        if past is not None:
            keys = mx.concatenate([past[0], keys], axis=2)
            values = mx.concatenate([past[1], values], axis=2)
        window = self._windows[layer_idx]
        if window is not None:
            keep = max(window - 1, 1)  # the first slot sees window - 1 context positions
            keys, values = keys[:, :, -keep:], values[:, :, -keep:]
        self._kv[layer_idx] = (keys, values)
        return keys, values


class DFlashAttention(nn.Module):
    """Queries from the block; keys and values from the projected context and the block."""

    def __init__(self, config: DraftConfig, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx, self.head_dim = layer_idx, config.head_dim
        self.window, self.is_causal = config.windows[layer_idx], config.causal[layer_idx]
        width = config.num_heads * config.head_dim
        kv_width = config.num_kv_heads * config.head_dim
        bias = config.attention_bias
        self.q_proj = nn.Linear(config.hidden_size, width, bias=bias)
        self.k_proj = nn.Linear(config.hidden_size, kv_width, bias=bias)
        self.v_proj = nn.Linear(config.hidden_size, kv_width, bias=bias)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=bias)
        self.q_norm = nn.RMSNorm(config.head_dim, eps=config.rms_norm_eps)
        self.k_norm = nn.RMSNorm(config.head_dim, eps=config.rms_norm_eps)
        self.rope = initialize_rope(
            config.head_dim,
            base=config.rope_theta,
            traditional=False,
            scaling_config=config.rope_scaling,
            max_position_embeddings=config.max_positions,
        )

    def __call__(self, block: mx.array, context: mx.array, cache: DraftCache) -> mx.array:
        start, num_context = cache.length, context.shape[1]
        sources = mx.concatenate([context, block], axis=1)  # [b, S + Q, D]
        queries = self.q_norm(self._heads(self.q_proj(block)))
        keys = self.k_norm(self._heads(self.k_proj(sources)))
        values = self._heads(self.v_proj(sources))
        queries = self.rope(queries, offset=start + num_context)
        keys = self.rope(keys, offset=start)
        past_keys, past_values = cache.extend(
            self.layer_idx, keys[:, :, :num_context], values[:, :, :num_context]
        )
        keys = mx.concatenate([past_keys, keys[:, :, num_context:]], axis=2)
        values = mx.concatenate([past_values, values[:, :, num_context:]], axis=2)
        out = mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=self.head_dim**-0.5,
            mask=self._block_mask(queries.shape[2], keys.shape[2]),
        )  # fmt: skip
        return self.o_proj(out.transpose(0, 2, 1, 3).flatten(2))

    def _heads(self, x: mx.array) -> mx.array:
        """[b, n, H*d] -> [b, H, n, d]."""
        return x.reshape(*x.shape[:2], -1, self.head_dim).transpose(0, 2, 1, 3)

    def _block_mask(self, num_slots: int, num_keys: int) -> mx.array | None:
        """Who sees whom when the block follows its context directly; ``None`` = everyone."""
        if not self.is_causal and self.window is None:
            return None
        slots = mx.arange(num_keys - num_slots, num_keys)[:, None]
        ahead = mx.arange(num_keys)[None] - slots
        visible = ahead <= 0 if self.is_causal else ahead == ahead
        return visible if self.window is None else visible & (mx.abs(ahead) < self.window)


class DFlashMLP(nn.Module):
    """Gated MLP."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        return self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x)))


class DFlashLayer(nn.Module):
    """Pre-norm attention and MLP, as published."""

    def __init__(self, config: DraftConfig, layer_idx: int) -> None:
        super().__init__()
        self.self_attn = DFlashAttention(config, layer_idx)
        self.mlp = DFlashMLP(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def __call__(self, block: mx.array, context: mx.array, cache: DraftCache) -> mx.array:
        block = block + self.self_attn(self.input_layernorm(block), context, cache)
        return block + self.mlp(self.post_attention_layernorm(block))


class DFlashDraftModel(nn.Module):
    """The block-diffusion draft; see ``dflash.model.DFlashDraftModel``."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.config = config
        self.block_size, self.mask_token_id = config.block_size, config.mask_token_id
        self.target_layer_ids = config.target_layer_ids
        num_taps = len(config.target_layer_ids)
        self.fc = nn.Linear(num_taps * config.hidden_size, config.hidden_size, bias=False)
        self.hidden_norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.layers = [DFlashLayer(config, i) for i in range(config.num_layers)]
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def __call__(
        self,
        block_embeds: mx.array,  # [b, Q, D]
        target_hidden: mx.array,  # [b, S, K*D], new context only
        cache: DraftCache,
    ) -> mx.array:  # [b, Q, D], after the final norm
        """Run the block against its context, the new part of which enters the cache."""
        context = self.hidden_norm(self.fc(target_hidden))
        for layer in self.layers:
            block_embeds = layer(block_embeds, context, cache)
        cache.length += target_hidden.shape[1]
        return self.norm(block_embeds)

    def scale_embeds(self, embeds: mx.array) -> mx.array:
        """Scale a block's embeddings as the checkpoint was trained to get them."""
        scale = self.config.trained("input_embedding_scale")
        return embeds if scale is None else embeds * scale

    def shape_logits(self, logits: mx.array) -> mx.array:
        """Apply the output multiplier and soft cap that the checkpoint was trained with."""
        multiplier = self.config.trained("output_multiplier")
        cap = self.config.trained("final_logit_softcapping")
        if multiplier:
            logits = logits * multiplier
        return mx.tanh(logits / cap) * cap if cap else logits


def load(path_or_id: str) -> tuple[Any, Any]:
    """Load a target and its tokenizer with mlx-lm (quantised ones too); no remote code."""
    model, tokenizer, *_ = load_target(path_or_id)
    return model, tokenizer


def load_draft(draft_id: str | Path, sliding_window_size: int | None = None) -> DFlashDraftModel:
    """Load a draft from a folder or hub id; every tensor must be there and fit.

    ``sliding_window_size`` bounds the context of a draft that has full attention only (guide
    section 4); it can never change the output, only speed and acceptance. Raises
    ``CheckpointError``.
    """
    folder = Path(draft_id)
    if not folder.is_dir():
        folder = Path(snapshot_download(str(draft_id), allow_patterns=["*.json", "*.safetensors"]))
    config = _read_config(folder)
    draft = DFlashDraftModel(DraftConfig(config, sliding_window_size))
    weights: dict[str, mx.array] = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            weights |= cast(dict[str, mx.array], mx.load(str(file)))
        except RuntimeError as error:  # what MLX says of a file that is cut or damaged
            raise CheckpointError(
                f"the draft {str(draft_id)!r} cannot be loaded: {error}", "Fetch it again."
            ) from error
    quantization = config.get("quantization")
    if quantization:
        nn.quantize(
            draft,
            quantization["group_size"],
            quantization["bits"],
            class_predicate=lambda name, _module: f"{name}.scales" in weights,
        )
    try:
        draft.load_weights(list(weights.items()), strict=True)
    except ValueError as error:
        raise CheckpointError(
            f"the draft {str(draft_id)!r} does not fit its own config: "
            f"{str(error).splitlines()[0]}",
            "Check num_hidden_layers and the number of target_layer_ids.",
        ) from error
    mx.eval(draft.parameters())
    return draft


def make_cache(draft: DFlashDraftModel) -> DraftCache:
    """An empty context cache for one run."""
    return DraftCache(draft.config.windows)


def _read_config(folder: Path) -> dict[str, Any]:
    """The folder's config.json. Raises ``CheckpointError``."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder} has no readable config.json.", "Is it a draft?") from error
    name = (config.get("architectures") or ["DFlashDraftModel"])[0]
    if name != "DFlashDraftModel":
        raise CheckpointError(
            f"this checkpoint is a {name}; the MLX backend runs DFlashDraftModel.",
            "Use the torch backend for DFlash 2.",
        )
    return config
