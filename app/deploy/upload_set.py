"""Exactly the files that a Space needs, and the .gitattributes that go before them.

Knows the project's folders. Knows no hub and no rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

_TOP_FILES = (
    "app.py", "requirements.txt", "README.md", "CONTRIBUTING.md", "LICENSE", "NOTICE",
)  # fmt: skip
_FOLDERS = ("app", "advisor", "dflash", "presets", "docs")
# Training needs the project itself, with its tests; a page never trains.
_LEFT_OUT = ("dflash/train/*", "app/deploy/*", "*/__pycache__/*", "*.pyc", "*.tmp", "*.partial")
LFS_PATTERNS = ("*.safetensors", "*.gguf", "*.bin", "*.png", "*.npz")
ATTRIBUTES = ".gitattributes"


@dataclass(frozen=True, slots=True)
class UploadFile:
    """One file: where it is here, and its name there (always with forward slashes)."""

    source: Path
    name: str

    @property
    def num_bytes(self) -> int:
        """Size on disk."""
        return self.source.stat().st_size

    @property
    def is_large(self) -> bool:
        """Whether it goes through the hub's large-file path."""
        return any(fnmatch(self.name, pattern) for pattern in LFS_PATTERNS)


def upload_set(root: Path) -> tuple[UploadFile, ...]:
    """Every file that belongs on the Space, by name."""
    paths = [root / name for name in _TOP_FILES if (root / name).is_file()]
    for folder in _FOLDERS:
        paths += [path for path in sorted((root / folder).rglob("*")) if path.is_file()]
    files = (UploadFile(path, str(PurePosixPath(path.relative_to(root)))) for path in paths)
    return tuple(file for file in files if not _is_left_out(file.name))


def gitattributes() -> str:
    """What must be committed first, so that no weight is ever added as plain text."""
    return "".join(f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in LFS_PATTERNS)


def _is_left_out(name: str) -> bool:
    hidden = any(part.startswith(".") for part in name.split("/"))
    return hidden or any(fnmatch(name, pattern) for pattern in _LEFT_OUT)
