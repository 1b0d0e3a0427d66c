"""The same matrix product in several formulations, each a function of the input alone.

Knows one weight matrix at a time and what each formulation keeps of it. Which one is used when
is decided in dflash.lean_linear. Shapes: n rows, I input features, O output features.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.nn import functional as F

Product = Callable[[torch.Tensor], torch.Tensor]  # [n, I] -> [n, O]

_BITS_BEYOND_HALF = 0x1FFF  # float32 has 13 more mantissa bits than float16
_PACKED_ROWS = 16  # the number of rows oneDNN packs for; others work too


def kinds_for(weight: torch.Tensor) -> tuple[str, ...]:
    """The formulations that give this weight's product to within float32 rounding."""
    if weight.dtype != torch.float32:
        return ("rows", "columns")
    kinds = ["rows", "columns"]
    if torch.backends.mkldnn.is_available():
        kinds.append("onednn")
    if torch.backends.quantized.engine in ("x86", "fbgemm") and fits_half(weight):
        kinds.append("half")
    return tuple(kinds)


def fits_half(weight: torch.Tensor) -> bool:
    """Whether scaled float16 storage keeps every mantissa bit of a float32 weight.

    True for weights that were bfloat16 or float16 on disk.
    """
    bits = weight.view(torch.int32).split(4096)  # in parts: a whole head would double the memory
    return not any(bool((part & _BITS_BEYOND_HALF).any()) for part in bits)


def _half_scale(weight: torch.Tensor) -> float:
    """The power of two that brings the largest weight to the top of float16's range; what is
    then too small for it is 2^-38 of the largest, far below float32 rounding."""
    low, high = torch.aminmax(weight)
    return 2.0 ** (14 - math.frexp(max(-float(low), float(high)))[1])


def _rows(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    linear = F.linear
    return lambda x: linear(x, weight, bias)


def _columns(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    mm = torch.mm
    if bias is None:
        return lambda x: mm(weight, x.t()).t().contiguous()
    return lambda x: mm(weight, x.t()).t() + bias


def _onednn(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_ROWS)
    linear = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: linear(x, packed, bias, "none", [], "")


def _half(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    # float16 storage, float32 arithmetic: half the bytes to read per step.
    scale = _half_scale(weight)
    packed = torch.ops.quantized.linear_prepack_fp16(weight * scale, bias)
    linear = torch.ops.quantized.linear_dynamic_fp16.default
    unscale = 1 / scale
    return lambda x: linear(x * unscale, packed)


def int8_product(weight: torch.Tensor) -> Product:
    """The product to about 1 %: int8 weights per output, int8 inputs per call, integer sums."""
    scales = weight.abs().amax(1).div_(127).clamp_min_(torch.finfo(torch.float32).tiny)
    rounded = torch.cat([
        part.div(scale[:, None]).round_().to(torch.int8)
        for part, scale in zip(weight.split(4096), scales.split(4096), strict=True)
    ])  # fmt: skip
    packed = torch.ops.onednn.qlinear_prepack(rounded, None)
    zeros = torch.zeros(len(scales), dtype=torch.int64)
    linear = torch.ops.onednn.qlinear_pointwise.default

    def product(x: torch.Tensor) -> torch.Tensor:
        step = max(float(x.abs().max()) / 127, 1e-30)
        levels = x.mul(1 / step).round_().add_(128).to(torch.uint8)
        return linear(
            levels, step, 128, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )

    return product


MAKERS: dict[str, Callable[[torch.Tensor, torch.Tensor | None], Product]] = {
    "rows": _rows,
    "columns": _columns,
    "onednn": _onednn,
    "half": _half,
}
