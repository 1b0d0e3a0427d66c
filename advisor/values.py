"""Typed values out of a file that nobody vouches for. Knows JSON types and how to show them.

Knows no config dialect. A value of the wrong type becomes an error finding and then counts as
unknown, so nothing behind this file ever meets a string where a number belongs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from advisor.schema import Finding

CONFIG_DOCS = "https://huggingface.co/docs/transformers/main_classes/configuration"
MAX_INTEGER = 2**53  # larger "sizes" are nonsense, and JSON readers disagree about them
MAX_LIST_LENGTH = 4096
_MAX_SHOWN = 60


def shown(value: Any) -> str:
    """Return ``value`` as short printable ASCII-safe text, whatever it is."""
    if isinstance(value, dict):
        return f"an object with {len(value)} keys"
    if isinstance(value, list | tuple) and not all(
        isinstance(item, int | float | str | None) for item in value[:64]
    ):
        return f"a list of {len(value)} items"
    try:
        text = json.dumps(value, ensure_ascii=True)
    except (TypeError, ValueError, RecursionError):
        return f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


def plain(text: str) -> str:
    """Return ``text`` with control characters and lone surrogates escaped, on one line."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode("ascii")
        for c in text
    )


class DuplicateKeyError(ValueError):
    """The same key twice in one object; JSON readers would silently keep the last."""


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An ``object_pairs_hook``. Raises ``DuplicateKeyError`` with the key's name."""
    seen: dict[str, Any] = {}
    for key, item in pairs:
        if key in seen:
            raise DuplicateKeyError(key)
        seen[key] = item
    return seen


class Fields:
    """One JSON object, read by type. Every misfit is appended to ``findings`` as an error.

    ``None`` and a missing key both read as ``None``: configs write ``null`` for "not set".
    """

    def __init__(self, values: Mapping[str, Any], findings: list[Finding], where: str = "") -> None:
        self.values = values
        self.findings = findings
        self.where = where  # "dflash_config." for a nested object

    def has(self, key: str) -> bool:
        """Whether the key is written with something other than null."""
        return self.values.get(key) is not None

    def integer(self, key: str, field: str | None = None) -> int | None:
        """Return a whole number that is no bool and no larger than any real size."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            return self._misfit(key, field, value, "a whole number")
        if abs(value) > MAX_INTEGER:
            return self._misfit(key, field, value, f"a number below {MAX_INTEGER}")
        return value

    def number(self, key: str, field: str | None = None) -> float | None:
        """Return a finite number that is no bool."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self._misfit(key, field, value, "a number")
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            return self._misfit(key, field, value, f"a number below {MAX_INTEGER}")
        if not math.isfinite(value):
            return self._misfit(key, field, value, "a finite number")
        return float(value)

    def boolean(self, key: str, field: str | None = None) -> bool | None:
        """Return true or false; 0 and 1 are not booleans in a config."""
        value = self.values.get(key)
        if value is None or isinstance(value, bool):
            return value
        return self._misfit(key, field, value, "true or false")

    def text(self, key: str, field: str | None = None) -> str | None:
        """Return a string."""
        value = self.values.get(key)
        if value is None or isinstance(value, str):
            return value
        return self._misfit(key, field, value, "a string")

    def integers(self, key: str, field: str | None = None) -> tuple[int, ...] | None:
        """Return a list of whole numbers, negative ones included."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            return self._misfit(key, field, value, "a list of whole numbers")
        if len(value) > MAX_LIST_LENGTH:
            return self._misfit(key, field, value, f"a list of at most {MAX_LIST_LENGTH}")
        if not all(_is_size(item) for item in value):
            return self._misfit(key, field, value, "a list of whole numbers")
        return tuple(value)

    def texts(self, key: str, field: str | None = None) -> tuple[str, ...] | None:
        """Return a list of strings."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            return self._misfit(key, field, value, "a list of strings")
        if len(value) > MAX_LIST_LENGTH:
            return self._misfit(key, field, value, f"a list of at most {MAX_LIST_LENGTH}")
        return tuple(value)

    def integer_or_list(self, key: str, field: str | None = None) -> tuple[int, ...]:
        """Return stop ids, which configs write as one number or as a list."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, list | tuple):
            one = self.integer(key, field)
            return () if one is None else (one,)
        return self.integers(key, field) or ()

    def nested(self, key: str, field: str | None = None) -> Fields:
        """Return the object under ``key``; an empty one when it is absent or no object."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            self._misfit(key, field, value, "an object")
        inner = value if isinstance(value, dict) else {}
        return Fields(inner, self.findings, f"{self.where}{key}.")

    def _misfit(self, key: str, field: str | None, value: Any, wanted: str) -> Any:
        """Record the misfit and return ``None``, whatever type the caller was after."""
        self.findings.append(
            Finding(
                id="config.wrong-type",
                severity="error",
                field=field or plain(key),
                message=f"{self.where}{plain(key)} is {shown(value)}, but must be {wanted}.",
                hint="Correct the file; the value was ignored for the other checks.",
                evidence=CONFIG_DOCS,
            )
        )
        return None


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_INTEGER
