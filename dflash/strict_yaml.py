"""Strict YAML: a file either fits its model to the letter or is refused in one sentence.

Knows YAML and pydantic. Knows no preset. Never builds anything but plain values, so a file from a
stranger can be read as well as one of ours.
"""

from __future__ import annotations

import difflib
import json
import math
import types
import typing
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from dflash.errors import PresetError

MAX_FILE_BYTES = 1_000_000
MAX_DEPTH = 64  # what is read is written again, and writing goes deeper on the stack than reading

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


_YAML_TEXT, _YAML_INT, _YAML_FLOAT = (f"tag:yaml.org,2002:{t}" for t in ("str", "int", "float"))
_NOT_OURS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("timestamp", "merge", "value"))


class _Loader(_BASE_LOADER):  # type: ignore[misc]
    """Plain values only, and no key twice in one mapping.

    Of what YAML 1.1 reads into unquoted text, dates, merges and numbers in base 60 (1:30 is 90)
    stay text: no file of ours means them, and a long number in base 60 takes minutes to read.
    """

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        tag = super().resolve(kind, value, implicit)
        is_base_60 = tag in (_YAML_INT, _YAML_FLOAT) and ":" in value
        return _YAML_TEXT if is_base_60 or tag in _NOT_OURS else tag

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) != len(node.value):
            raise yaml.MarkedYAMLError(problem=f"key {_key_written_twice(node)} is written twice")
        return mapping


def _key_written_twice(node: Any) -> str:
    """The first key of a mapping that an earlier one equals; 1 and 0x1 are one key."""
    keys = [key.value for key, _ in node.value]
    return _cut(repr(next((key for i, key in enumerate(keys) if key in keys[:i]), keys[-1])))


def _whole_number(loader: Any, node: Any) -> int:
    """A whole number that can be written down again: Python prints at most 4300 digits."""
    number: int = _BASE_LOADER.construct_yaml_int(loader, node)
    str(number)
    return number


def _finite_number(loader: Any, node: Any) -> float:
    number: float = _BASE_LOADER.construct_yaml_float(loader, node)
    if not math.isfinite(number):
        problem = f"{_cut(node.value)} is no finite number"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    return number


_Loader.add_constructor(_YAML_INT, _whole_number)
_Loader.add_constructor(_YAML_FLOAT, _finite_number)


def parse_yaml(text: str, *, name: str) -> Any:
    """Return the plain values in ``text``. Raises ``PresetError`` that names ``name``.

    Aliases and tags are refused. No file of ours needs them; a few bytes of aliases can unfold to
    gigabytes, and a tag can hide what a value is.
    """
    if len(text) > MAX_FILE_BYTES:
        raise PresetError(f"{name}: {len(text)} characters is more than {MAX_FILE_BYTES}.")
    try:
        _refuse_aliases_and_tags(text, name)
        value = _Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f" in line {mark.line + 1}" if mark else ""
        problem = _cut(str(error.problem))
        raise PresetError(f"{name}: not readable as YAML{line}: {problem}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise PresetError(f"{name}: not readable as YAML ({type(error).__name__}).") from error
    _refuse_depth(value, name)
    return value


def _refuse_depth(value: Any, name: str, room: int = MAX_DEPTH) -> None:
    if not isinstance(value, (dict, list)):
        return
    if room == 0:
        raise PresetError(f"{name}: is nested more than {MAX_DEPTH} deep.")
    for item in value.values() if isinstance(value, dict) else value:
        _refuse_depth(item, name, room - 1)


def _refuse_aliases_and_tags(text: str, name: str) -> None:
    if "!" not in text and not ("*" in text and "&" in text):
        return
    for token in yaml.scan(text, Loader=_Loader):
        if isinstance(token, yaml.AliasToken):
            raise PresetError(f"{name}: YAML aliases (*name) are not allowed.")
        if isinstance(token, yaml.TagToken):
            raise PresetError(f"{name}: YAML tags (!!name) are not allowed.")


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
        return PresetError(f"{name}: unknown key {_cut(repr(str(key)))}{guess}", hint)
    if fault["type"] == "missing":
        return PresetError(f"{name}: {str(key)!r} is missing.", hint)
    reason = _cut(fault["msg"][:1].lower() + fault["msg"][1:], 200)
    return PresetError(
        f"{name}: {_dotted(fault['loc']) or 'the file'} is {_short(fault['input'])}, but {reason}."
    )


def _dotted(location: typing.Sequence[int | str]) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return _cut("".join(parts).removeprefix("."), 120)


def _short(value: Any) -> str:
    """The start of a value as JSON would have it, or as Python has it where it is no JSON."""
    try:
        return _cut(json.dumps(value, default=str, ensure_ascii=True))
    except (TypeError, RecursionError):  # a key that is no text; bottomless nesting
        return f"a {type(value).__name__}"


def _cut(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


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
