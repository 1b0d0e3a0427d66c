"""Everything the advisor was given, in one value. Knows no rule, no file and no machine.

Fields that were not given are ``None``; nothing here is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from advisor import cost
from advisor.schema import (
    Costs,
    DraftSpec,
    EngineName,
    Hardware,
    Mode,
    ModelShape,
    Policy,
    TargetSpec,
    TokenizerSpec,
    Workload,
)


@dataclass(frozen=True, slots=True)
class TauBand:
    """Published tau for a kind of text: the middle and the range of the rows it was read from."""

    value: float
    low: float
    high: float
    block_size: int
    basis: str


@dataclass(frozen=True, slots=True)
class PublishedSpeed:
    """One block size of a published sweep of this draft, with tau and its range over texts."""

    block_size: int
    speedup: float
    tau: float | None = None
    tau_low: float | None = None
    tau_high: float | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """What the catalogue says about the pair at hand."""

    pair_id: str
    title: str
    source: str
    target_name: str | None = None
    draft_name: str | None = None
    block_size: int | None = None
    target_layer_ids: tuple[int, ...] | None = None
    mask_token_id: int | None = None
    sliding_window: int | None = None
    full_attention: bool | None = None  # True: every draft layer sees everything
    tau_band: TauBand | None = None
    speeds: tuple[PublishedSpeed, ...] = ()  # ascending by block size; empty: no sweep published
    speeds_basis: str = ""  # on which machine and when

    @property
    def fastest(self) -> PublishedSpeed | None:
        """The fastest block size of the sweep, the smaller one on a tie."""
        return max(self.speeds, key=lambda s: (s.speedup, -s.block_size), default=None)


@dataclass(frozen=True, slots=True)
class TunedPoint:
    """A measured speedup at one block size, with its interval."""

    block_size: int
    speedup: float
    low: float
    high: float
    n: int
    tau: float | None = None
    sliding_window_size: int | None = None


@dataclass(frozen=True, slots=True)
class Tuned:
    """A tuning run of this pair on this machine; ``best`` was judged on prompts of its own."""

    points: tuple[TunedPoint, ...]
    best: TunedPoint
    basis: str
    prompt_tokens: int | None = None  # how long its prompts were

    @property
    def windows(self) -> tuple[int, ...]:
        """The windows that were tried; empty when none was."""
        return tuple(p.sliding_window_size for p in self.points if p.sliding_window_size)


@dataclass(frozen=True, slots=True)
class AssumedDepth:
    """The depth of the published target nearest in size: a stand-in, named wherever it is used."""

    num_layers: int
    target: str


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known, and what is asked."""

    mode: Mode = "serve"
    policy: Policy = "evidence"
    workload: Workload = field(default_factory=Workload)
    num_params: int | None = None
    target: TargetSpec | None = None
    draft: DraftSpec | None = None
    tokenizer: TokenizerSpec | None = None
    hardware: Hardware | None = None
    engine: EngineName | None = None
    published: Published | None = None
    assumed_depth: AssumedDepth | None = None
    costs: Costs | None = None  # measured: a file, or a calibration of this pair here
    tau_per_position: tuple[float, ...] | None = None  # measured
    tau_by_block: dict[int, float] | None = None  # measured, each block size run by itself
    num_tau_prompts: int | None = None  # behind ``tau_by_block``, where it is known
    tau: float | None = None  # measured, at ``tau_block_size``
    tau_block_size: int | None = None
    tuned: Tuned | None = None
    inputs: dict[str, Any] = field(default_factory=dict)  # as given, for the file that reopens

    @property
    def checkpoint(self) -> DraftSpec | None:
        """The draft as its own config was read; a catalogue entry is no checkpoint."""
        return self.draft if self.mode == "serve" and self.draft and self.draft.raw else None

    @property
    def target_shape(self) -> ModelShape:
        """The target's shape, with the parameter count that was given filled in."""
        shape = self.target.shape if self.target else ModelShape()
        return replace(shape, num_params=self.params) if self.params else shape

    @property
    def params(self) -> int | None:
        """Parameters of the target: as given, else as its config or the catalogue has them."""
        if self.num_params is not None or self.target is None:
            return self.num_params
        return cost.estimated_params(self.target.shape)

    @property
    def num_layers(self) -> int | None:
        """Depth of the target, from its config or from what the draft says it was trained on."""
        if self.target and self.target.shape.num_layers:
            return self.target.shape.num_layers
        return self.draft.num_target_layers if self.draft else None

    @property
    def trained_block_size(self) -> int | None:
        """The ceiling: the draft's own block size, else the catalogue's."""
        if self.mode == "train":
            return None
        if self.draft and self.draft.block_size:
            return self.draft.block_size
        return self.published.block_size if self.published else None

    @property
    def target_name(self) -> str | None:
        """What the target is called, for commands and headlines."""
        named = self.target.name if self.target else None
        return named or (self.published.target_name if self.published else None)

    @property
    def draft_name(self) -> str | None:
        """What the draft is called; ``None`` while it is yet to be trained."""
        if self.mode == "train":
            return None
        named = self.draft.name if self.draft else None
        return named or (self.published.draft_name if self.published else None)

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Stop ids of the tokenizer, else of the target's config."""
        if self.tokenizer and self.tokenizer.eos_token_ids:
            return self.tokenizer.eos_token_ids
        return self.target.eos_token_ids if self.target else ()

    @property
    def pad_token_id(self) -> int | None:
        """Padding id of the tokenizer, else of the target's config."""
        if self.tokenizer and self.tokenizer.pad_token_id is not None:
            return self.tokenizer.pad_token_id
        return self.target.pad_token_id if self.target else None
