"""One decoder layer in as few calls as torch needs, and the cache it reads and writes.

Knows tensors: fused weights, rotary tables, keys and values. Knows no transformers class.
Shapes: n rows (positions), D hidden, H query heads, Hkv key heads, d head size, L layers,
C cache capacity, S positions visible.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from dflash.lean_linear import LeanLinear

_attend = torch._C._nn.scaled_dot_product_attention
_silu = torch._C._nn.silu
_vector_norm = torch.linalg.vector_norm
_hypot = torch.hypot

Norm = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Heads:
    """How a projection is cut into heads."""

    num_heads: int
    num_kv_heads: int
    head_dim: int

    @property
    def num_rotated(self) -> int:
        """Query and key heads: those that carry a position."""
        return self.num_heads + self.num_kv_heads


@dataclass(frozen=True, slots=True)
class LeanLayer:
    """The weights of one decoder layer, fused."""

    norm: Norm
    qkv: LeanLinear
    head_norm: Norm | None  # over the rotated heads [n, H + Hkv, d]
    out: LeanLinear
    mlp_norm: Norm
    gate_up: LeanLinear
    down: LeanLinear

    @property
    def linears(self) -> tuple[LeanLinear, ...]:
        """The products in the order of use."""
        return (self.qkv, self.out, self.gate_up, self.down)


def rms_norm(gain: torch.Tensor, eps: float) -> Norm:
    """RMS normalisation over the last dimension, ``gain`` broadcast over the others."""
    size = gain.shape[-1]
    if gain.dtype != torch.float32:
        # transformers rounds to the narrow type before the gain, so this does too.
        return lambda x: torch.rms_norm(x.float(), (size,), None, eps).to(gain.dtype) * gain
    # x / sqrt(mean(x^2) + eps) = x * sqrt(D) / hypot(|x|, sqrt(D * eps)): half the calls.
    scaled, floor = gain * math.sqrt(size), torch.tensor(math.sqrt(size * eps))
    return lambda x: x.div(_hypot(_vector_norm(x, 2, -1, True), floor)).mul_(scaled)


class RotaryTable:
    """Cosines and signed sines per position, grown as longer caches are made."""

    def __init__(self, inv_freq: torch.Tensor, scaling: float, dtype: torch.dtype) -> None:
        self._inv_freq, self._scaling, self._dtype = inv_freq.float(), scaling, dtype
        self.cos = self.sin = torch.empty(0)  # [C, 1, 2, d/2]

    def grow(self, capacity: int) -> None:
        """Cover positions 0 to ``capacity - 1``."""
        if capacity <= self.cos.shape[0]:
            return
        positions = torch.arange(capacity).float()
        angles = positions[:, None] * self._inv_freq.cpu()
        cos, sin = angles.cos() * self._scaling, angles.sin() * self._scaling
        self.cos = torch.stack((cos, cos), dim=1)[:, None].to(self._dtype)
        self.sin = torch.stack((-sin, sin), dim=1)[:, None].to(self._dtype)

    def at(self, start: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows of positions ``start`` to ``end - 1``: [n, 1, 2, d/2] twice."""
        return self.cos[start:end], self.sin[start:end]


