"""One race as a value: both traces, the words of every token id, and where it was measured.

Knows traces and the file they are saved in. Knows no engine, no page and no session.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.race import BASELINE, DFLASH, Lane, LaneEvent, LaneFailed, RaceEvent
from dflash.errors import TraceError
from dflash.metrics import Comparison, compare
from dflash.schema import Chunk, Cycle, Event, Prefilled, Trace
from dflash.trace_file import parse_json, trace_from_dict, trace_to_dict

FORMAT = "dflash-race"
VERSION = 1
MAX_FILE_BYTES = 20_000_000
_TEXTS = ("id", "pair_id", "machine", "date", "kind")
_MAX_WORDS = 300_000


@dataclass(frozen=True, slots=True)
class Run:
    """A race, finished or cut short. ``source`` is a badge word."""

    id: str
    pair_id: str
    baseline: Trace
    dflash: Trace
    words: Mapping[int, str] = field(default_factory=dict)
    failures: Mapping[Lane, str] = field(default_factory=dict)
    stopped: bool = False
    source: str = "measured here"
    machine: str = ""
    date: str = ""
    kind: str = ""  # what kind of prompt it was, when one of ours
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def comparison(self) -> Comparison:
        """Both lanes in numbers."""
        return compare(self.baseline, self.dflash)

    @property
    def block_size(self) -> int:
        """The DFlash lane's block."""
        return self.dflash.request.block_size

    @property
    def prompt(self) -> str:
        """What the user typed last."""
        return self.dflash.request.messages[-1].content

    @property
    def where(self) -> str:
        """Machine and date, for a person."""
        return ", ".join(part for part in (self.machine, self.date) if part)

    def word(self, token_id: int) -> str:
        """The text of one token id, as far as it was told."""
        return self.words.get(token_id, f"#{token_id}")

    def events(self) -> list[RaceEvent]:
        """Both lanes' events in the order of their own clocks, failures last."""
        merged: list[tuple[float, Lane, Event]] = []
        for lane, trace in ((BASELINE, self.baseline), (DFLASH, self.dflash)):
            merged += [(event.t_s, lane, event) for event in trace.events]
        merged.sort(key=lambda item: (item[0], item[1]))
        events: list[RaceEvent] = [LaneEvent(lane, event) for _, lane, event in merged]
        return events + [LaneFailed(lane, text) for lane, text in self.failures.items()]


def trace_text(trace: Trace) -> str:
    """The text a trace emitted, from its own pieces."""
    parts = []
    for event in trace.events:
        if isinstance(event, Prefilled):
            parts.append(event.piece)
        elif isinstance(event, Cycle):
            parts.extend(event.pieces)
        elif isinstance(event, Chunk):
            parts.append(event.text)
    return "".join(parts)


def dump_run(run: Run) -> str:
    """Write a run as JSON; ``load_run`` reads it back equal."""
    return json.dumps(
        {
            "format": FORMAT,
            "version": VERSION,
            **{name: getattr(run, name) for name in _TEXTS},
            "stopped": run.stopped,
            "versions": dict(run.versions),
            "failures": {str(lane): text for lane, text in run.failures.items()},
            "words": {str(i): text for i, text in run.words.items()},
            "baseline": trace_to_dict(run.baseline),
            "dflash": trace_to_dict(run.dflash),
        },
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
    )


def load_run(text: str, *, source: str) -> Run:
    """Read a saved run as data. Raises ``TraceError`` with the reason in one sentence."""
    data = parse_json(text)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise TraceError("this file is not a saved race.", "Open a .json that was saved here.")
    if data.get("version") != VERSION:
        raise TraceError(
            f"this race was saved in version {data.get('version')!r}; this page reads {VERSION}.",
            "Save it again from the page that wrote it.",
        )
    texts = {name: data.get(name, "") for name in _TEXTS}
    if not all(isinstance(text, str) and len(text) <= 300 for text in texts.values()):
        raise TraceError(f"one of {', '.join(_TEXTS)} is not a short text.")
    words = {_whole(key): text for key, text in _texts(data, "words").items()}
    failures = {_lane(key): text for key, text in _texts(data, "failures").items()}
    baseline = trace_from_dict(data.get("baseline"))
    if baseline.request.block_size != 1:
        raise TraceError(
            f"the baseline of this race has block size {baseline.request.block_size}, not 1."
        )
    return Run(
        baseline=baseline,
        dflash=trace_from_dict(data.get("dflash")),
        words=words,
        failures=failures,
        stopped=data.get("stopped") is True,
        source=source,
        versions=_texts(data, "versions"),
        **texts,
    )


def read_limited(path: Path) -> str:
    """The text of an uploaded file. Raises ``TraceError`` for one that is too large or no text."""
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise TraceError(
            f"this file has {size / 1e6:.0f} MB; saved races have at most "
            f"{MAX_FILE_BYTES / 1e6:.0f} MB."
        )
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError("this file is not text.", "Open a .json that was saved here.") from error


def _texts(data: dict[str, Any], name: str) -> dict[str, str]:
    value = data.get(name, {})
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise TraceError(f"{name!r} must map names to texts.")
    if len(value) > _MAX_WORDS:
        raise TraceError(f"{name!r} has {len(value)} entries, more than {_MAX_WORDS}.")
    return value


def _whole(key: str) -> int:
    # Ten digits: every 31-bit id that a race can hold, so what is saved opens again.
    if not key.isascii() or not key.isdigit() or len(key) > 10:
        raise TraceError(f"words: {key[:20]!r} is not a token id.")
    return int(key)


def _lane(key: str) -> Lane:
    if key == "0":
        return BASELINE
    if key == "1":
        return DFLASH
    raise TraceError(f"failures: there is no lane {key[:20]!r}.")
