"""The advisor's values. Standard library only; SI units; ``None`` always means unknown.

Layer ids are layer *outputs* counted from 0 (the published z-lab convention), whatever dialect
they were read from. Block sizes count the anchor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning", "note"]
Rung: TypeAlias = Literal["measured", "checkpoint", "published", "modelled", "guide"]
Verdict: TypeAlias = Literal["use", "try", "off"]
Mode: TypeAlias = Literal["serve", "train"]
Policy: TypeAlias = Literal["evidence", "guide"]
Task: TypeAlias = Literal["chat", "code", "math", "json", "translate", "edit"]
EngineName: TypeAlias = Literal["vllm", "sglang", "llamacpp", "mlx", "transformers", "tensorrt-llm"]
Dialect: TypeAlias = Literal["z-lab", "dflash2", "assistant", "speculators", "gguf", "unknown"]

RUNGS: tuple[Rung, ...] = ("measured", "checkpoint", "published", "modelled", "guide")
TASKS: tuple[Task, ...] = ("chat", "code", "math", "json", "translate", "edit")
ENGINES: tuple[EngineName, ...] = (
    "vllm", "sglang", "llamacpp", "mlx", "transformers", "tensorrt-llm",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is off. ``message`` names the numbers that disagree, ``hint`` the action."""

    id: str
    severity: Severity
    field: str
    message: str
    hint: str = ""
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary settings as read. ``theta_top`` and ``theta_nested`` keep disagreement visible."""

    theta: float | None = None
    theta_top: float | None = None
    theta_nested: float | None = None
    rope_type: str | None = None  # "default", "yarn", ...
    parameters: dict[str, Any] = field(default_factory=dict)  # as written, for export


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the cost model needs to know about one transformer; any part may be unknown."""

    num_params: int | None = None
    num_active_params: int | None = None  # MoE: parameters touched by one token
    num_layers: int | None = None
    hidden_size: int | None = None
    intermediate_size: int | None = None
    num_attention_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    vocab_size: int | None = None
    num_experts: int | None = None
    num_experts_per_token: int | None = None
    layer_types: tuple[str, ...] | None = None
    sliding_window: int | None = None
    dtype: str | None = None
    bits_per_weight: float | None = None


@dataclass(frozen=True, slots=True)
class DraftSpec:
    """A draft as its own config describes it, in one convention. ``raw`` is the file as read."""

    dialect: Dialect
    architecture: str | None = None
    model_type: str | None = None
    name: str | None = None  # the id, path or _name_or_path it is known by
    target_name: str | None = None  # the verifier it names, if it names one
    block_size: int | None = None
    target_layer_ids: tuple[int, ...] | None = None
    num_target_layers: int | None = None
    mask_token_id: int | None = None
    shape: ModelShape = field(default_factory=ModelShape)
    rope: RopeSpec = field(default_factory=RopeSpec)
    is_causal: bool | None = None  # None: not written, which means different things per engine
    max_position_embeddings: int | None = None
    attention_bias: bool | None = None
    final_logit_softcapping: float | None = None
    output_multiplier: float | None = None
    sample_from_anchor: bool = False
    quantization: str | None = None
    draft_vocab_size: int | None = None
    tensor_shapes: dict[str, tuple[int, ...]] | None = None  # from a safetensors header
    raw: dict[str, Any] = field(default_factory=dict)  # empty: known from the catalogue only


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """A target as its config (its ``text_config`` for a multimodal wrapper) describes it."""

    architecture: str | None = None
    model_type: str | None = None
    name: str | None = None
    shape: ModelShape = field(default_factory=ModelShape)
    rope: RopeSpec = field(default_factory=RopeSpec)
    max_position_embeddings: int | None = None
    tie_word_embeddings: bool | None = None
    quantization: str | None = None
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    pad_token_id: int | None = None
    tensor_shapes: dict[str, tuple[int, ...]] | None = None
    raw: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenizerSpec:
    """Special tokens as tokenizer_config.json or generation_config.json give them."""

    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    pad_token_id: int | None = None
    mask_token_id: int | None = None
    unk_token_id: int | None = None
    num_tokens: int | None = None
    special_tokens: dict[int, str] = field(default_factory=dict)  # id -> its text
    chat_template: str | None = None
    adds_bos: bool | None = None  # whether encoding puts a BOS in front by itself


@dataclass(frozen=True, slots=True)
class Hardware:
    """A machine. Bandwidth and FLOPs are peak per device unless ``source`` says measured."""

    id: str
    name: str
    memory_bytes: int | None
    bandwidth_bytes_per_s: float | None
    flops_per_s: dict[str, float] = field(default_factory=dict)  # by dtype
    num_devices: int = 1
    kind: str = "gpu"  # gpu | apple | cpu
    source: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """What the pair is used for."""

    task: Task | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    concurrency: int = 1
    temperature: float = 0.0
    enable_thinking: bool | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number and where it came from. ``basis`` is one sentence or a URL."""

    value: float | None
    unit: str
    source: Rung | Literal["unknown"]
    basis: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds per step: one AR step, one draft pass and one verification by block size."""

    ar_step_s: float
    draft_s: dict[int, float]
    verify_s: dict[int, float]
    source: Rung = "measured"
    basis: str = ""


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting: the answer, the rung it stands on, and what every other rung says."""

    value: Any
    rung: Rung | None
    tunable: bool
    reason: str
    rungs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A block size that was considered and lost, with the reason."""

    block_size: int
    speedup: float | None
    reason: str
    source: Rung | Literal["unknown"] = "unknown"  # of the speedup


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The whole answer. ``knobs`` and ``estimate`` have fixed keys (design contract)."""

    mode: Mode
    verdict: Verdict
    headline: str  # the verdict in one line, for a person
    knobs: dict[str, Knob]  # block_size, target_layer_ids, sliding_window_size, mask_token_id
    estimate: dict[str, Estimate]  # tau, speedup, tpot_s, memory_bytes
    break_even_tau: Estimate
    alternatives: tuple[Alternative, ...]
    findings: tuple[Finding, ...]
    exports: dict[str, str]  # engine -> command
    inputs: dict[str, Any] = field(default_factory=dict)  # as given, so that a file reopens
    training: dict[str, Any] | None = None  # train mode: draft depth, size, expected cost
    curve: tuple[dict[str, Any], ...] = ()  # predicted speedup by block size, for a chart
    target_name: str | None = None
    draft_name: str | None = None  # None while the draft is yet to be trained
    draft_config: dict[str, Any] | None = None  # a config.json to write, where that is legitimate
    export_notes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # what they cannot say
