"""A file made for one visitor to download: in a folder of its own, so that no two share a path."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dflash.whole_file import cannot_write

_PREFIX = "dflash-download-"
_KEPT_S = 600  # the page copies the file within the same event; its own copy lives for a day


def hand_out(name: str, write: Callable[[Path], None]) -> str:
    """Let ``write`` fill a new file called ``name`` and return its path.

    Removes what was handed out long ago, also by a process that was killed. Raises
    ``StorageError`` when the server has no room.
    """
    _remove_old(Path(tempfile.gettempdir()))
    try:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX)) / name
    except OSError as error:
        raise cannot_write(Path(tempfile.gettempdir()) / name, error) from error
    write(path)
    return str(path)


def _remove_old(folder: Path) -> None:
    for old in folder.glob(f"{_PREFIX}*"):
        try:
            is_old = time.time() - old.stat().st_mtime > _KEPT_S
        except FileNotFoundError:  # another visitor's press was faster
            continue
        if is_old:
            shutil.rmtree(old, ignore_errors=True)
