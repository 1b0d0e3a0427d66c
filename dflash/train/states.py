"""What the target thinks at every position of the training rows: tapped states, kept on disk.

Knows transformers targets and files of numbers. Knows no draft. States are made when first asked
for and read back after, in bf16, through a memory map, so a resumed run makes none again.
Shapes: b rows, S positions, K taps, D hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from dflash.targets import decoder_layers
from dflash.train.synthesis import Row

_WIDTH_STEP = 64  # few different widths: each is compiled once


@dataclass(frozen=True, slots=True)
class StateBatch:
    """Rows side by side, padded on the right."""

    ids: torch.Tensor  # [b, S]
    lengths: torch.Tensor  # [b]
    answer_starts: torch.Tensor  # [b], position of the first answer token
    tapped: torch.Tensor  # [b, S, K*D]
    final: torch.Tensor  # [b, S, D], after the target's last norm: what its head reads


class TargetStates:
    """The states of ``rows`` under one target, made in batches and cached in ``folder``."""

    def __init__(
        self,
        model: PreTrainedModel,
        target_layer_ids: Sequence[int],
        rows: Sequence[Row],
        folder: Path,
    ) -> None:
        self._model, self._taps, self._rows = model, list(target_layer_ids), rows
        self._offsets = np.cumsum([0, *(len(r.prompt_ids) + len(r.answer_ids) for r in rows)])
        size = model.config.get_text_config(decoder=True).hidden_size
        self._width = (len(self._taps) + 1) * size
        self._split = len(self._taps) * size
        folder.mkdir(parents=True, exist_ok=True)
        total = int(self._offsets[-1])
        self._states = _open_map(folder / "states.i16", (total, self._width), np.int16)
        self._done = _open_map(folder / "states.done", (len(rows),), np.bool_)

    def batch(self, indices: Sequence[int]) -> StateBatch:
        """The named rows with their states, on the target's device."""
        missing = [i for i in indices if not self._done[i]]
        if missing:
            self._make(missing)
        device = self._model.device
        ids, lengths = _right_padded([self._rows[i] for i in indices], multiple=_WIDTH_STEP)
        states = torch.zeros(*ids.shape, self._width, dtype=torch.bfloat16)
        for row, i in enumerate(indices):
            part = torch.from_numpy(self._states[self._offsets[i] : self._offsets[i + 1]].copy())
            states[row, : len(part)] = part.view(torch.bfloat16)
        states = states.to(device)
        starts = torch.tensor([len(self._rows[i].prompt_ids) for i in indices])
        return StateBatch(
            ids.to(device), lengths.to(device), starts.to(device),
            states[..., : self._split], states[..., self._split :],
        )  # fmt: skip

    @torch.no_grad()
    def _make(self, indices: Sequence[int]) -> None:
        """Run the target over rows and write their states."""
        ids, lengths = _right_padded([self._rows[i] for i in indices], multiple=1)
        tapped, final = tapped_forward(self._model, ids.to(self._model.device), self._taps)
        states = torch.cat((tapped, final), dim=-1).to("cpu", torch.bfloat16)
        for row, i in enumerate(indices):
            part = states[row, : int(lengths[row])].contiguous().view(torch.int16).numpy()
            self._states[self._offsets[i] : self._offsets[i + 1]] = part
            self._done[i] = True


@torch.no_grad()
def tapped_forward(
    model: PreTrainedModel,
    ids: torch.Tensor,  # [b, S], padded on the right: causal layers never look there
    target_layer_ids: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor]:  # [b, S, K*D], [b, S, D]
    """Tapped layer outputs side by side in tap order, and the states the head reads."""
    layers = decoder_layers(model)
    kept: dict[int, torch.Tensor] = {}

    def keep(layer_id: int) -> Any:
        def hook(_module: nn.Module, _args: Any, output: Any) -> None:
            kept[layer_id] = output[0] if isinstance(output, tuple) else output

        return hook

    hooks = [layers[i].register_forward_hook(keep(i)) for i in set(target_layer_ids)]
    try:
        final = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat([kept[i].to(final.device) for i in target_layer_ids], dim=-1), final


def _right_padded(rows: Sequence[Row], *, multiple: int) -> tuple[torch.Tensor, torch.Tensor]:
    sequences = [[*row.prompt_ids, *row.answer_ids] for row in rows]
    lengths = torch.tensor([len(s) for s in sequences])
    width = -(-int(lengths.max()) // multiple) * multiple
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.tensor(sequence)
    return ids, lengths


def _open_map(path: Path, shape: tuple[int, ...], dtype: Any) -> np.memmap:
    """Open a file of numbers for reading and writing; a file of another size starts anew."""
    num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    fits = path.exists() and path.stat().st_size == num_bytes
    return np.memmap(path, dtype=dtype, mode="r+" if fits else "w+", shape=shape)
