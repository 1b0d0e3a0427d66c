"""From what a user types to a spec: a file, a folder, a catalogue id or a hub id.

Knows the file system and the catalogue; hands hub ids to ``advisor.hub``. Knows no rule. Every
failure is a ``CheckpointError`` that fits on one line.
"""

from __future__ import annotations

import difflib
import importlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.checkpoint import DraftReading, TargetReading, own_name, read_draft, read_target
from advisor.gguf_header import MAGIC, read_gguf
from advisor.known import (
    draft_from_facts,
    draft_names,
    known_pairs,
    pairs_with_draft,
    pairs_with_target,
    target_from_facts,
    target_names,
)
from advisor.safetensors_header import read_weights_header
from advisor.tokenizer import TokenizerReading, read_tokenizer
from advisor.values import DuplicateKeyError, plain, unique_keys
from dflash.errors import CheckpointError
from dflash.presets import PRESETS, PairPreset

_MAX_CONFIG_BYTES = 16 * 1024 * 1024
_MAX_TOKENIZER_BYTES = 64 * 1024 * 1024
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_TOKENIZER_FILES = ("generation_config.json", "tokenizer_config.json", "tokenizer.json")


@dataclass(frozen=True, slots=True)
class _Files:
    """What was found under a path: the config or metadata, and shapes where weights lie by it."""

    raw: dict[str, Any]
    tensor_shapes: dict[str, tuple[int, ...]] | None
    name: str | None


def load_draft(text: str) -> DraftReading:
    """Read the draft a user named. Raises ``CheckpointError`` when nothing usable is there."""
    path = _existing(text)
    pairs = pairs_with_draft(text) if path is None else ()
    if pairs:
        return draft_of(pairs[0])
    files = _from_hub(text) if path is None else _read_path(path, draft=True)
    return read_draft(files.raw, name=files.name, tensor_shapes=files.tensor_shapes)


def load_target(text: str) -> TargetReading:
    """Read the target a user named. Raises ``CheckpointError`` when nothing usable is there."""
    path = _existing(text)
    pairs = pairs_with_target(text) if path is None else ()
    if pairs:
        return target_of(pairs[0])
    files = _from_hub(text) if path is None else _read_path(path, draft=False)
    return read_target(files.raw, name=files.name, tensor_shapes=files.tensor_shapes)


def draft_of(pair: PairPreset) -> DraftReading:
    """A catalogue pair's draft: its own config where it ships with this project, else the facts."""
    folder = _embedded(pair.draft.path)
    if folder is None:
        return DraftReading(draft_from_facts(pair))
    files = _read_path(folder, draft=True)
    return read_draft(files.raw, name=pair.draft.path, tensor_shapes=files.tensor_shapes)


def target_of(pair: PairPreset) -> TargetReading:
    """A catalogue pair's target: its own config where it ships with us, else the facts."""
    folder = _embedded(pair.target.path)
    if folder is None:
        return TargetReading(target_from_facts(pair))
    files = _read_path(folder, draft=False)
    return read_target(files.raw, name=pair.target.path, tensor_shapes=files.tensor_shapes)


def load_tokenizer(text: str) -> TokenizerReading:
    """Read a tokenizer_config.json, generation_config.json or a folder that holds them."""
    path = _existing(text)
    if path is None:
        raise CheckpointError(f"there is no tokenizer file or folder {_quoted(text)}.")
    try:
        if path.is_dir():
            return _tokenizer_folder(path)
        return read_tokenizer(_read_json(path, _MAX_TOKENIZER_BYTES))
    except OSError as error:
        raise _unreadable(path, error) from error


def tokenizer_beside(text: str) -> TokenizerReading | None:
    """Read the tokenizer files in a target's own folder, when the target was given as one."""
    path = _existing(text)
    if path is not None and path.name == "config.json":
        path = path.parent
    if path is None or not path.is_dir():
        return None
    try:
        has_files = any((path / name).is_file() for name in _TOKENIZER_FILES)
        return _tokenizer_folder(path) if has_files else None
    except OSError as error:
        raise _unreadable(path, error) from error


def _existing(text: str) -> Path | None:
    if not text.strip():  # Path("") is the folder one happens to stand in
        return None
    try:
        path = Path(text).expanduser()
        return path if path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, NUL inside, unknown user after ~
        return None


def is_lone_config(text: str) -> bool:
    """Whether this is a config on this disk with no weights beside it: no engine can load that."""
    path = _existing(text)
    if path is None or not (path.is_dir() or path.name == "config.json"):
        return False
    folder = path if path.is_dir() else path.parent
    return not any(any(folder.glob(f"*{suffix}")) for suffix in (".safetensors", ".gguf"))


def _embedded(relative: str | None) -> Path | None:
    """Return the folder of a model that ships with this project, where it is there."""
    folder = PRESETS.parent / relative if relative else None
    return folder if folder is not None and (folder / "config.json").is_file() else None


