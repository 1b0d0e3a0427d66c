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

from dflash.lean_linear import MAX_NARROW, LeanLinear

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
    def num_groups(self) -> int:
        """Query heads per key head."""
        return self.num_heads // self.num_kv_heads

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


def causal_mask(num_rows: int, end: int, heads: Heads, dtype: torch.dtype) -> torch.Tensor | None:
    """What the last ``num_rows`` of ``end`` positions may not see, as ``attend`` wants it."""
    if num_rows == 1 or (num_rows == end and num_rows > MAX_NARROW):
        return None  # nothing is hidden, or ``attend`` knows the plain triangle by itself
    hidden = torch.full((num_rows, end), float("-inf"), dtype=dtype)
    return as_bias(hidden.triu_(end - num_rows + 1), heads)


def as_bias(bias: torch.Tensor, heads: Heads) -> torch.Tensor:
    """[n, S] for each query head: [n * G, S] while the heads of a group are rows."""
    if bias.shape[0] > MAX_NARROW:
        return bias
    return bias.repeat_interleave(heads.num_groups, 0)


def attend(
    queries: torch.Tensor,  # [n, H, d]
    keys: torch.Tensor,  # [1, Hkv, S, d]
    values: torch.Tensor,
    *,
    mask: torch.Tensor | None,  # from causal_mask or as_bias
    is_causal: bool,  # for more than MAX_NARROW rows and no mask: the plain triangle
) -> torch.Tensor:  # [n, H * d]
    """Softmax attention, each key head read once for all the query heads that share it."""
    n, num_kv, head_dim = queries.shape[0], keys.shape[1], queries.shape[2]
    if n == 1:
        return _attend(queries.view(1, num_kv, -1, head_dim), keys, values).view(1, -1)
    if n <= MAX_NARROW:
        rows = queries.view(n, num_kv, -1, head_dim).transpose(0, 1)
        rows = rows.reshape(1, num_kv, -1, head_dim)
        attended = _attend(rows, keys, values, mask).view(num_kv, n, -1)
        return attended.transpose(0, 1).reshape(n, -1)
    attended = _attend(
        queries.transpose(0, 1)[None], keys, values, mask, 0.0, is_causal and mask is None,
        enable_gqa=True,
    )  # fmt: skip
    return attended[0].transpose(0, 1).reshape(n, -1)


def rotate_(
    heads: torch.Tensor,  # [..., heads, d], changed in place
    cos: torch.Tensor,  # [..., 1, 2, d/2]
    sin: torch.Tensor,
) -> None:
    """Turn every head by its position's angles."""
    halves = heads.unflatten(-1, (2, -1))
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
