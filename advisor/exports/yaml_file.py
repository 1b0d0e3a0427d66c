"""A recommendation as a YAML file that reopens to the same state.

Holds the answer, what was asked, the evidence behind every number and the versions that made it.
Read strictly: unknown keys, wrong types and foreign schema versions are refused in one sentence.
The JSON that ``recommend --json`` prints is read as well, with or without what goes beyond the
contract's keys.
"""

from __future__ import annotations

import dataclasses
import platform
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

import dflash
from advisor.schema import Recommendation
from dflash.errors import DFlashError
from dflash.strict_yaml import StrictModel, parse_yaml

SCHEMA = "dflash-playground/recommendation"
SCHEMA_VERSION = 1
MAX_FILE_BYTES = 1_000_000
_KEYS = ("schema", "schema_version", "versions", "recommendation")
_BEYOND_THE_CONTRACT = {
    "headline": "",
    "break_even_tau": {"value": None, "unit": "tokens/cycle", "source": "unknown", "basis": ""},
}
_VERSIONED = ("pydantic", "pyyaml", "transformers", "torch")


class RecommendationFileError(DFlashError):
    """A recommendation file cannot be used."""


class _Point(StrictModel):
    """A point of the predicted curve, as charts draw it."""

    block_size: Annotated[int, Field(ge=1, le=4096)]
    tau: float | None
    speedup: float | None
    low: float | None
    high: float | None
    break_even_tau: float | None = None
    source: str
    n: int | None = None


class _Planned(StrictModel):
    """A figure of the training plan; its words are shown as they are."""

    model_config = ConfigDict(extra="allow")

    value: float | None
    rung: str | None = None
    source: str | None = None


class _Estimates(StrictModel):
    """The estimates that every recommendation has; their values are checked elsewhere."""

    tau: Any
    speedup: Any
    tpot_s: Any
    memory_bytes: Any


class _Used(StrictModel):
    """The values that exporters and charts compute with; whatever else a file holds is only
    shown."""

    estimate: _Estimates
    curve: tuple[_Point, ...]
    training: dict[str, _Planned | float | None] | None
    hardware: str | None
    block_size: Annotated[int, Field(ge=1, le=4096)] | None
    target_layer_ids: list[int] | None
    sliding_window_size: Annotated[int, Field(ge=1)] | None
    mask_token_id: int | None
    temperature: Annotated[float, Field(ge=0, le=100)] | None
    concurrency: Annotated[int, Field(ge=1)] | None
    max_new_tokens: Annotated[int, Field(ge=1)] | None


_USED_INPUTS = ("hardware", "temperature", "concurrency", "max_new_tokens")


class _Dumper(yaml.SafeDumper):
    """No anchors: the reader refuses them, and a person reads better without."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def dump(recommendation: Recommendation) -> str:
    """Render the file."""
    document = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "versions": _versions(),
        "recommendation": _plain(dataclasses.asdict(recommendation)),
    }
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=100)


def load(path: Path) -> Recommendation:
    """Read a file. Raises ``RecommendationFileError`` or ``PresetError``, one sentence each."""
    try:
        if not (path.is_file() or path.is_fifo()):
            raise RecommendationFileError(
                f"{path} is not a file.", "Write one with recommend --output FILE.yaml."
            )
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise RecommendationFileError(f"{path} is larger than {MAX_FILE_BYTES} bytes.")
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RecommendationFileError(f"{path} cannot be read: {error}.") from error
    return parse(text, name=str(path))


def parse(text: str, *, name: str) -> Recommendation:
    """Read the text of a file. ``name`` is what errors call it."""
    fields = _fields(parse_yaml(text, name=name), name)
    try:
        recommendation = _adapter().validate_python(fields)
        _Used.model_validate(
            {
                "estimate": recommendation.estimate,
                "curve": recommendation.curve,
                "training": recommendation.training,
                **{key: knob.value for key, knob in recommendation.knobs.items()},
                **{key: recommendation.inputs.get(key) for key in _USED_INPUTS},
            }
        )
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(ascii(part).strip("'") for part in fault["loc"]) or "the recommendation"
        raise RecommendationFileError(f"{name}: {place}: {fault['msg']}.") from error
    except RecursionError as error:
        raise RecommendationFileError(f"{name} is nested too deeply.") from error
    return recommendation


def _fields(document: Any, name: str) -> Any:
    """The recommendation's own fields: of a file of ours, or of the JSON that was printed."""
    if isinstance(document, dict) and {"mode", "verdict", "knobs"} <= document.keys():
        return {**_BEYOND_THE_CONTRACT, **document}
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise RecommendationFileError(
            f"{name} is not a recommendation file.", f"It should say 'schema: {SCHEMA}'."
        )
    if document.get("schema_version") != SCHEMA_VERSION:
        raise RecommendationFileError(
            f"{name} has schema version {str(document.get('schema_version'))[:20]}; this reads "
            f"version {SCHEMA_VERSION}."
        )
    unknown = [key for key in document if key not in _KEYS]
    if unknown:
        raise RecommendationFileError(f"{name}: unknown key {str(unknown[0])[:40]!r}.")
    return document.get("recommendation")


@cache
def _adapter() -> TypeAdapter[Recommendation]:
    strictly = with_config(ConfigDict(extra="forbid", allow_inf_nan=False))
    return TypeAdapter(strictly(Recommendation))


def _versions() -> dict[str, str]:
    versions = {"dflash-playground": dflash.__version__, "python": platform.python_version()}
    for package in _VERSIONED:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _plain(value: Any) -> Any:
    """Tuples as lists, so that the YAML holds plain values only."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
