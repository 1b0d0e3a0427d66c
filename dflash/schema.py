"""The values every part of the project exchanges: requests, events, traces.

Knows token ids, seconds and counts. Knows no model, no engine, no tokenizer and no user
interface; imports the standard library only. SI units; ``None`` always means unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Role: TypeAlias = Literal["system", "user", "assistant"]
FinishReason: TypeAlias = Literal["stop", "length"]
Reports: TypeAlias = Literal["cycles", "summary", "nothing"]
SpecSource: TypeAlias = Literal["observed", "reported", "counters"]

_LEAST_TEMPERATURE = 1e-5  # below it logits / temperature may overflow; 0 says the same safely


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen and when to stop. ``temperature == 0`` is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0  # 0 keeps the whole vocabulary
    seed: int = 0
    max_new_tokens: int = 512
    enable_thinking: bool = False

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be 0 or more, got {self.temperature}")
        if 0 < self.temperature < _LEAST_TEMPERATURE:
            raise ValueError(
                f"temperature must be 0 (greedy) or at least {_LEAST_TEMPERATURE}, "
                f"got {self.temperature}"
            )
        if not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"seed must fit in 64 bits, got {self.seed}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (off) or more, got {self.top_k}")
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")


@dataclass(frozen=True, slots=True)
class Request:
    """One generation. ``block_size == 1`` is the autoregressive baseline."""

    messages: tuple[Message, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    block_size: int = 1

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {self.block_size}")
        if not any(m.content.strip() for m in self.messages):
            raise ValueError("the prompt is empty; type something to answer")


@dataclass(frozen=True, slots=True)
class ModelPair:
    """A target, its draft, and the facts that the draft was trained with."""

    id: str
    target_id: str
    draft_id: str
    block_size: int
    target_layer_ids: tuple[int, ...]
    mask_token_id: int
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What produced a trace, as far as the engine knows it."""

    backend: str
    version: str
    target_id: str
    draft_id: str | None
    device: str
    dtype: str
    reports: Reports


@dataclass(frozen=True, slots=True)
class SpecStats:
    """Acceptance counts of one run. ``histogram[j]`` = cycles that accepted exactly j drafts.

    ``source``: our own loop "observed" them, a server "reported" them for this request, or they
    are the growth of a server's "counters", right only while it served nobody else.
    """

    num_cycles: int | None  # llama.cpp reports none
    num_draft_tokens: int
    num_accepted_tokens: int
    acceptance_histogram: tuple[int, ...] | None
    source: SpecSource

    @property
    def tau(self) -> float | None:
        """Mean tokens per cycle, bonus included (paper Eq. 1): 1 + accepted / cycles."""
        if not self.num_cycles:
            return None
        return 1 + self.num_accepted_tokens / self.num_cycles

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted drafts / proposed drafts, bonus excluded; ``None`` when nothing was drafted."""
        if self.num_draft_tokens == 0:
            return None
        return self.num_accepted_tokens / self.num_draft_tokens


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The prompt has been read; ``token_id`` is output token number 1. ``t_s`` is the TTFT."""

    t_s: float
    num_prompt_tokens: int
    token_id: int
    piece: str = ""


@dataclass(frozen=True, slots=True)
class Cycle:
    """One draft-verify round (or, with no drafts, one autoregressive step).

    ``num_accepted`` is the verifier's raw answer; a stop token or the length limit may leave
    ``emitted_ids`` shorter than ``num_accepted + 1``. ``draft_s`` and ``verify_s`` are the lane's
    own compute; ``t_s`` is seconds since the request was submitted, on the lane's own clock.
    The probabilities are filled in only when the request for them was made (they cost time).
    """

    t_s: float
    draft_ids: tuple[int, ...]
    num_accepted: int
    bonus_id: int
    emitted_ids: tuple[int, ...]
    draft_s: float
    verify_s: float
    pieces: tuple[str, ...] = ()
    target_ids: tuple[int, ...] = ()  # what the target wanted at every slot, bonus included


@dataclass(frozen=True, slots=True)
class Chunk:
    """A network delta. Not a cycle: servers may merge or split cycles."""

    t_s: float
    text: str
    num_tokens: int | None = None  # output tokens so far, where the server counts along


@dataclass(frozen=True, slots=True)
class Finished:
    """The run ended by itself. A trace without it was cancelled."""

    t_s: float
    finish_reason: FinishReason
    num_output_tokens: int | None
    spec: SpecStats | None
    peak_memory_bytes: int | None = None
    num_prompt_tokens: int | None = None  # for a server, which sends no Prefilled


Event: TypeAlias = Prefilled | Cycle | Chunk | Finished


@dataclass(frozen=True, slots=True)
class Trace:
    """A request, who served it, and everything that happened: the source of every chart."""

    request: Request
    engine: EngineInfo
    events: tuple[Event, ...]

    @property
    def finished(self) -> Finished | None:
        """The final event, or ``None`` for a run that was cancelled."""
        last = self.events[-1] if self.events else None
        return last if isinstance(last, Finished) else None

    @property
    def prefilled(self) -> Prefilled | None:
        """The prefill event, if the engine reports one."""
        return next((e for e in self.events if isinstance(e, Prefilled)), None)

    @property
    def cycles(self) -> tuple[Cycle, ...]:
        """The cycles in order."""
        return tuple(e for e in self.events if isinstance(e, Cycle))

    @property
    def output_ids(self) -> tuple[int, ...]:
        """Every emitted token id in order; empty for an engine that reports only text."""
        first = (self.prefilled.token_id,) if self.prefilled else ()
        return first + tuple(i for c in self.cycles for i in c.emitted_ids)
