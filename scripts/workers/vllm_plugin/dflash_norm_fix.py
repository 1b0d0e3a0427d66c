"""A vLLM plugin, loaded by every process of a server through vLLM's own entry points.

vLLM 0.32 norms the context keys of all draft layers in one call, and its CPU kernel then takes
layer 0's weight for every layer: drafts of two layers or more propose other tokens than the
published semantics. The answers stay right, acceptance falls. Imports none of ours.
"""

from __future__ import annotations

import torch


def register() -> None:
    """Norm each layer's context keys with that layer's own weight."""
    from vllm import _custom_ops as ops
    from vllm.model_executor.models.qwen3_dflash import DFlashQwen3Model

    def normalise_per_layer(
        self: DFlashQwen3Model, all_k: torch.Tensor
    ) -> torch.Tensor:  # [L, S, H, d]
        normed = torch.empty_like(all_k)
        for layer, weight in enumerate(self._k_norm_weights):
            ops.rms_norm(normed[layer], all_k[layer], weight, self._rms_norm_eps)
        return normed

    DFlashQwen3Model._normalize_context_k = normalise_per_layer
