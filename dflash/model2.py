"""DFlash 2: a candidate selector and dynamic convolutions on top of the DFlash draft.

Knows the parts that version 2 adds (inco.ai/blog/dflash2, speculators issue #1014). Knows no
loop; what a proposal is worth is decided in dflash.verify.
Shapes: b batch, Q block slots, D hidden, G groups of channels, t taps of a kernel, R rank.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from dflash.model import DFlashConfig, DFlashDraftModel, DFlashLayer, DraftCache
from dflash.verify import Proposal


class DynamicConv(nn.Module):
    """Causal convolutions over the block's slots, before and after a sublayer.

    Each kernel is a trained one per channel plus one per group that the sublayer's input
    chooses. Slots before the anchor count as zero.
    """

    def __init__(self, hidden_size: int, num_taps: int, group_size: int) -> None:
        super().__init__()
        self.num_taps, self.group_size = num_taps, group_size
        self.base_kernel = nn.Parameter(torch.zeros(2, num_taps, hidden_size))
        num_groups = hidden_size // group_size
        self.kernel_projection = nn.Linear(hidden_size, 2 * num_taps * num_groups, bias=False)

    def kernels(self, x: torch.Tensor) -> torch.Tensor:
        """Both kernels for every slot: [b, Q, 2, t, D], chosen by the sublayer's input x."""
        chosen = self.kernel_projection(x).unflatten(-1, (2, self.num_taps, -1))
        return self.base_kernel + chosen.repeat_interleave(self.group_size, dim=-1)

    @staticmethod
    def convolve(x: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
        """Convolve x [b, Q, D] over its slots with a kernel per slot [b, Q, t, D]."""
        num_slots = x.shape[1]
        out = kernel[:, :, 0] * x
        for back in range(1, min(kernel.shape[2], num_slots)):
            earlier = nn.functional.pad(x[:, : num_slots - back], (0, 0, back, 0))
            out = out + kernel[:, :, back] * earlier
        return out


class DFlash2Layer(DFlashLayer):
    """A DFlash layer with a convolution around each of its two sublayers."""

    def __init__(self, config: DFlashConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        sizes = config.trained("conv_kernel_size"), config.trained("conv_group_size")
        self.attention_conv = DynamicConv(config.hidden_size, *sizes)
        self.mlp_conv = DynamicConv(config.hidden_size, *sizes)

    def forward(
        self,
        block: torch.Tensor,
        context: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        cache: DraftCache | None,
        attention_mask: torch.Tensor | None,
    ) -> torch.Tensor:
        x = self.input_layernorm(block)
        kernels = self.attention_conv.kernels(x)
        x = DynamicConv.convolve(x, kernels[:, :, 0])
        x = self.self_attn(x, context, rotary, cache, attention_mask)
        block = block + DynamicConv.convolve(x, kernels[:, :, 1])
        x = self.post_attention_layernorm(block)
        kernels = self.mlp_conv.kernels(x)
        x = self.mlp(DynamicConv.convolve(x, kernels[:, :, 0]))
        return block + DynamicConv.convolve(x, kernels[:, :, 1])


class CandidateSelector(nn.Module):
    """Walks the block left to right over each slot's best candidates, scoring every candidate
    together with the token chosen before it."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        rank = config.trained("selector_rank")
        self.top_k: int = config.trained("selector_top_k")
        self.predecessor_codebook = nn.Parameter(torch.zeros(config.vocab_size, rank))
        self.successor_codebook = nn.Parameter(torch.zeros(config.vocab_size, rank))
        self.hidden_projection = nn.Linear(config.hidden_size, rank, bias=False)

    def forward(
        self,
        hidden: torch.Tensor,  # [B-1, D], mask slots only
        logits: torch.Tensor,  # [B-1, V]
        anchor_id: int,
        temperature: float,
        generator: torch.Generator | None,
    ) -> Proposal:
        """Choose one candidate per slot; above temperature 0 draw it and keep the odds."""
        scores, candidates = logits.topk(self.top_k, dim=-1)  # [B-1, k]
        mixed = self.hidden_projection(hidden)  # [B-1, R]
        previous, ids, odds = anchor_id, [], []
        for slot in range(logits.shape[0]):
            pair = self.predecessor_codebook[previous] * mixed[slot]
            score = scores[slot] + self.successor_codebook[candidates[slot]] @ pair
            if temperature > 0:
                probabilities = (score.float() / temperature).softmax(dim=-1)
                choice = int(torch.multinomial(probabilities, 1, generator=generator))
                odds.append(probabilities)
            else:
                choice = int(score.argmax())
            previous = int(candidates[slot, choice])
            ids.append(previous)
        if not odds:
            return Proposal(tuple(ids))
        spread = torch.zeros(logits.shape, dtype=torch.float32, device=logits.device)
        return Proposal(tuple(ids), spread.scatter(-1, candidates, torch.stack(odds)))


class DFlash2DraftModel(DFlashDraftModel):
    """A DFlash 2 checkpoint: ``architectures: ["DFlash2DraftModel"]``."""

    layer_class = DFlash2Layer

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__(config)
        self.candidate_selector = CandidateSelector(config)
        self.post_init()

    def propose_from(
        self,
        hidden: torch.Tensor,
        logits: torch.Tensor,
        anchor_id: int,
        temperature: float,
        generator: Any,
    ) -> Proposal:
        """See ``DFlashDraftModel.propose_from``: the selector decides."""
        return self.candidate_selector(hidden, logits, anchor_id, temperature, generator)
