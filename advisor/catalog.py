"""The catalogue: machines, workloads, the guide's presets, and what was published about a pair.

Knows the files under presets/ and their schema; ``advisor.known`` knows which pair a name means.
Files are read on first use and kept. Knows no rule and no cost model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from advisor.known import pairs_with_draft, pairs_with_target
from advisor.schema import DraftSpec, Hardware, Task, Workload
from dflash.presets import (
    PRESETS,
    DraftFacts,
    PairPreset,
    PublishedRow,
    PublishedTable,
    check_id,
    known_id,
    preset_ids,
)
from dflash.strict_yaml import Ints, Sources, StrictModel, Strings, read_preset

Dtype = Literal["fp32", "fp16", "bf16", "fp8", "int8"]
Rate = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]


_MachineField = Literal["memory_bytes", "bandwidth_bytes_per_s", "flops_per_s"]


class HardwarePreset(StrictModel):
    """A machine or a class of machines. Peaks per device, dense, by dtype.

    ``source`` is where the maker publishes the figures; ``field_sources`` is where each was read
    and found to agree. A field that is not in there was written down without opening a page.
    """

    id: str
    name: str
    kind: Literal["gpu", "apple", "cpu"]
    memory_bytes: Count | None
    bandwidth_bytes_per_s: Rate | None
    flops_per_s: dict[Dtype, Rate]
    num_devices: Count = 1
    detected_as: Strings = ()  # how its own driver or system names it
    note: str = ""
    source: Sources
    field_sources: dict[_MachineField, Sources] = {}

    @property
    def unread(self) -> tuple[str, ...]:
        """The published fields that were not read anywhere; a class of machines has none."""
        if self.id.startswith("cpu-"):
            return ()
        names: tuple[_MachineField, ...] = ("memory_bytes", "bandwidth_bytes_per_s", "flops_per_s")
        return tuple(n for n in names if getattr(self, n) and n not in self.field_sources)

    def hardware(self) -> Hardware:
        """Return it as the advisor's value."""
        return Hardware(
            id=self.id,
            name=self.name,
            memory_bytes=self.memory_bytes,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s,
            flops_per_s={str(dtype): rate for dtype, rate in self.flops_per_s.items()},
            num_devices=self.num_devices,
            kind=self.kind,
            source=self.source[0],
        )


class WorkloadPreset(StrictModel):
    """A typical use. Its sizes are choices, not measurements: ``basis`` says whose."""

    id: str
    title: str
    task: Task | None
    prompt_tokens: Count
    output_tokens: Count
    concurrency: Count = 1
    temperature: Annotated[float, Field(ge=0)] = 0.0
    enable_thinking: bool | None = None
    basis: str

    def workload(self) -> Workload:
        """Return it as the advisor's value."""
        return Workload(
            task=self.task,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            concurrency=self.concurrency,
            temperature=self.temperature,
            enable_thinking=self.enable_thinking,
        )


class GuidePreset(StrictModel):
    """One case of the tuning guide, with its own example. ``advisor.guide`` computes the rules."""

    id: str
    title: str
    min_params: Count | None = None
    max_params: Count | None = None
    min_prompt_tokens: Count | None = None
    block_size: Count | None
    block_size_low: Count | None
    block_size_high: Count | None
    target_layer_ids: Ints | None  # None: spread uniformly
    sliding_window_size: Count | None
    mask_token: Literal["pad, else eos"] = "pad, else eos"
    interpolated: bool = False  # True: the guide is silent here
    basis: str


@dataclass(frozen=True, slots=True)
class DraftMatch:
    """The published draft a spec belongs to. ``agrees``: nothing both sides know differs."""

    pair: PairPreset
    facts: DraftFacts
    by: Literal["name", "verifier"]
    agrees: bool


@dataclass(frozen=True, slots=True)
class PublishedResult:
    """One published measurement with the table that says how it was taken."""

    table: PublishedTable
    row: PublishedRow


Preset = TypeVar("Preset", HardwarePreset, WorkloadPreset, GuidePreset)


def _read(folder: str, preset_id: str, model: type[Preset]) -> Preset:
    known_id(preset_id, folder)
    path: Path = PRESETS / folder / f"{preset_id}.yaml"
    name = f"presets/{folder}/{path.name}"
    preset = read_preset(path, model, name=name)
    check_id(preset.id, path, name)
    return preset


@cache
def load_hardware(hardware_id: str) -> HardwarePreset:
    """Read presets/hardware/``hardware_id``.yaml. Raises ``PresetError`` with the nearest id."""
    return _read("hardware", hardware_id, HardwarePreset)


@cache
def load_workload(workload_id: str) -> WorkloadPreset:
    """Read presets/workloads/``workload_id``.yaml. Raises ``PresetError`` with the nearest id."""
    return _read("workloads", workload_id, WorkloadPreset)


