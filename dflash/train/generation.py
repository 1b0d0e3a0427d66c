"""Many answers at once: batched decoding with a plain causal LM.

Knows transformers models and token ids. Knows no draft and no text. Slower targets are fed here
for hours, so finished rows leave the batch and the cache grows in place.
Shapes: b rows, n positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    Cache,
    DynamicCache,
    PreTrainedModel,
)
from transformers.cache_utils import DynamicLayer
from transformers.masking_utils import sdpa_mask

from dflash.schema import SamplingParams
from dflash.targets import cache_keyword
from dflash.verify import filtered_probabilities

_GROWTH = 64  # positions added to a full cache buffer at a time
_LOOK_EVERY = 8  # steps between looks for finished rows
_ATTENTION = "grouped_sdpa"


@dataclass(frozen=True, slots=True)
class Answer:
    """One generated continuation; ``ended`` is False when the length limit cut it."""

    index: int  # of its prompt
    ids: tuple[int, ...]  # the stop token included
    ended: bool


class GrowingLayer(DynamicLayer):
    """A full-attention cache layer that copies its past once per ``_GROWTH`` steps."""

    _length = 0

    def update(
        self,
        key_states: torch.Tensor,  # [b, Hkv, n, d]
        value_states: torch.Tensor,
        *_args: object,
        **_kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append n positions and return all of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._keys, self._values = key_states[:, :, :0], value_states[:, :, :0]
        end = self._length + key_states.shape[2]
        if end > self._keys.shape[2]:
            self._keys = _grown(self._keys, self._length, end + _GROWTH)
            self._values = _grown(self._values, self._length, end + _GROWTH)
        self._keys[:, :, self._length : end] = key_states
        self._values[:, :, self._length : end] = value_states
        self._length = end
        self.keys, self.values = self._keys[:, :, :end], self._values[:, :, :end]
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep only these rows."""
        self._keys, self._values = self._keys[indices], self._values[indices]
        self.keys = self._keys[:, :, : self._length]
        self.values = self._values[:, :, : self._length]


def _grown(buffer: torch.Tensor, used: int, capacity: int) -> torch.Tensor:
    """A larger copy of the used part of a cache buffer."""
    shape = list(buffer.shape)
    shape[2] = capacity
    grown = buffer.new_zeros(shape)
    grown[:, :, :used] = buffer[:, :, :used]
    return grown


def grouped_attention(
    module: nn.Module,
    query: torch.Tensor,  # [b, H, n, d]
    key: torch.Tensor,  # [b, Hkv, n_all, d]
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **_kwargs: object,
) -> tuple[torch.Tensor, None]:
    """Attend with shared key heads read in place: transformers' own sdpa path copies or reorders
    them when there is a mask, which on a CPU costs more than the attention itself."""
    out = nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling,
        is_causal=attention_mask is None and query.shape[2] > 1,
        enable_gqa=query.shape[1] != key.shape[1],
    )  # fmt: skip
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(_ATTENTION, grouped_attention)
AttentionMaskInterface.register(_ATTENTION, sdpa_mask)


def speed_up_attention(model: PreTrainedModel) -> None:
    """Switch a CPU model to ``grouped_attention`` where it computes the same thing."""
    if model.device.type == "cpu" and model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(_ATTENTION)


def new_cache(model: PreTrainedModel) -> Cache:
    """The cheapest cache this model can use for batched decoding."""
    config = model.config.get_text_config(decoder=True)
    kinds = set(getattr(config, "layer_types", None) or ("full_attention",))
    if kinds == {"full_attention"} and getattr(config, "sliding_window", None) is None:
        return Cache(layer_class_to_replicate=GrowingLayer)
    return DynamicCache(config=config)


@torch.inference_mode()
def generate_batch(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    *,
    sampling: SamplingParams,
    stop_ids: frozenset[int],
    generator: torch.Generator | None = None,
) -> list[Answer]:
    """Continue every prompt; the answers come back in the order of the prompts.

    At temperature 0 each is the model's greedy continuation in the model's own dtype; above 0 it
    is drawn from the top 256 tokens at most. Rows are
    padded on the left and masked, so a row's answer does not depend on its neighbours (beyond
    rounding).
    """
    device = model.device
    ids, mask = _left_padded(prompts, device)
    alive = torch.arange(len(prompts), device=device)
    cache = new_cache(model)
    produced: list[list[int]] = [[] for _ in prompts]
    step_ids, positions = ids, (mask.cumsum(1) - 1).clamp(min=0)
    for step in range(1, sampling.max_new_tokens + 1):
        logits = model(
            input_ids=step_ids, attention_mask=mask, position_ids=positions,
            use_cache=True, logits_to_keep=1, **{cache_keyword(model): cache},
        ).logits[:, -1]  # [b, V]  # fmt: skip
        chosen = _choose(logits, sampling, generator)
        for row, token in zip(alive.tolist(), chosen.tolist(), strict=True):
            if not (produced[row] and produced[row][-1] in stop_ids):
                produced[row].append(token)
        step_ids, positions = chosen[:, None], positions[:, -1:] + 1
        mask = torch.cat((mask, mask.new_ones(len(mask), 1)), dim=1)
        if step % _LOOK_EVERY == 0:
            running = torch.tensor([produced[r][-1] not in stop_ids for r in alive.tolist()])
            if not running.any():
                break
            if not running.all():
                keep = running.nonzero().squeeze(1).to(device)
                cache.batch_select_indices(keep)
                alive, mask = alive[keep], mask[keep]
                step_ids, positions = step_ids[keep], positions[keep]
    return [Answer(i, tuple(p), bool(p) and p[-1] in stop_ids) for i, p in enumerate(produced)]


def generate_all(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    *,
    sampling: SamplingParams,
    stop_ids: frozenset[int],
    batch_size: int,
    generator: torch.Generator | None = None,
) -> Iterator[list[Answer]]:
    """Yield one batch of answers after another, prompts of like length together."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        answers = generate_batch(
            model,
            [prompts[i] for i in rows],
            sampling=sampling,
            stop_ids=stop_ids,
            generator=generator,
        )
        yield [Answer(rows[a.index], a.ids, a.ended) for a in answers]


def _choose(
    logits: torch.Tensor,  # [b, V]
    sampling: SamplingParams,
    generator: torch.Generator | None,
) -> torch.Tensor:  # [b]
    if sampling.temperature == 0:
        return logits.argmax(dim=-1)
    # Sorting a whole vocabulary per step costs more than the forward; the top 256 hold the mass.
    best = logits.topk(min(sampling.top_k or 256, logits.shape[-1]), dim=-1)
    probabilities = filtered_probabilities(best.values, sampling)  # [b, k]
    drawn = torch.multinomial(probabilities, 1, generator=generator)
    return best.indices.gather(1, drawn).squeeze(-1)


def _left_padded(
    prompts: Sequence[Sequence[int]], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and attention mask [b, n]; padding is id 0 under a zero mask."""
    width = max(len(p) for p in prompts)
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(list(prompt))
        mask[row, width - len(prompt) :] = 1
    return ids.to(device), mask.to(device)
