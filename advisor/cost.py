"""Seconds and bytes of one step, from shapes and a machine. Knows arithmetic; measures nothing.

speedup(B) = T_ar * tau(B) / (T_draft(B) + T_verify(B)), with T_* per cycle (paper, Eq. 1).

A pass is modelled as a roofline with a soft knee: weights and KV read at the sustained bandwidth,
products at the sustained rate, plus a fixed cost per layer and per pass. MoE targets read more
experts as more tokens are verified together: the expected share of E experts touched by n tokens
that each pick k is 1 - (1 - k/E)**n.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from advisor.schema import Costs, Hardware, ModelShape, Workload

DTYPE_BITS = {
    "float32": 32.0, "bfloat16": 16.0, "float16": 16.0, "float8": 8.0, "int8": 8.0, "int4": 4.0,
}  # fmt: skip
KV_BYTES_PER_VALUE = 2  # servers keep keys and values in 16 bits unless told otherwise
DEFAULT_BITS = 16.0
# A published draft weighs 0.13 of a 4B to 8B target and 0.06-0.07 of a 27B one (catalogue).
DRAFT_SHARE_SMALL, DRAFT_SHARE_LARGE = 0.13, 0.07
LARGE_TARGET_PARAMS = 20e9


@dataclass(frozen=True, slots=True)
class Sustained:
    """How much of a machine's peak a decoder reaches, and what a pass costs before it computes."""

    bandwidth: float
    flops: float
    layer_s: float
    pass_s: float
    cycle_s: float  # what a draft-verify cycle costs beyond its two passes
    moe_flops: float  # share of ``flops`` that narrow expert products reach
    moe_layer_s: float  # routing
    linear_row_s: float  # a linear-attention layer takes a block's rows one after the other


# gpu: fitted to the paper's Tables 1, 3, 5 and 11 (H200, B200; 100 cells, 15 % root mean square).
# apple: to Aryagm/dflash-mlx issue 2 and z-lab/dflash issue 151. cpu: to our own runs.
SUSTAINED = {
    "gpu": Sustained(0.75, 0.40, 12e-6, 0.5e-3, 0.5e-3, 0.12, 45e-6, 5e-6),
    "apple": Sustained(0.80, 0.20, 25e-6, 1.0e-3, 1.0e-3, 0.50, 45e-6, 20e-6),
    "cpu": Sustained(0.75, 0.35, 40e-6, 0.2e-3, 0.2e-3, 0.50, 40e-6, 100e-6),
}
# Relative, costs and tau measured, but in another process: the worst of thirty rows, docs/LOG.md.
FORMULA_ERROR = 0.14
MODEL_ERROR = 0.35  # relative, on a cycle's seconds; docs/advisor-regression.md shows the residuals


def speedup(costs: Costs, tau: float, block_size: int) -> float:
    """Predicted decode speedup over one token at a time. The block size must be in both tables."""
    cycle_s = costs.draft_s[block_size] + costs.verify_s[block_size]
    return costs.ar_step_s * tau / cycle_s


def break_even_tau(costs: Costs, block_size: int) -> float:
    """The tau at which this block size only ties with plain decoding."""
    return (costs.draft_s[block_size] + costs.verify_s[block_size]) / costs.ar_step_s


def covered_block_sizes(costs: Costs) -> list[int]:
    """Block sizes above 1 with both costs, ascending. 1 is plain decoding: speedup 1 by meaning."""
    return sorted(b for b in costs.draft_s.keys() & costs.verify_s.keys() if b > 1)


def bits_per_weight(shape: ModelShape) -> float:
    """Bits of one stored weight: as quantised, else of the dtype, else 16."""
    if shape.bits_per_weight:
        return shape.bits_per_weight
    return DTYPE_BITS.get((shape.dtype or "").removeprefix("torch."), DEFAULT_BITS)


def estimated_params(shape: ModelShape, *, num_taps: int = 0, with_head: bool = True) -> int | None:
    """Count parameters from dimensions; ``None`` where a dimension (or an MoE's size) is missing.

    L(attention + 3DI + 2D) + K*D^2 + D for a draft with K taps, plus the head for a target.
    """
    if shape.num_params:
        return shape.num_params
    layers, hidden, inner = shape.num_layers, shape.hidden_size, shape.intermediate_size
    if shape.num_experts or not (layers and hidden and inner and shape.num_attention_heads):
        return None
    head_dim = shape.head_dim or hidden // shape.num_attention_heads
    kv_heads = shape.num_kv_heads or shape.num_attention_heads
    attention = 2 * hidden * head_dim * (shape.num_attention_heads + kv_heads)
    body = layers * (attention + 3 * hidden * inner + 2 * hidden) + hidden
    head = (shape.vocab_size or 0) * hidden if with_head else 0
    return body + num_taps * hidden * hidden + head


