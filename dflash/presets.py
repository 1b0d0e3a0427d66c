"""Known pairs of target and draft (presets/pairs/) and prompt sets (presets/prompts/).

Knows the files and their schema, and that every number in them has a source. Knows no model, no
engine and no network. Layer ids are layer outputs counted from 0; block sizes count the anchor.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from dflash.errors import PairError, PresetError
from dflash.schema import ModelPair
from dflash.strict_yaml import (
    Ints,
    Sources,
    StrictModel,
    Strings,
    parse_json,
    read_preset,
    validated,
)

PRESETS = Path(__file__).resolve().parent.parent / "presets"

Status: TypeAlias = Literal[
    "released",  # a checkpoint anyone can fetch
    "gated",  # a checkpoint behind a licence click
    "listed",  # named by its makers; nothing about its inside is published
    "recipe",  # a published training config; no checkpoint that we know of
    "embedded",  # ours, shipped with this project
]
Format: TypeAlias = Literal["z-lab", "dflash2", "assistant", "speculators"]
LayerType: TypeAlias = Literal["full_attention", "sliding_attention", "linear_attention"]
LayerTypes: TypeAlias = Annotated[tuple[LayerType, ...], Field(strict=False, min_length=1)]
Positive: TypeAlias = Annotated[int, Field(gt=0)]
Count: TypeAlias = Annotated[int, Field(ge=0)]


class TargetFacts(StrictModel):
    """The model being sped up. Anything not published is ``None``."""

    hub_id: str | None = None
    path: str | None = None  # relative to the project, for an embedded one
    aliases: Strings = ()  # other names it is known by
    family: str | None = None  # transformers model_type
    num_params: Positive | None = None
    num_active_params: Positive | None = None  # MoE: touched by one token
    weights_bytes: Positive | None = None  # of the published checkpoint, where it is quantised
    num_layers: Positive | None = None
    hidden_size: Positive | None = None
    intermediate_size: Positive | None = None
    num_attention_heads: Positive | None = None
    num_kv_heads: Positive | None = None
    head_dim: Positive | None = None
    vocab_size: Positive | None = None
    num_experts: Positive | None = None
    num_experts_per_token: Positive | None = None
    layer_pattern: LayerTypes | None = None  # repeated until num_layers is reached
    sliding_window: Positive | None = None
    context_tokens: Positive | None = None
    tied_embeddings: bool | None = None
    eos_token_ids: Ints = ()
    pad_token_id: Count | None = None
    note: str = ""
    source: Sources
    field_sources: dict[str, Sources] = {}

    @property
    def layer_types(self) -> tuple[LayerType, ...] | None:
        """The kind of every layer in order; ``None`` unless depth and pattern are known."""
        if self.layer_pattern is None or self.num_layers is None:
            return None
        return self.layer_pattern * (self.num_layers // len(self.layer_pattern))

    @model_validator(mode="after")
    def _consistent(self) -> TargetFacts:
        if self.layer_pattern and (self.num_layers or 0) % len(self.layer_pattern):
            raise ValueError(f"{self.num_layers} layers are no multiple of layer_pattern")
        _check_field_names(self)
        return self


class DraftFacts(StrictModel):
    """One revision of a draft, as its own config.json gives it."""

    hub_id: str | None = None
    path: str | None = None
    mirrors: Strings = ()  # the same weights under other names
    revision: str | None = None  # commit of the hub repository
    label: str = ""  # how this revision is told apart
    format: Format = "z-lab"
    block_size: Positive | None = None
    target_layer_ids: Ints | None = None
    num_taps: Positive | None = None  # for drafts whose ids are not published
    num_target_layers: Positive | None = None
    mask_token_id: Count | None = None
    num_params: Positive | None = None
    weights_bytes: Positive | None = None
    num_layers: Positive | None = None
    hidden_size: Positive | None = None
    intermediate_size: Positive | None = None
    num_attention_heads: Positive | None = None
    num_kv_heads: Positive | None = None
    head_dim: Positive | None = None
    vocab_size: Positive | None = None
    layer_types: LayerTypes | None = None
    sliding_window: Positive | None = None
    is_causal: bool | None = None
    attention_bias: bool | None = None
    rope_theta: Annotated[float, Field(gt=0)] | None = None
    yarn_factor: Annotated[float, Field(gt=0)] | None = None
    yarn_original_context_tokens: Positive | None = None
    max_position_embeddings: Positive | None = None
    final_logit_softcapping: float | None = None
    output_multiplier: float | None = None
    selector_rank: Positive | None = None
    selector_top_k: Positive | None = None
    thinking: bool | None = None  # True: trained on thinking answers; False: on plain ones
    uniform_taps: bool = True  # False: the taps are known not to follow build_target_layer_ids
    note: str = ""
    source: Sources
    field_sources: dict[str, Sources] = {}

    @model_validator(mode="after")
    def _consistent(self) -> DraftFacts:
        ids, layers = self.target_layer_ids, self.num_target_layers
        if ids is not None and list(ids) != sorted(set(ids)):
            raise ValueError(f"target_layer_ids {list(ids)} must rise without repeats")
        if ids and layers and not 0 <= ids[0] <= ids[-1] < layers:
            raise ValueError(f"target_layer_ids {list(ids)} must lie in 0...{layers - 1}")
        if self.layer_types and self.num_layers and len(self.layer_types) != self.num_layers:
            raise ValueError(f"{len(self.layer_types)} layer_types for {self.num_layers} layers")
        _check_field_names(self)
        return self


class PublishedRow(StrictModel):
    """One published measurement. ``tau`` counts the bonus token; ``speedup`` is over plain AR."""

    benchmark: str
    task: Literal["chat", "code", "math", "json", "translate", "edit"] | None = None
    concurrency: Positive = 1
    context_tokens: Positive | None = None
    tau: Annotated[float, Field(ge=1)] | None = None
    speedup: Annotated[float, Field(gt=0)] | None = None
    output_tps: Annotated[float, Field(gt=0)] | None = None
    baseline_tps: Annotated[float, Field(gt=0)] | None = None


class PublishedTable(StrictModel):
    """Rows measured under the same conditions and printed in the same place."""

    where: str  # "Table 1", "blog, 2026-08-18", ...
    source: Sources
    engine: str | None = None
    hardware: str | None = None  # id in presets/hardware/ where there is one
    block_size: Positive | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    thinking: bool | None = None
    draft_label: str | None = None  # which revision, where the publication says so
    quantization: str | None = None
    note: str = ""
    rows: Annotated[tuple[PublishedRow, ...], Field(strict=False, min_length=1)]


class PairPreset(StrictModel):
    """A target, its draft, the draft's earlier revisions, and what was published about them."""

    id: str
    title: str
    status: Status
    target: TargetFacts
    draft: DraftFacts  # the current revision
    earlier_drafts: Annotated[tuple[DraftFacts, ...], Field(strict=False)] = ()
    published: Annotated[tuple[PublishedTable, ...], Field(strict=False)] = ()

    @property
    def drafts(self) -> tuple[DraftFacts, ...]:
        """Every known revision of the draft, newest first."""
        return (self.draft, *self.earlier_drafts)

    def model_pair(self) -> ModelPair:
        """What an engine needs to open this pair.

        Raises ``PairError`` when block size, taps or mask are not published: they are then only
        known once the draft's own config.json has been read.
        """
        target_id, draft_id = _where(self.target), _where(self.draft)
        block, taps, mask = (
            self.draft.block_size,
            self.draft.target_layer_ids,
            self.draft.mask_token_id,
        )
        if not target_id or not draft_id or block is None or taps is None or mask is None:
            raise PairError(
                f"the catalogue does not know block size, taps and mask of {self.id!r}.",
                "Open it by its hub id or folder, so that its own config.json is read.",
            )
        revision = self.draft.revision
        return ModelPair(self.id, target_id, draft_id, block, taps, mask, revision)


