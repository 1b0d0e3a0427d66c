"""What one exercise of the corpus is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt, its model answer, and what a judge needs to mark another answer.

    ``keep`` holds the words a story must keep. ``function`` is the name of the asked-for function and
    ``checks`` its calls: pairs of arguments and the expected value, worked out without the answer.
    """

    prompt: str
    answer: str
    keep: tuple[str, ...] = ()
    function: str = ""
    checks: tuple[tuple[tuple[Any, ...], Any], ...] = ()