def kv_bytes_per_sequence(shape: ModelShape, context: int, *, window: int | None = None) -> int:
    """Bytes of keys and values one sequence holds; sliding layers hold at most their window.

    ``window`` caps the full-attention layers as well (a run-time override). Linear-attention layers
    keep a state of fixed size, which is not counted.
    """
    heads, layers = shape.num_kv_heads or shape.num_attention_heads, shape.num_layers
    head_dim = shape.head_dim or _head_dim(shape)
    if not (heads and layers and head_dim):
        return 0
    cap = min(context, window) if window else context
    if not shape.layer_types:
        rows = layers * cap
    else:
        num_full = shape.layer_types.count("full_attention")
        num_sliding = shape.layer_types.count("sliding_attention")
        rows = num_full * cap + num_sliding * min(cap, shape.sliding_window or cap)
    return 2 * KV_BYTES_PER_VALUE * heads * head_dim * rows


def weights_read(shape: ModelShape, num_params: int, num_tokens: int) -> float:
    """Parameters that ``num_tokens`` tokens together touch: all of a dense model, fewer of MoE."""
    active, experts = shape.num_active_params, shape.num_experts
    per_token = shape.num_experts_per_token
    if not active or active >= num_params:
        return float(num_params)
    share = per_token / experts if per_token and experts else active / num_params
    if share >= 1:
        return float(num_params)
    in_experts = (num_params - active) / (1 - share)
    in_experts = min(in_experts, float(num_params))
    touched = 1 - (1 - share) ** num_tokens
    return num_params - in_experts * (1 - touched)


def pass_s(
    shape: ModelShape,
    hardware: Hardware,
    workload: Workload,
    *,
    width: int,
    window: int | None = None,
) -> float | None:
    """Seconds for one forward of ``width`` tokens of each concurrent sequence.

    ``None`` when the machine's bandwidth or the model's size is unknown.
    """
    num_params = estimated_params(shape)
    flops_per_s = sustained_flops(hardware)
    if not (num_params and hardware.bandwidth_bytes_per_s and flops_per_s):
        return None
    limits = SUSTAINED.get(hardware.kind, SUSTAINED["gpu"])
    num_tokens = width * workload.concurrency
    context = context_tokens(workload)
    read = weights_read(shape, num_params, num_tokens) * bits_per_weight(shape) / 8
    read += workload.concurrency * kv_bytes_per_sequence(shape, context, window=window)
    bandwidth = hardware.bandwidth_bytes_per_s * hardware.num_devices * limits.bandwidth
    memory_s = read / bandwidth
    active = shape.num_active_params or num_params
    is_moe = active < num_params
    compute_s = 2 * active * num_tokens / (flops_per_s * (limits.moe_flops if is_moe else 1))
    overhead_s = limits.pass_s + _layers_s(shape, limits, is_moe=is_moe, width=width)
    return (memory_s**2 + compute_s**2) ** 0.5 + overhead_s


def _layers_s(shape: ModelShape, limits: Sustained, *, is_moe: bool, width: int) -> float:
    """What the layers cost whatever they compute: launches, routing, rows taken one by one."""
    layers = shape.num_layers or 32
    num_linear = (shape.layer_types or ()).count("linear_attention")
    per_layer = limits.layer_s + (limits.moe_layer_s if is_moe else 0.0)
    return layers * per_layer + num_linear * (width - 1) * limits.linear_row_s


def modelled_costs(
    target: ModelShape,
    draft: ModelShape | None,
    hardware: Hardware,
    workload: Workload,
    *,
    block_sizes: Iterable[int],
    num_taps: int = 5,
    draft_window: int | None = None,
) -> Costs | None:
    """Model T_ar, T_draft(B) and T_verify(B) on this machine; ``None`` where it cannot be done."""
    ar_step_s = pass_s(target, hardware, workload, width=1)
    if ar_step_s is None:
        return None
    drafting, assumed = drafting_shape(target, draft, num_taps)
    cycle_s = SUSTAINED.get(hardware.kind, SUSTAINED["gpu"]).cycle_s
    draft_s: dict[int, float] = {}
    verify_s: dict[int, float] = {}
    for block in block_sizes:
        drafted = pass_s(drafting, hardware, workload, width=block, window=draft_window)
        verified = pass_s(target, hardware, workload, width=block)
        if drafted is None or verified is None:
            return None
        draft_s[block], verify_s[block] = drafted + cycle_s, verified
    basis = f"roofline on {hardware.name}" + (f"; {assumed}" if assumed else "")
    return Costs(ar_step_s, draft_s, verify_s, "modelled", basis)