@cache
def load_guide_preset(guide_id: str) -> GuidePreset:
    """Read presets/guide/``guide_id``.yaml. Raises ``PresetError`` with the nearest id."""
    return _read("guide", guide_id, GuidePreset)


@cache
def all_hardware() -> tuple[HardwarePreset, ...]:
    """Every machine, by id."""
    return tuple(load_hardware(hardware_id) for hardware_id in preset_ids("hardware"))


def hardware_named(name: str) -> HardwarePreset | None:
    """Find the machine that a driver or system calls ``name``; the longest name that fits wins."""
    wanted = _words(name)
    best: HardwarePreset | None = None
    length = 0
    for preset in all_hardware():
        for known in (preset.name, *preset.detected_as):
            words = _words(known)
            if wanted[: len(words)] == words and len(words) > length:
                best, length = preset, len(words)
    return best


def _words(name: str) -> list[str]:
    return name.lower().replace("(r)", "").replace("(tm)", "").replace("-", " ").split()


def match_draft(spec: DraftSpec) -> DraftMatch | None:
    """Find the published draft, and its revision, that a draft's spec belongs to.

    By its own name, else by the verifier it names together with its shape: a name alone says
    which draft it claims to be, a verifier alone does not.
    """
    names = (spec.name, spec.raw.get("_name_or_path"))
    named = [pair for name in names if isinstance(name, str) for pair in pairs_with_draft(name)]
    if named:
        return _closest(spec, named, "name")
    found = _closest(spec, pairs_with_target(spec.target_name), "verifier")
    sure = found and found.agrees and found.facts.target_layer_ids == spec.target_layer_ids
    return found if sure and spec.target_layer_ids else None


def _closest(
    spec: DraftSpec, pairs: Iterable[PairPreset], by: Literal["name", "verifier"]
) -> DraftMatch | None:
    """The revision with the fewest differences; among equals the one that knows most."""
    candidates = [(pair, facts) for pair in pairs for facts in pair.drafts]
    if not candidates:
        return None
    pair, facts = min(candidates, key=lambda c: _distance(spec, c[1]))
    return DraftMatch(pair, facts, by, _distance(spec, facts)[0] == 0)


def _distance(spec: DraftSpec, facts: DraftFacts) -> tuple[int, int]:
    """Count the facts that differ, and (negative) those that are equal; unknown is neither."""
    both = [
        (spec.target_layer_ids, facts.target_layer_ids),
        (spec.shape.num_layers, facts.num_layers),
        (spec.block_size, facts.block_size),
        (spec.mask_token_id, facts.mask_token_id),
        (spec.shape.sliding_window, facts.sliding_window),
        (spec.shape.hidden_size, facts.hidden_size),
        (spec.num_target_layers, facts.num_target_layers),
        (len(spec.target_layer_ids or ()) or None, facts.num_taps),
        (spec.dialect == "dflash2", facts.format == "dflash2"),
    ]
    known = [(ours, theirs) for ours, theirs in both if ours is not None and theirs is not None]
    num_equal = sum(ours == theirs for ours, theirs in known)
    return len(known) - num_equal, -num_equal


def match_target(name: str | None) -> tuple[PairPreset, ...]:
    """Every pair for this target; those whose draft is out and fully published come first."""
    return tuple(sorted(pairs_with_target(name), key=_rank))


def _rank(pair: PairPreset) -> tuple[bool, bool, bool, str]:
    unknown = pair.draft.target_layer_ids is None or pair.draft.block_size is None
    late = pair.draft.format not in ("z-lab", "dflash2")
    return pair.status not in ("released", "embedded"), unknown, late, pair.id


def published_results(
    pair: PairPreset,
    *,
    facts: DraftFacts | None = None,
    task: Task | None = None,
    thinking: bool | None = None,
    temperature: float | None = None,
) -> tuple[PublishedResult, ...]:
    """The published measurements of a pair's draft, narrowed to a task and to how it was asked.

    Measurements of another draft for the same target (the paper's reasoning draft, say) are left
    out, and so are those of another revision than ``facts``, when given. A table that does not
    say its revision, temperature or thinking mode is kept. Of two temperatures the nearer one is
    meant: above 0.5 counts as 1.
    """
    labels = {"", *((facts.label,) if facts else (draft.label for draft in pair.drafts))}
    hot = None if temperature is None else temperature > 0.5
    return tuple(
        PublishedResult(table, row)
        for table in pair.published
        if (table.draft_label or "") in labels
        if thinking is None or table.thinking in (None, thinking)
        if hot is None or table.temperature is None or (table.temperature > 0.5) == hot
        for row in table.rows
        if task is None or row.task == task
    )
