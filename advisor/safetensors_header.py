"""Tensor shapes from safetensors files. Knows the header; never touches the weights.

Layout: 8 bytes little-endian header length, then that much JSON
(https://huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.values import MAX_INTEGER, plain
from dflash.errors import CheckpointError

_MAX_HEADER_BYTES = 32 * 1024 * 1024
_MAX_TENSORS = 200_000
_MAX_SHARDS = 512
INDEX_NAME = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class WeightsHeader:
    """Shapes and dtypes by tensor name, over all shards."""

    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]


def read_weights_header(folder: Path) -> WeightsHeader | None:
    """Read the headers of the checkpoint in ``folder``; ``None`` when it holds no tensor.

    Raises ``CheckpointError`` for a broken or cut-off file. A file that holds the header and
    nothing after it is accepted: shapes are all that is asked of it.
    """
    # Tensors of shards that are not here are known by name only.
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(_indexed(folder), ())
    dtypes: dict[str, str] = {}
    for path in _weight_files(folder):
        for tensor, entry in _header(path).items():
            shapes[tensor], dtypes[tensor] = entry
    return WeightsHeader(shapes, dtypes) if shapes else None


def _indexed(folder: Path) -> list[str]:
    """Names of all tensors of a sharded checkpoint, from its index."""
    path = folder / INDEX_NAME
    if not path.is_file() or path.stat().st_size > _MAX_HEADER_BYTES:
        return []
    try:
        index = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path.name} cannot be read ({type(error).__name__}).") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path.name} is not JSON.") from error
    names = index.get("weight_map") if isinstance(index, dict) else None
    return list(names)[:_MAX_TENSORS] if isinstance(names, dict) else []


def _weight_files(folder: Path) -> list[Path]:
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    return sorted(folder.glob("*.safetensors"))[:_MAX_SHARDS]


def _header(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    name = plain(path.name)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _MAX_HEADER_BYTES):
                raise CheckpointError(
                    f"{name} is not a whole safetensors file: "
                    f"its header claims {length} bytes and the file has {size}."
                )
            header = json.loads(file.read(length))
    except OSError as error:
        raise CheckpointError(f"{name} cannot be read ({type(error).__name__}).") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{name} has a header that is not JSON.") from error
    entries, end = _entries(header, name)
    if 0 < size - 8 - length < end:
        raise CheckpointError(
            f"{name} is cut off: {end} bytes of weights are listed, {size - 8 - length} exist."
        )
    return entries


def _entries(header: Any, name: str) -> tuple[dict[str, tuple[tuple[int, ...], str]], int]:
    if not isinstance(header, dict) or len(header) > _MAX_TENSORS:
        raise CheckpointError(f"{name} has a header that is no table of tensors.")
    entries: dict[str, tuple[tuple[int, ...], str]] = {}
    end = 0
    for tensor, entry in header.items():
        if tensor == "__metadata__":
            continue
        shape = entry.get("shape") if isinstance(entry, dict) else None
        if not isinstance(shape, list) or not all(_is_dimension(item) for item in shape):
            raise CheckpointError(f"{name} lists a tensor without a usable shape.")
        entries[tensor] = (tuple(shape), str(entry.get("dtype")))
        offsets = entry.get("data_offsets")
        if isinstance(offsets, list) and len(offsets) == 2 and _is_dimension(offsets[1]):
            end = max(end, offsets[1])
    return entries, end


def _is_dimension(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INTEGER
