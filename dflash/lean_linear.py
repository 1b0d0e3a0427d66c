"""Matrix products for one to sixteen rows on a CPU, in the formulation that is fastest here.

Knows weight matrices and the clock. Knows no model and no layer. Which formulation wins depends
on the machine, the shape and the number of rows, so it is measured once per shape in a process.
Shapes: n rows, I input features, O output features.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from dflash.lean_products import MAKERS, Product, int8_product, kinds_for

WIDTHS = (1, 2, 4, 8, 16)  # row counts that are measured; others use the next larger one
MAX_NARROW = WIDTHS[-1]
_REPEATS = 8
_MIN_GAIN = 0.1  # another formulation must beat the plain one by this much: timings are noisy
_MIN_INT8_SIZE = 2**22  # weights of a head worth approximating when drafting
_BUDGET_S = 1.0  # at most this long per set of new shapes
_MEASURED_KINDS = ("rows", "columns", "onednn")
_MEASURED_ORDER = (1, 8, 16, 4, 2)
_MAX_PROBE_ROWS = 8192
_WORKING_SET_BYTES = 64 * 2**20  # enough weights that no cache keeps them between two uses

# (O, I, has_bias, formulations on offer, threads) -> a formulation per entry of WIDTHS
_plans: dict[tuple[Any, ...], tuple[str, ...]] = {}


class LeanLinear:
    """One or more linear layers that read the same input, as a single product."""

    def __init__(self, layers: Sequence[nn.Linear], *, adopt: bool) -> None:
        self.weight, self.bias = _fused(layers, adopt=adopt)  # [O, I], [O] or None
        self.kinds = kinds_for(self.weight)
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
            self._made[kind] = MAKERS[kind](self.weight, self.bias)
        return self._made[kind]

    def probe(self, kind: str) -> Product:
        """The product to time: that of the first rows where there are very many."""
        if self.weight.shape[0] <= _MAX_PROBE_ROWS:
            return self.product(kind)
        bias = None if self.bias is None else self.bias[:_MAX_PROBE_ROWS]
        return MAKERS[kind](self.weight[:_MAX_PROBE_ROWS], bias)

    def apply(self, kinds: tuple[str, ...]) -> None:
        """Use one formulation per entry of WIDTHS and free the packed weights of the others."""
        self._made = {kind: made for kind, made in self._made.items() if kind in kinds}
        for n in range(1, MAX_NARROW + 1):
            width = next(i for i, w in enumerate(WIDTHS) if n <= w)
            self._by_width[n] = self.product(kinds[width])

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
            kept = _int8_cached[layer] = (_fingerprint((layer,)), int8_product(weight))
    return kept[1]


def plan(linears: Sequence[LeanLinear], *, num_other_bytes: int = 0) -> None:
    """Choose a formulation per shape and width for a forward that uses these products in order.

    ``num_other_bytes`` are weights that others read between two such forwards.
    """
    num_bytes = num_other_bytes + sum(linear.weight.nbytes for linear in linears)
    if num_bytes >= _WORKING_SET_BYTES:
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
    chosen = [_plans[linear.plan_key] for linear in linears]
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        list(pool.map(LeanLinear.apply, reversed(linears), reversed(chosen)))


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
        for kind in _MEASURED_KINDS
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
    """Changes when a weight is replaced or updated in place: the bits are summed, because no
    version counts what goes through ``.data`` (merging an adapter does). Costs a reading."""
    tensors = [t.detach() for layer in layers for t in (layer.weight, layer.bias) if t is not None]
    return tuple((t.data_ptr(), int(_words(t).sum())) for t in tensors)


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """The same bits as whole numbers [n], in words of eight bytes where they divide so: torch adds
    those up at the speed of memory, and narrower ones at a twentieth of it."""
    flat = tensor.flatten()
    size = flat.element_size()
    divides = (flat.numel() * size) % 8 == 0 and (flat.storage_offset() * size) % 8 == 0
    return flat.view(torch.int64 if divides else torch.uint8)


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
