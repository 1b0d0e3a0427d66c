"""Writing a file whole or not at all. Knows the file system and how to say that it is full."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import tempfile
from pathlib import Path

from dflash.errors import DFlashError


class StorageError(DFlashError):
    """A file could not be written; what was there before is still there."""


def write_whole(path: Path, text: str) -> None:
    """Write ``path`` so that a reader, also after a kill, sees the old file or the whole new one.

    Raises ``StorageError`` in one sentence, leaving nothing half.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise cannot_write(path, error) from error


def check_writable(path: Path) -> None:
    """Find out before the work whether ``write_whole`` has a place for its result.

    Makes the folder. Raises ``StorageError``.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> StorageError:
    """The sentence for a disk that is full or a folder that may not be written."""
    return StorageError(
        f"{path.name} could not be written to {path.parent} ({error.strerror or error}).",
        "Free some space there or choose another folder; what was saved before is unharmed.",
    )
