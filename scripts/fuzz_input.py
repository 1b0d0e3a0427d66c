"""Documents out of bytes: what a byte mutator changes becomes an edit of a real file.

Knows JSON values and how to write them as JSON or as YAML's flow style. Knows no parser. Mutating
bytes alone would end in ``json.loads`` nearly always, and nothing behind it would be tried.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_MAX_EDITS, _MAX_DEPTH = 6, 4
# Everything a reader may trip over: limits of types, other types, text that no page can hold.
SCALARS: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 16, 255, 4096, 100_000, 2**31, 2**53 + 1, 2**63, -(2**70),
    10**400, 0.0, -0.0, 0.5, 1e-300, 5e-324, 1e16, 1e308, float("inf"), float("nan"), "", " ", "0",
    "1", "-1", "٣", "²", "nan", "a/b", "\ud800", "\x1b[2J", "\u2028", "🦙", "<b>&amp;", "x\ny",
    "x" * 400, [], {}, [0], [[]], {"": None}, "~", "..", "https://a.b", "docs/x",
)  # fmt: skip
# What only YAML makes of plain text; a document's own strings are always quoted.
_PLAIN = (
    "2001-01-01", "2001-01-01 00:00:00 +99:99", "2001-99-99", "1:30", "1:30:30.5", "0b1", "0o17",
    "0xffffffffffffffffffffffff", "1_000", ".inf", "-.nan", "~", "yes", "=", "!!bool x", "!!int ''",
    "!!float x", "!!timestamp x", "!!binary ===", "!!set {a}", "!!omap [{a: 1}]", "!!pairs [1]",
    "!!str 1", "!!null x", "!!python/name:os.system ''", "! x", "&a x", "*a", "|\n  x", "- x",
    "? x", "1" + ":1" * 200 + ".0", "0x" + "f" * 5000, "@x", "`x", "%x", "\t", "# x", "---", "...",
)  # fmt: skip
_DEEP = {f"@deep{depth}@": depth for depth in (100, 400, 900, 5000, 100_000)}
_PLAIN_KEYS = ("<<", "=", "2001-01-01", "1", "1.5", "~", "? [a]", "!!int ''", "&a x", "yes")


class Choices:
    """Decisions read from bytes, one after the other; after their end every choice is the first.

    The same bytes give the same decisions, which is what makes a finding repeatable.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def byte(self) -> int:
        """The next byte, 0 after the end."""
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def below(self, limit: int) -> int:
        """A number from 0 to ``limit`` - 1."""
        if limit <= 1:
            return 0
        number = self.byte() if limit <= 256 else (self.byte() << 8) + self.byte()
        return number % limit

    def pick(self, items: Sequence[_Item]) -> _Item:
        """One of the items."""
        return items[self.below(len(items))]

    def text(self) -> str:
        """Up to 15 characters, any of them."""
        return bytes(self.byte() for _ in range(self.below(16))).decode("utf-8", "replace")

    def rest(self) -> bytes:
        """Everything that has not been read."""
        return self._data[self._at :]


def edited(documents: Sequence[Any], words: Sequence[str], choices: Choices) -> Any:
    """One of the documents with up to five places removed, replaced, added or moved."""
    holder = [copy.deepcopy(choices.pick(documents))]
    for _ in range(choices.below(_MAX_EDITS)):
        _edit(holder, words, choices)
    return holder[0]


def words_of(documents: Sequence[Any]) -> tuple[str, ...]:
    """Every key and every short text in the documents, sorted: the words their reader knows."""
    found: set[str] = set()
    for document in documents:
        if isinstance(document, dict):
            found.update(str(key) for key in document)
            found.update(words_of(list(document.values())))
        elif isinstance(document, list | tuple):
            found.update(words_of(document))
        elif isinstance(document, str) and len(document) <= 40:
            found.add(document)
    return tuple(sorted(found))


def flow_yaml(value: Any, choices: Choices) -> str:
    """The value in YAML's flow style, with some texts and keys left for YAML to make sense of."""
    if isinstance(value, dict):
        inner = ", ".join(
            f"{_key(key, choices)}: {flow_yaml(item, choices)}" for key, item in value.items()
        )
        return "{" + inner + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow_yaml(item, choices) for item in value) + "]"
    return choices.pick(_PLAIN) if choices.byte() > 250 else json.dumps(value)


def deepened(text: str, choices: Choices) -> str:
    """The text of an edited document with its marks for deep nesting replaced by that nesting."""
    for mark, depth in _DEEP.items():
        quoted = json.dumps(mark)
        while quoted in text:
            left, right = choices.pick((("[", "]"), ('{"a":', "}")))
            text = text.replace(quoted, left * depth + "1" + right * depth, 1)
    return text


def _key(key: Any, choices: Choices) -> str:
    return choices.pick(_PLAIN_KEYS) if choices.byte() > 252 else json.dumps(str(key))


def _edit(holder: list[Any], words: Sequence[str], choices: Choices) -> None:
    parent, key = _place(holder, choices)
    action = choices.below(6)
    if action == 0 and parent is not holder:
        del parent[key]
    elif action == 1 and isinstance(parent[key], dict):
        parent[key][_name(words, choices)] = _value(words, choices)
    elif action == 1 and isinstance(parent[key], list):
        parent[key].append(_value(words, choices))
    elif action == 2:
        other, name = _place(holder, choices)
        parent[key] = copy.deepcopy(other[name])
    elif action == 3 and isinstance(parent[key], int) and abs(parent[key]) < 2**53:
        parent[key] += choices.pick((1, -1, 0.5, 2**31, -2 * parent[key]))
    else:
        parent[key] = _value(words, choices)


def _place(holder: list[Any], choices: Choices) -> tuple[Any, Any]:
    """A container and the key or index of one place in it, at any depth."""
    parent, key = holder, 0
    while isinstance(parent[key], dict | list) and parent[key] and choices.below(8):
        parent = parent[key]
        key = choices.pick(list(parent) if isinstance(parent, dict) else range(len(parent)))
    return parent, key


def _name(words: Sequence[str], choices: Choices) -> str:
    return choices.pick(words) if words and choices.below(4) else choices.text()


def _value(words: Sequence[str], choices: Choices, depth: int = _MAX_DEPTH) -> Any:
    kind = choices.below(9 if depth else 6)
    if kind <= 1:
        return copy.deepcopy(choices.pick(SCALARS))  # a later edit may fill an empty list
    if kind == 2:
        return _name(words, choices)
    if kind == 3:
        return choices.byte()
    if kind == 4:
        return (choices.byte() << 8) + choices.byte()
    if kind == 5:
        return choices.pick((choices.byte() / 256, *_DEEP))
    inner = [_value(words, choices, depth - 1) for _ in range(choices.below(4))]
    if kind == 6:
        return inner
    if kind == 7:
        return {_name(words, choices): item for item in inner}
    return [choices.byte()] * choices.below(40)
