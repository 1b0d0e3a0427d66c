"""A recommendation as a YAML file that reopens to the same state.

Holds the answer, what was asked, the evidence behind every number and the versions that made it.
Read strictly: unknown keys, wrong types and foreign schema versions are refused in one sentence.
"""

from __future__ import annotations

import dataclasses
import platform
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from advisor.schema import Recommendation
from dflash.errors import DFlashError
from dflash.strict_yaml import parse_yaml

SCHEMA = "dflash-playground/recommendation"
SCHEMA_VERSION = 1
MAX_FILE_BYTES = 1_000_000
_VERSIONED = ("dflash-playground", "pydantic", "pyyaml", "transformers", "torch")


class RecommendationFileError(DFlashError):
    """A recommendation file cannot be used."""


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
        if not path.is_file():
            raise RecommendationFileError(
                f"{path} is not a file.", "Write one with recommend --output FILE.yaml."
            )
        if path.stat().st_size > MAX_FILE_BYTES:
            raise RecommendationFileError(f"{path} is larger than {MAX_FILE_BYTES} bytes.")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RecommendationFileError(f"{path} cannot be read: {error}.") from error
    return parse(text, name=str(path))


def parse(text: str, *, name: str) -> Recommendation:
    """Read the text of a file. ``name`` is what errors call it."""
    document = parse_yaml(text, name=name)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise RecommendationFileError(
            f"{name} is not a recommendation file.", f"It should say 'schema: {SCHEMA}'."
        )
    if document.get("schema_version") != SCHEMA_VERSION:
        raise RecommendationFileError(
            f"{name} has schema version {str(document.get('schema_version'))[:20]}; this reads "
            f"version {SCHEMA_VERSION}."
        )
    try:
        return _adapter().validate_python(document.get("recommendation"))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in fault["loc"]) or "the recommendation"
        raise RecommendationFileError(f"{name}: {place}: {fault['msg']}.") from error
    except RecursionError as error:
        raise RecommendationFileError(f"{name} is nested too deeply.") from error


@cache
def _adapter() -> TypeAdapter[Recommendation]:
    strictly = with_config(ConfigDict(extra="forbid", allow_inf_nan=False))
    return TypeAdapter(strictly(Recommendation))


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
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