def drafting_shape(
    target: ModelShape, draft: ModelShape | None, num_taps: int
) -> tuple[ModelShape, str]:
    """The weights one draft pass reads (draft and the target's head), and what was assumed."""
    head = (target.vocab_size or 0) * (target.hidden_size or 0)
    if draft is not None:
        num_params = estimated_params(draft, num_taps=num_taps, with_head=False)
        if num_params is not None:
            return replace(draft, num_params=num_params + head), ""
    total = estimated_params(target) or 0
    share = DRAFT_SHARE_LARGE if total >= LARGE_TARGET_PARAMS else DRAFT_SHARE_SMALL
    shape = replace(
        draft or ModelShape(num_layers=5),
        num_params=max(1, int(total * share)) + head,
        dtype=target.dtype,
    )
    return shape, f"draft taken as {share:.0%} of the target's weights, as published pairs are"


def sustained_flops(hardware: Hardware) -> float | None:
    """FLOP/s a decoder reaches on all devices together; ``None`` when no peak is known."""
    rates = hardware.flops_per_s
    peak = next((rates[t] for t in ("bf16", "bfloat16", "fp16", "float16") if t in rates), None)
    peak = peak or (max(rates.values()) if rates else None)
    if peak is None:
        return None
    limits = SUSTAINED.get(hardware.kind, SUSTAINED["gpu"])
    return peak * hardware.num_devices * limits.flops


def context_tokens(workload: Workload) -> int:
    """Tokens in the cache half-way through the answer."""
    return (workload.prompt_tokens or 0) + (workload.output_tokens or 0) // 2


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes by purpose. A part is 0 where its shape is unknown; ``complete`` says none was."""

    target_weights: int
    draft_weights: int
    target_kv: int
    draft_kv: int
    taps: int
    workspace: int
    complete: bool

    @property
    def total(self) -> int:
        """All parts together."""
        return (
            self.target_weights + self.draft_weights + self.target_kv + self.draft_kv
            + self.taps + self.workspace
        )  # fmt: skip


def memory_need(
    target: ModelShape,
    draft: ModelShape | None,
    workload: Workload,
    *,
    block_size: int,
    num_taps: int = 5,
    draft_window: int | None = None,
) -> MemoryNeed | None:
    """Bytes to run the pair at the end of the answer; ``None`` when the target's size is unknown.

    Taps are the states of the prompt handed to the draft once (K * tokens * hidden, 16 bits); the
    workspace is the logits of one verified block in 32 bits.
    """
    target_params = estimated_params(target)
    if target_params is None:
        return None
    context = (workload.prompt_tokens or 0) + (workload.output_tokens or 0)
    draft_params = _draft_params(target, draft, num_taps)
    sequences = workload.concurrency
    hidden, vocab = target.hidden_size or 0, target.vocab_size or 0
    target_kv = kv_bytes_per_sequence(target, context) * sequences
    draft_kv = kv_bytes_per_sequence(draft, context, window=draft_window) if draft else 0
    draft_bits = bits_per_weight(draft) if draft else DEFAULT_BITS
    return MemoryNeed(
        target_weights=int(target_params * bits_per_weight(target) / 8),
        draft_weights=int(draft_params * draft_bits / 8),
        target_kv=target_kv,
        draft_kv=draft_kv * sequences,
        taps=num_taps * context * hidden * KV_BYTES_PER_VALUE,
        workspace=sequences * block_size * vocab * 4,
        complete=bool(draft and hidden and vocab)
        and all(kv_bytes_per_sequence(shape, 1) for shape in (target, draft) if shape),
    )


def _draft_params(target: ModelShape, draft: ModelShape | None, num_taps: int) -> int:
    """Parameters the draft adds: counted, else the share that published pairs show."""
    if draft is not None:
        counted = estimated_params(draft, num_taps=num_taps, with_head=False)
        if counted is not None:
            return counted
    headless = replace(target, num_params=estimated_params(target), vocab_size=None)
    return drafting_shape(headless, None, num_taps)[0].num_params or 0


def _head_dim(shape: ModelShape) -> int | None:
    if not (shape.hidden_size and shape.num_attention_heads):
        return None
    return shape.hidden_size // shape.num_attention_heads
