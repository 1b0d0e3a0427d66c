"""Matrix products for one to sixteen rows on a CPU, in the formulation that is fastest here.

Knows weight matrices and the clock. Knows no model and no layer. Which formulation wins depends
on the machine, the shape and the number of rows, so it is measured once per shape in a process.
Shapes: n rows, I input features, O output features.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Product = Callable[[torch.Tensor], torch.Tensor]  # [n, I] -> [n, O]

WIDTHS = (1, 2, 4, 8, 16)  # row counts that are measured; others use the next larger one
MAX_NARROW = WIDTHS[-1]
_REPEATS = 3
_BITS_BEYOND_HALF = 0x1FFF  # float32 has 13 more mantissa bits than float16
_MIN_GAIN = 0.1  # another formulation must beat the plain one by this much: timings are noisy
_MIN_INT8_SIZE = 2**22  # weights of a head worth approximating when drafting
_BUDGET_S = 1.0  # at most this long per set of new shapes
_MEASURED_ORDER = (1, 8, 16, 4, 2)
_MAX_PROBE_ROWS = 8192
_WORKING_SET_BYTES = 64 * 2**20  # enough weights that no cache keeps them between two uses

# (O, I, has_bias, formulations on offer, threads) -> a formulation per entry of WIDTHS
_plans: dict[tuple[Any, ...], tuple[str, ...]] = {}


class LeanLinear:
    """One or more linear layers that read the same input, as a single product."""

    def __init__(self, layers: Sequence[nn.Linear], *, adopt: bool) -> None:
        self.weight, self.bias = _fused(layers, adopt=adopt)  # [O, I], [O] or None
        self.kinds = _kinds_for(self.weight)
        self._made: dict[str, Product] = {}
        self._by_width: list[Product] = [self.product("rows")] * (MAX_NARROW + 1)

    @property
    def plan_key(self) -> tuple[Any, ...]:
        """What a measured plan depends on."""
        return (*self.weight.shape, self.bias is None, self.kinds, torch.get_num_threads())

    @property
    def is_planned(self) -> bool:
        """Whether this shape has been measured in this process."""
        return self.plan_key in _plans

    def product(self, kind: str) -> Product:
        """The product in one formulation; its packed weights are made on first use."""
        if kind not in self._made:
            self._made[kind] = _MAKERS[kind](self.weight, self.bias)
        return self._made[kind]

    def probe(self, kind: str) -> Product:
        """The product to time: that of the first rows where there are very many."""
        if self.weight.shape[0] <= _MAX_PROBE_ROWS:
            return self.product(kind)
        bias = None if self.bias is None else self.bias[:_MAX_PROBE_ROWS]
        return _MAKERS[kind](self.weight[:_MAX_PROBE_ROWS], bias)

    def apply_plan(self) -> None:
        """Use the measured plan and free the packed weights it does not need."""
        plan = _plans[self.plan_key]
        self._made = {kind: made for kind, made in self._made.items() if kind in plan}
        for n in range(1, MAX_NARROW + 1):
            width = next(i for i, w in enumerate(WIDTHS) if n <= w)
            self._by_width[n] = self.product(plan[width])

    def __call__(self, x: torch.Tensor) -> torch.Tensor:  # [n, I] -> [n, O]
        n = x.shape[0]
        if n <= MAX_NARROW:
            return self._by_width[n](x)
        return F.linear(x, self.weight, self.bias)


_int8_cached: weakref.WeakKeyDictionary[nn.Linear, tuple[Any, Product]] = (
    weakref.WeakKeyDictionary()
)
_cached: weakref.WeakKeyDictionary[nn.Linear, tuple[Any, LeanLinear]] = weakref.WeakKeyDictionary()


def lean_linear(*layers: nn.Linear, adopt: bool = False) -> LeanLinear:
    """Fuse layers that read the same input; made once and kept as long as the first layer lives.

    Remade when a weight has changed since. With ``adopt`` the layers' own parameters become
    slices of the fused weight, so that fusing costs no memory.
    """
    kept = _cached.get(layers[0])
    if kept is not None and kept[0] == _fingerprint(layers):
        return kept[1]
    with torch.inference_mode(False), torch.no_grad():
        made = LeanLinear(layers, adopt=adopt)
    _cached[layers[0]] = (_fingerprint(layers), made)
    return made


def drafting_product(layer: nn.Linear) -> LeanLinear | Product:
    """A head that is good enough to guess with: int8 where the head is large and the machine has
    the instructions, else the exact product.

    About 1 % relative noise on the logits: it may cost an accepted draft, never a wrong token,
    because the target verifies with its own exact head.
    """
    weight = layer.weight.detach()
    if (
        layer.bias is not None
        or weight.dtype != torch.float32
        or weight.numel() < _MIN_INT8_SIZE
        or not torch.backends.mkldnn.is_available()
        or not torch.cpu._is_vnni_supported()
    ):
        return lean_linear(layer)
    kept = _int8_cached.get(layer)
    if kept is None or kept[0] != _fingerprint((layer,)):
        with torch.inference_mode(False), torch.no_grad():
            kept = _int8_cached[layer] = (_fingerprint((layer,)), _int8(weight))
    return kept[1]


def plan(linears: Sequence[LeanLinear]) -> None:
    """Choose a formulation per shape and width for a forward that uses these products in order."""
    if sum(linear.weight.nbytes for linear in linears) >= _WORKING_SET_BYTES:
        # Streamed from memory at every step, so the fewest bytes win; a sample small enough to
        # be timed would sit in a cache and hide that.
        for linear in linears:
            if "half" in linear.kinds:
                _plans[linear.plan_key] = ("half",) * len(WIDTHS)
    sample = _sample(linears)
    if sample:
        with torch.inference_mode():
            _measure(sample)
    # Packing runs on one thread each; the head comes last and takes longest, so it starts first.
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        list(pool.map(LeanLinear.apply_plan, reversed(linears)))


def _sample(linears: Sequence[LeanLinear]) -> list[LeanLinear]:
    """Enough consecutive products to run from memory as a whole forward does."""
    unknown = {linear.plan_key for linear in linears if not linear.is_planned}
    sample: list[LeanLinear] = []
    num_bytes = 0
    for linear in linears:
        is_new = all(linear.plan_key != s.plan_key for s in sample)
        if linear.plan_key in unknown and (is_new or num_bytes < _WORKING_SET_BYTES):
            sample.append(linear)
            num_bytes += linear.weight.nbytes
    return sample


def _measure(sample: Sequence[LeanLinear]) -> None:
    """Time every formulation of every product at every width and remember the winners.

    The plain product stays unless another is clearly faster, and at every width that a machine
    too busy to answer in time leaves unmeasured.
    """
    deadline_s = time.perf_counter() + _BUDGET_S
    winners: dict[tuple[Any, ...], dict[int, str]] = {s.plan_key: {} for s in sample}
    for width in _MEASURED_ORDER:
        times = _times(sample, width, deadline_s)
        if times is None:
            break
        for key, by_kind in times.items():
            best = min(by_kind, key=by_kind.__getitem__)
            if by_kind[best] < (1 - _MIN_GAIN) * by_kind["rows"]:
                winners[key][width] = best
    for key, found in winners.items():
        _plans[key] = tuple(found.get(width, "rows") for width in WIDTHS)


def _times(
    sample: Sequence[LeanLinear], width: int, deadline_s: float
) -> dict[tuple[Any, ...], dict[str, float]] | None:
    """Seconds per plan key and formulation, the fastest of a few passes; ``None`` when late."""
    dtype = sample[0].weight.dtype
    inputs = {k: torch.randn(width, k, dtype=dtype) for k in {s.weight.shape[1] for s in sample}}
    products = [
        (i, kind, s.probe(kind), inputs[s.weight.shape[1]])
        for kind in _MAKERS
        for i, s in enumerate(sample)
        if kind in s.kinds
    ]
    best: dict[tuple[int, str], float] = {}
    for _ in range(_REPEATS):
        for i, kind, product, x in products:
            start = time.perf_counter()
            product(x)
            end = time.perf_counter()
            best[i, kind] = min(best.get((i, kind), end - start), end - start)
            if end > deadline_s:
                return None
    totals: dict[tuple[Any, ...], dict[str, float]] = {s.plan_key: {} for s in sample}
    for (i, kind), seconds in best.items():
        by_kind = totals[sample[i].plan_key]
        by_kind[kind] = by_kind.get(kind, 0.0) + seconds
    return totals


def _fingerprint(layers: Sequence[nn.Linear]) -> tuple[tuple[int, int], ...]:
    """Changes when a weight is replaced or updated in place."""
    tensors = [t for layer in layers for t in (layer.weight, layer.bias) if t is not None]
    return tuple((t.data_ptr(), 0 if t.is_inference() else t._version) for t in tensors)


def _fused(layers: Sequence[nn.Linear], *, adopt: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The weights one below the other."""
    has_bias = layers[0].bias is not None
    if len(layers) == 1:
        return layers[0].weight.detach(), layers[0].bias.detach() if has_bias else None
    weight = torch.cat([layer.weight.detach() for layer in layers])
    if adopt:
        rows = weight.split([layer.out_features for layer in layers])
        for layer, own in zip(layers, rows, strict=True):
            layer.weight.data = own
    bias = torch.cat([layer.bias.detach() for layer in layers]) if has_bias else None
    return weight, bias


def _kinds_for(weight: torch.Tensor) -> tuple[str, ...]:
    """The formulations that give this weight's product to within float32 rounding."""
    if weight.dtype != torch.float32:
        return ("rows", "columns")
    kinds = ["rows", "columns"]
    if torch.backends.mkldnn.is_available():
        kinds.append("onednn")
    if torch.backends.quantized.engine in ("x86", "fbgemm") and _fits_half(weight):
        kinds.append("half")
    return tuple(kinds)


def _fits_half(weight: torch.Tensor) -> bool:
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
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, MAX_NARROW)
    linear = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: linear(x, packed, bias, "none", [], "")


def _half(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    # float16 storage, float32 arithmetic: half the bytes to read per step.
    scale = _half_scale(weight)
    packed = torch.ops.quantized.linear_prepack_fp16(weight * scale, bias)
    linear = torch.ops.quantized.linear_dynamic_fp16.default
    unscale = 1 / scale
    return lambda x: linear(x * unscale, packed)


def _int8(weight: torch.Tensor) -> Product:
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


_MAKERS: dict[str, Callable[[torch.Tensor, torch.Tensor | None], Product]] = {
    "rows": _rows,
    "columns": _columns,
    "onednn": _onednn,
    "half": _half,
}
