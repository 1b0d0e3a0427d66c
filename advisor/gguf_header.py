"""The metadata of a GGUF file. Knows the header layout; reads no tensor data and trusts nothing.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (magic, version, counts, then
key-value pairs, then tensor names and shapes; little-endian).
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

from advisor.values import plain
from dflash.errors import CheckpointError

MAGIC = b"GGUF"
_MAX_PAIRS = 4096
_MAX_TENSORS = 65_536
_MAX_KEY_BYTES = 65_535
_MAX_BYTES = 256 * 1024 * 1024  # vocabularies of 250,000 strings take about 10 MB
_MAX_KEPT = 4096  # longer arrays (vocabularies) are kept as their length only
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9


class _Reader:
    """Sequential reads with a byte budget; every short read is the same clear error."""

    def __init__(self, file: BinaryIO, name: str, size: int) -> None:
        self.file, self.name, self.left = file, name, min(size, _MAX_BYTES)

    def take(self, num_bytes: int) -> bytes:
        if num_bytes > self.left:
            raise CheckpointError(f"{self.name} is not a whole GGUF header: it ends too early.")
        self.left -= num_bytes
        data = self.file.read(num_bytes)
        if len(data) != num_bytes:
            raise CheckpointError(f"{self.name} is not a whole GGUF header: it ends too early.")
        return data

    def skip(self, num_bytes: int) -> None:
        if num_bytes > self.left:
            raise CheckpointError(f"{self.name} is not a whole GGUF header: it ends too early.")
        self.left -= num_bytes
        self.file.seek(num_bytes, 1)

    def skip_strings(self, length: int) -> None:
        """Pass over a vocabulary: hundreds of thousands of strings, so a tight loop."""
        read, left = self.file.read, self.left
        for _ in range(length):
            size = int.from_bytes(read(8), "little")
            left -= 8 + size
            if left < 0:
                raise CheckpointError(f"{self.name} is not a whole GGUF header: it ends too early.")
            read(size)
        self.left = left

    def scalar(self, kind: int) -> Any:
        layout = _SCALARS.get(kind)
        if layout is None:
            raise CheckpointError(f"{self.name} has a GGUF value of unknown type {kind}.")
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def count(self, most: int, what: str) -> int:
        number = self.scalar(10)
        if number > most:
            raise CheckpointError(f"{self.name} claims {number} {what}; {most} is the limit.")
        return number

    def string(self) -> str:
        return self.take(self.count(_MAX_BYTES, "bytes in a string")).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        return self.array() if kind == _ARRAY else self.scalar(kind)

    def array(self) -> Any:
        kind = self.scalar(4)
        length = self.count(_MAX_BYTES, "items in a list")
        if kind == _ARRAY:
            raise CheckpointError(f"{self.name} nests lists in its metadata; no GGUF writer does.")
        if length <= _MAX_KEPT:
            return [self.value(kind) for _ in range(length)]
        if kind == _STRING:
            self.skip_strings(length)
        else:
            layout = _SCALARS.get(kind)
            if layout is None:
                raise CheckpointError(f"{self.name} has a GGUF value of unknown type {kind}.")
            self.skip(length * struct.calcsize(layout))
        return {"length": length}


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Return (metadata, shapes by tensor name as GGUF orders them: innermost first).

    Arrays of more than 4096 items come back as ``{"length": n}``. Raises ``CheckpointError`` for
    anything that is not a whole header.
    """
    name = plain(path.name)
    try:
        with path.open("rb") as file:
            return _read(_Reader(file, name, path.stat().st_size))
    except OSError as error:
        raise CheckpointError(f"{name} cannot be read ({type(error).__name__}).") from error


def _read(reader: _Reader) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    if reader.take(4) != MAGIC:
        raise CheckpointError(f"{reader.name} is not a GGUF file.")
    version = reader.scalar(4)
    if version not in (2, 3):
        raise CheckpointError(f"{reader.name} is GGUF version {version}; 2 and 3 can be read.")
    num_tensors = reader.count(_MAX_TENSORS, "tensors")
    num_pairs = reader.count(_MAX_PAIRS, "metadata entries")
    metadata: dict[str, Any] = {}
    for _ in range(num_pairs):
        key = reader.take(reader.count(_MAX_KEY_BYTES, "bytes in a key")).decode("utf-8", "replace")
        metadata[key] = reader.value(reader.scalar(4))
    shapes: dict[str, tuple[int, ...]] = {}
    for _ in range(num_tensors):
        tensor = reader.string()
        num_dims = reader.scalar(4)
        if num_dims > 8:
            raise CheckpointError(f"{reader.name} has a tensor with {num_dims} dimensions.")
        shapes[tensor] = tuple(reader.scalar(10) for _ in range(num_dims))
        reader.take(12)  # type and offset
    return metadata, shapes