def _read_path(path: Path, *, draft: bool) -> _Files:
    try:
        return _read_config_and_shapes(path, draft=draft)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(f"{_quoted(str(path))} cannot be read ({type(error).__name__}).")


def _read_config_and_shapes(path: Path, *, draft: bool) -> _Files:
    if path.is_dir():
        path = _config_in(path)
    elif path.suffix == ".safetensors":
        path = _config_in(path.parent)
    if _starts_with(path, MAGIC):
        raw, shapes = read_gguf(path)
        return _Files(raw, shapes, own_name(raw))
    raw = _read_json(path, _MAX_CONFIG_BYTES)
    header = read_weights_header(path.parent) if path.name == "config.json" else None
    return _Files(
        raw, header.shapes if header else None, own_name(raw) or _folder_name(path, draft)
    )


def _config_in(folder: Path) -> Path:
    config = folder / "config.json"
    if config.is_file():
        return config
    candidates = sorted(folder.glob("*.gguf"))
    if len(candidates) == 1:
        return candidates[0]
    found = f"{len(candidates)} .gguf files: name one" if candidates else "no config.json"
    raise CheckpointError(f"folder {_quoted(str(folder))} has {found}.")


def _folder_name(path: Path, draft: bool) -> str | None:
    """A local folder says whose checkpoint it holds only when it is named like a known one."""
    folder = str(path.parent.resolve()) if path.name == "config.json" else ""
    known = pairs_with_draft(folder) if draft else pairs_with_target(folder)
    return folder if known else None


def _starts_with(path: Path, magic: bytes) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def parse_config(data: bytes, name: str = "the config") -> dict[str, Any]:
    """Return the JSON object in ``data``. Raises ``CheckpointError`` that calls it ``name``."""
    if not data.strip():
        raise CheckpointError(f"{name} is empty.")
    try:
        raw = json.loads(data.decode("utf-8-sig"), object_pairs_hook=unique_keys)
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{name} is not UTF-8 text.") from error
    except RecursionError as error:
        raise CheckpointError(f"{name} is nested too deeply to be a config.") from error
    except DuplicateKeyError as error:
        raise CheckpointError(f"{name}: the key {_quoted(str(error))} is written twice.") from error
    except ValueError as error:  # JSONDecodeError, or an integer of thousands of digits
        raise CheckpointError(f"{name} is not valid JSON: {plain(str(error))[:120]}.") from error
    if not isinstance(raw, dict):
        raise CheckpointError(f"{name} holds a {type(raw).__name__}, not a config object.")
    return raw


def _read_json(path: Path, max_bytes: int) -> dict[str, Any]:
    name = _quoted(path.name)
    try:
        if not path.is_file() and not path.is_fifo():
            raise CheckpointError(f"{name} is not a file.")
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(data) > max_bytes:
        raise CheckpointError(f"{name} is larger than {max_bytes} bytes; no config is.")
    return parse_config(data, name)


def _tokenizer_folder(folder: Path) -> TokenizerReading:
    files: list[Mapping[str, Any]] = [
        _read_json(folder / name, _MAX_TOKENIZER_BYTES)
        for name in _TOKENIZER_FILES
        if (folder / name).is_file()
    ]
    if not files:
        raise CheckpointError(f"folder {_quoted(str(folder))} has no tokenizer_config.json.")
    template = folder / "chat_template.jinja"
    if template.is_file() and template.stat().st_size <= _MAX_CONFIG_BYTES:
        files.append({"chat_template": template.read_text(encoding="utf-8", errors="replace")})
    return read_tokenizer(*files)


def _from_hub(text: str) -> _Files:
    """Read a hub id's config.json; only an id that is no path and not in the catalogue."""
    if not _HUB_ID.fullmatch(text) or text.endswith((".json", ".gguf", ".safetensors")):
        raise CheckpointError(
            f"there is no file, folder or catalogue id {_quoted(text)}.{_near(text)}"
        )
    # The hub client takes a third of a second to import, so only a hub id pays for it.
    hub = importlib.import_module("advisor.hub")
    cached = hub.cached_config(text)
    if cached is not None:
        return replace(_read_path(cached, draft=True), name=text)
    return _Files(parse_config(hub.fetch_config(text), _quoted(text)), None, text)


def _near(text: str) -> str:
    names = [pair.id for pair in known_pairs()]
    names += [n for p in known_pairs() for n in (*draft_names(p), *target_names(p.target))]
    close = difflib.get_close_matches(text[:200], names, n=1, cutoff=0.7)
    return f" Did you mean {close[0]!r}?" if close else ""


def _quoted(text: str) -> str:
    short = text if len(text) <= 120 else text[:117] + "..."
    return f"'{plain(short)}'"
