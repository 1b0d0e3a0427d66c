"""Published sweeps over block size and over training choices. Knows their schema; judges nothing.

Files: presets/sweeps/ (block size of a trained draft) and presets/ablations/ (choices in training).
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal, TypeVar

from pydantic import Field, model_validator

from dflash.presets import PRESETS, check_id, preset_ids
from dflash.strict_yaml import Sources, StrictModel, read_preset

_Block = Annotated[int, Field(ge=1)]
_Rate = Annotated[float, Field(gt=0)]


class SweepCell(StrictModel):
    """One kind of text: what is given away, and what was published at every block size."""

    task: str
    given_block_size: _Block
    given_tau: Annotated[float, Field(ge=1)]
    published: dict[_Block, _Rate]  # speedup or tok/s
    published_tau: dict[_Block, _Rate] = {}


class Sweep(StrictModel):
    """Cells that share a machine. ``cycle`` holds the seconds (or steps) that fix its slope."""

    id: str
    title: str
    machine: str
    source: Sources
    note: str
    trained_block_size: _Block
    unit: str  # "x" or "tok/s"
    cycle: Annotated[dict[_Block, _Rate], Field(min_length=2)]
    step: _Rate | None = None  # one plain step in the same unit, where published
    cells: Annotated[tuple[SweepCell, ...], Field(strict=False, min_length=1)]

    @model_validator(mode="after")
    def _slope_spans_the_blocks(self) -> Sweep:
        for cell in self.cells:
            beyond = [b for b in cell.published if not min(self.cycle) <= b <= max(self.cycle)]
            if beyond:
                raise ValueError(f"the cycle costs do not span block sizes {beyond}")
        return self

    def cycle_at(self, block_size: int) -> float:
        """The cost of a cycle: as published, else on the line between the nearest two."""
        if block_size in self.cycle:
            return self.cycle[block_size]
        below = max(b for b in self.cycle if b < block_size)
        above = min(b for b in self.cycle if b > block_size)
        share = (block_size - below) / (above - below)
        return self.cycle[below] + share * (self.cycle[above] - self.cycle[below])


class Ablation(StrictModel):
    """Published speedups by task for several values of one training choice."""

    id: str
    title: str
    source: Sources
    knob: Literal["draft_layers", "num_taps"]
    speedups: Annotated[dict[str, dict[_Block, _Rate]], Field(min_length=1)]


_Preset = TypeVar("_Preset", Sweep, Ablation)


@cache
def load_ablations() -> tuple[Ablation, ...]:
    """Read every ablation, by id. Raises ``PresetError`` for a broken file."""
    return tuple(_read("ablations", preset_id, Ablation) for preset_id in preset_ids("ablations"))


@cache
def load_sweeps() -> tuple[Sweep, ...]:
    """Read every sweep, by id. Raises ``PresetError`` for a broken file."""
    return tuple(_read("sweeps", preset_id, Sweep) for preset_id in preset_ids("sweeps"))


def _read(folder: str, preset_id: str, model: type[_Preset]) -> _Preset:
    path = PRESETS / folder / f"{preset_id}.yaml"
    name = f"presets/{folder}/{path.name}"
    preset = read_preset(path, model, name=name)
    check_id(preset.id, path, name)
    return preset