class LeanCache:
    """Keys and values of one run, allocated once. Rolling back only moves ``length``."""

    def __init__(self, num_layers: int, heads: Heads, capacity: int, dtype: torch.dtype) -> None:
        self.capacity = capacity
        self.length = 0
        self._num_kv_heads = heads.num_kv_heads
        shape = (num_layers, capacity, 2 * heads.num_kv_heads, heads.head_dim)
        self.kv = torch.empty(shape, dtype=dtype)  # [L, C, 2 * Hkv, d]: keys, then values

    def rollback(self, num_rejected: int) -> None:
        """Forget the last ``num_rejected`` positions."""
        if not 0 <= num_rejected <= self.length:
            raise ValueError(
                f"num_rejected must be 0 to {self.length} (the cache's length), got {num_rejected}"
            )
        self.length -= num_rejected

    def reserve(self, num_positions: int) -> int:
        """The end of ``num_positions`` more; raises ``ValueError`` when they do not fit."""
        end = self.length + num_positions
        if end > self.capacity:
            raise ValueError(
                f"the cache holds {self.capacity} positions; {end} are needed. "
                "Make it with a larger capacity."
            )
        return end

    def rows(self, start: int, end: int) -> tuple[torch.Tensor, ...]:
        """Where each layer writes positions ``start`` to ``end - 1``: L times [n, 2 * Hkv, d]."""
        return self.kv[:, start:end].unbind(0)

    def visible(
        self, start: int, end: int
    ) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        """Keys and values of the positions from ``start`` on: L times [1, Hkv, S, d] each."""
        seen = self.kv[:, start:end].transpose(1, 2)[:, None]  # [L, 1, 2 * Hkv, S, d]
        num = self._num_kv_heads
        return seen[:, :, :num].unbind(0), seen[:, :, num:].unbind(0)


def causal_mask(num_rows: int, end: int, dtype: torch.dtype) -> torch.Tensor | None:
    """What the last ``num_rows`` of ``end`` positions may not see, as a bias [n, S]."""
    if num_rows in (1, end):
        return None  # nothing is hidden, or ``attend`` knows the plain triangle by itself
    hidden = torch.full((num_rows, end), float("-inf"), dtype=dtype)
    return hidden.triu_(end - num_rows + 1)


def attend(
    queries: torch.Tensor,  # [n, H, d]
    keys: torch.Tensor,  # [1, Hkv, S, d]
    values: torch.Tensor,
    *,
    mask: torch.Tensor | None,  # [n, S]
    is_causal: bool,
) -> torch.Tensor:  # [n, H * d]
    """Softmax attention; query heads share key heads in groups."""
    n = queries.shape[0]
    if n == 1:
        # One row: the heads of a group become the rows of one product, and the keys are read once.
        rows = queries.view(1, keys.shape[1], -1, queries.shape[2])
        return _attend(rows, keys, values).view(1, -1)
    triangle = is_causal and mask is None
    rows = queries.transpose(0, 1)[None]  # [1, H, n, d]
    attended = _attend(rows, keys, values, mask, 0.0, triangle, enable_gqa=True)
    return attended[0].transpose(0, 1).reshape(n, -1)


def rotate_(
    heads: torch.Tensor,  # [..., heads, d], changed in place
    cos: torch.Tensor,  # [..., 1, 2, d/2]
    sin: torch.Tensor,
) -> None:
    """Turn every head by its position's angles."""
    halves = heads.view(*heads.shape[:-1], 2, -1)
    swapped = halves.flip(-2)
    halves.mul_(cos).addcmul_(swapped, sin)


def run_layer(
    x: torch.Tensor,  # [n, D]
    layer: LeanLayer,
    heads: Heads,
    *,
    cos: torch.Tensor,
    sin: torch.Tensor,
    write: torch.Tensor,  # [n, 2 * Hkv, d], a view of the cache
    keys: torch.Tensor,  # [1, Hkv, S, d], views that end with the rows written here
    values: torch.Tensor,
    mask: torch.Tensor | None,
    is_causal: bool,
) -> torch.Tensor:  # [n, D]
    """Pre-norm attention and gated MLP; the new keys and values go into the cache."""
    qkv = layer.qkv(layer.norm(x)).view(x.shape[0], -1, heads.head_dim)
    rotated = qkv[:, : heads.num_rotated]
    if layer.head_norm is not None:
        rotated.copy_(layer.head_norm(rotated))
    rotate_(rotated, cos, sin)
    write.copy_(qkv[:, heads.num_heads :])
    queries = qkv[:, : heads.num_heads]
    x = x + layer.out(attend(queries, keys, values, mask=mask, is_causal=is_causal))
    gate, up = layer.gate_up(layer.mlp_norm(x)).chunk(2, -1)
    return x + layer.down(_silu(gate).mul_(up))
