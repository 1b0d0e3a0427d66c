"""A file made for one visitor to download: in a folder of its own, so that no two share a path."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from dflash.whole_file import cannot_write


def hand_out(name: str, write: Callable[[Path], None]) -> str:
    """Let ``write`` fill a new file called ``name`` and return its path.

    Raises ``StorageError`` when the server has no room.
    """
    try:
        path = Path(tempfile.mkdtemp(prefix="dflash-download-")) / name
    except OSError as error:
        raise cannot_write(Path(tempfile.gettempdir()) / name, error) from error
    write(path)
    return str(path)