def _where(facts: TargetFacts | DraftFacts) -> str | None:
    return facts.path or facts.hub_id


def _check_field_names(facts: TargetFacts | DraftFacts) -> None:
    unknown = set(facts.field_sources) - set(type(facts).model_fields)
    if unknown:
        raise ValueError(f"field_sources names {sorted(unknown)}, which are not fields here")


class PresetPrompt(StrictModel):
    """One conversation: what the user says, turn by turn."""

    category: str
    turns: Annotated[Strings, Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts of one kind, written for this project. The id is the file name."""

    id: str
    prompts: tuple[PresetPrompt, ...]


def pair_ids() -> tuple[str, ...]:
    """Every id that ``load_pair`` takes, sorted. The id is the file name."""
    return preset_ids("pairs")


@cache
def preset_ids(folder: str) -> tuple[str, ...]:
    """The ids of the files in presets/``folder``, sorted."""
    paths = (PRESETS / folder).glob("*")
    return tuple(sorted(path.stem for path in paths if path.suffix in (".yaml", ".jsonl")))


@cache
def load_pair(pair_id: str) -> PairPreset:
    """Read presets/pairs/``pair_id``.yaml.

    Raises ``PresetError`` for an id that is not there (with the nearest one) or a broken file.
    """
    known_id(pair_id, "pairs")
    return read_pair(PRESETS / "pairs" / f"{pair_id}.yaml")


def read_pair(path: Path) -> PairPreset:
    """Read one pair file. Raises ``PresetError`` also when its id is not its file name."""
    name = f"presets/pairs/{path.name}"
    preset = read_preset(path, PairPreset, name=name)
    check_id(preset.id, path, name)
    return preset


@cache
def load_prompt_set(set_id: str) -> PromptSet:
    """Read presets/prompts/``set_id``.jsonl. Raises ``PresetError`` that names the line."""
    known_id(set_id, "prompts")
    name = f"presets/prompts/{set_id}.jsonl"
    lines = (PRESETS / "prompts" / f"{set_id}.jsonl").read_text(encoding="utf-8").splitlines()
    prompts = tuple(
        validated(parse_json(line, name=f"{name}:{i}"), PresetPrompt, name=f"{name}:{i}")
        for i, line in enumerate(lines, start=1)
        if line.strip()
    )
    return PromptSet(set_id, prompts)


def known_id(preset_id: str, folder: str) -> None:
    """Raise ``PresetError`` unless presets/``folder`` has this id."""
    ids = preset_ids(folder)
    if preset_id not in ids:
        near = difflib.get_close_matches(preset_id, ids, n=1, cutoff=0.4)
        guess = f" Did you mean {near[0]!r}?" if near else ""
        raise PresetError(f"presets/{folder}/ has no {preset_id!r}.{guess}", f"Known: {_few(ids)}.")


def check_id(preset_id: str, path: Path, name: str) -> None:
    """Raise ``PresetError`` unless the id inside a file is its name without the ending."""
    if preset_id != path.stem:
        raise PresetError(f"{name}: id is {preset_id!r}, but the file name says {path.stem!r}.")


def _few(ids: tuple[str, ...]) -> str:
    return ", ".join(ids[:12]) + (f" and {len(ids) - 12} more" if len(ids) > 12 else "")
