"""Where this server keeps the project and pasted text, taken out of what a visitor is shown.

Knows strings and plain values. Knows no page and no rule.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

PASTED_PREFIX = "dflash-pasted-"
_OWN_FOLDERS = re.compile(
    rf"{re.escape(str(Path(__file__).resolve().parent.parent))}[/\\]"
    rf"|{re.escape(tempfile.gettempdir())}[/\\]{PASTED_PREFIX}[^/\\]+[/\\]"
)


def without_own_folders(value: Any) -> Any:
    """The same value with models named as a visitor knows them, not by where they lie here."""
    if isinstance(value, str):
        return _OWN_FOLDERS.sub("", value)
    if isinstance(value, dict):
        return {key: without_own_folders(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(without_own_folders, value))
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return replace(value, **without_own_folders(parts))
    return value
