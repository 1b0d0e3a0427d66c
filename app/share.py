"""A link that restores the form. Knows query strings; tolerant of old, cut or hostile ones.

The version says how to read the rest; unknown keys and values that do not parse are left out, so
an old link always restores what it can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any
from urllib.parse import urlencode

from app.form import PlaygroundForm

VERSION = "1"
MAX_PROMPT_CHARS = 4000  # longer ones break links in mail and chat programs


def _whole(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**31:
        raise ValueError(text)
    return value


def _real(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or not 0 <= value <= 100:
        raise ValueError(text)
    return value


def _flag(text: str) -> bool:
    return text == "1"


# field of the form -> (key in the link, how to read it)
_KEYS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "pair_id": ("pair", str),
    "target": ("target", str),
    "draft": ("draft", str),
    "prompt": ("p", str),
    "block_size": ("b", _whole),
    "max_new_tokens": ("n", _whole),
    "temperature": ("t", _real),
    "seed": ("s", _whole),
    "top_k": ("k", _whole),
    "top_p": ("tp", _real),
    "enable_thinking": ("think", _flag),
}


def link_query(form: PlaygroundForm, *, leave_out: Collection[str] = ()) -> str | None:
    """The form as a query string; ``None`` when its prompt is too long for a link.

    ``leave_out``: fields that would say nothing, such as the pair and block of a served run.
    """
    if len(form.prompt) > MAX_PROMPT_CHARS:
        return None
    pairs = [("v", VERSION)]
    for name, (key, _) in _KEYS.items():
        if name in leave_out:
            continue
        value = getattr(form, name)
        text = value if isinstance(value, str) else f"{float(value):.15g}"
        if text:
            pairs.append((key, text))
    return urlencode(pairs)


def read_link(query: Mapping[str, str], *, known_pairs: frozenset[str]) -> dict[str, Any]:
    """The fields that a link sets. Empty for no link; never raises."""
    fields: dict[str, Any] = {}
    for name, (key, read) in _KEYS.items():
        text = query.get(key)
        if not isinstance(text, str) or len(text) > MAX_PROMPT_CHARS:
            continue
        try:
            fields[name] = read(text)
        except ValueError:
            continue
    if fields.get("pair_id") not in known_pairs:
        fields.pop("pair_id", None)
    return fields
