"""Strict YAML: a file either fits its model to the letter or is refused in one sentence.

Knows YAML and pydantic. Knows no preset. Never builds anything but plain values, so a file from a
stranger can be read as well as one of ours.
"""

from __future__ import annotations

import difflib
import json
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from dflash.errors import PresetError

MAX_FILE_BYTES = 1_000_000

# libyaml is about ten times faster; the pure loader reads exactly the same files.
_BASE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class StrictModel(BaseModel):
    """A value read from a file: frozen, no unknown keys, no silent conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _checked_source(text: str) -> str:
    if not text.startswith(("https://", "docs/")):
        raise ValueError("a source is an https:// address or a file under docs/")
    return text


Source = Annotated[str, AfterValidator(_checked_source)]
# Strict mode accepts no list for a tuple; the items themselves stay strict.
Sources = Annotated[tuple[Source, ...], Field(strict=False, min_length=1)]
Ints = Annotated[tuple[int, ...], Field(strict=False)]
Strings = Annotated[tuple[str, ...], Field(strict=False)]
Model = TypeVar("Model", bound=StrictModel)


class _Loader(_BASE_LOADER):  # type: ignore[misc]
    """Plain values only, and no key twice in one mapping."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) != len(node.value):
            keys = [key.value for key, _ in node.value]
            twice = next(k for i, k in enumerate(keys) if k in keys[:i])
            raise yaml.MarkedYAMLError(problem=f"key {twice!r} is written twice")
        return mapping


def parse_yaml(text: str, *, name: str) -> Any:
    """Return the plain values in ``text``. Raises ``PresetError`` that names ``name``.

    Aliases are refused: no file of ours needs them and a few bytes of them can unfold to gigabytes.
    """
    if len(text) > MAX_FILE_BYTES:
        raise PresetError(f"{name}: {len(text)} characters is more than {MAX_FILE_BYTES}.")
    try:
        if any(isinstance(token, yaml.AliasToken) for token in _alias_candidates(text)):
            raise PresetError(f"{name}: YAML aliases (*name) are not allowed.")
        return _Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f" in line {mark.line + 1}" if mark else ""
        raise PresetError(f"{name}: not readable as YAML{line}: {error.problem}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise PresetError(f"{name}: not readable as YAML ({type(error).__name__}).") from error


def _alias_candidates(text: str) -> Iterator[Any]:
    return iter(yaml.scan(text, Loader=_Loader)) if "*" in text and "&" in text else iter(())


def parse_json(text: str, *, name: str) -> Any:
    """Return the values in one JSON text. Raises ``PresetError`` that names ``name``."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PresetError(f"{name}: not readable as JSON ({type(error).__name__}).") from error


def read_preset(path: Path, model: type[Model], *, name: str | None = None) -> Model:
    """Read one file into ``model``. ``name`` is what errors call the file; default its path.

    Raises ``PresetError`` for an unreadable file, an unknown key, a wrong type or a missing source.
    """
    shown = name or str(path)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise PresetError(f"{shown}: is larger than {MAX_FILE_BYTES} bytes.")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PresetError(f"{shown}: cannot be read ({type(error).__name__}).") from error
    return validated(parse_yaml(text, name=shown), model, name=shown)


def validated(data: Any, model: type[Model], *, name: str) -> Model:
    """Fit plain values to ``model``, or raise ``PresetError`` with what is wrong first."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _as_preset_error(error, model, name) from error
    except RecursionError as error:
        raise PresetError(f"{name}: nested too deeply.") from error


def _as_preset_error(error: ValidationError, model: type[StrictModel], name: str) -> PresetError:
    faults = error.errors(include_url=False)
    # A misspelt key also leaves its right spelling missing: report the spelling.
    fault = next((f for f in faults if f["type"] == "extra_forbidden"), faults[0])
    *parents, key = fault["loc"] or ("the file",)
    place = _dotted(parents)
    hint = f"It stands under {place}." if place else ""
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(key), _known_keys(model, parents), n=1, cutoff=0.5)
        guess = f"; did you mean {near[0]!r}?" if near else ""
        return PresetError(f"{name}: unknown key {str(key)!r}{guess}", hint)
    if fault["type"] == "missing":
        return PresetError(f"{name}: {str(key)!r} is missing.", hint)
    reason = fault["msg"][:1].lower() + fault["msg"][1:]
    return PresetError(
        f"{name}: {_dotted(fault['loc']) or 'the file'} is {_short(fault['input'])}, but {reason}."
    )


def _dotted(location: typing.Sequence[int | str]) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return "".join(parts).removeprefix(".")


def _short(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def _known_keys(model: type[StrictModel], location: typing.Sequence[int | str]) -> list[str]:
    current: type[BaseModel] | None = model
    for part in location:
        if current is not None and isinstance(part, str) and part in current.model_fields:
            current = _model_within(current.model_fields[part].annotation)
    return list(current.model_fields) if current is not None else []


def _model_within(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    inner = (_model_within(argument) for argument in typing.get_args(annotation))
    return next((found for found in inner if found is not None), None)
