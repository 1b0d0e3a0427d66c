"""One race as a value: both traces, the words of every token id, and where it was measured.

Knows traces and the file they are saved in. Knows no engine, no page and no session.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from app.race import BASELINE, DFLASH, Lane, LaneEvent, LaneFailed, RaceEvent
from dflash.close_look import SlotOdds
from dflash.errors import TraceError
from dflash.metrics import Comparison, compare
from dflash.schema import Chunk, Cycle, Event, Prefilled, Trace
from dflash.trace_file import parse_json, trace_from_dict, trace_to_dict

FORMAT = "dflash-race"
VERSION = 1
MAX_FILE_BYTES = 20_000_000
_TEXTS = ("id", "pair_id", "machine", "date", "kind")
LANE_NAMES: dict[Lane, str] = {BASELINE: "the plain lane", DFLASH: "the DFlash lane"}
_MAX_WORDS = 300_000
_Shown = TypeVar("_Shown")


@dataclass(frozen=True, slots=True)
class Run:
    """A race, finished or cut short. ``source`` is a badge word.

    ``failures`` are the lanes that broke or are not what they claim to be, each with its sentence.
    """

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
    odds: tuple[tuple[SlotOdds, ...], ...] = ()  # per drafting cycle, once somebody looked

    @property
    def counted(self) -> Run:
        """This run with nothing in a lane that failed: what may be counted, drawn and compared."""
        left, right = (
            replace(trace, events=()) if lane in self.failures else trace
            for lane, trace in ((BASELINE, self.baseline), (DFLASH, self.dflash))
        )
        return replace(self, baseline=left, dflash=right)

    @property
    def comparison(self) -> Comparison:
        """Both lanes in numbers, which a lane that failed has none of: the one place that decides
        what may be held against what."""
        counted = self.counted
        return compare(counted.baseline, counted.dflash)

    @property
    def failed_words(self) -> str:
        """Which lanes failed, for a person; '' where none did."""
        failed = " and ".join(name for lane, name in LANE_NAMES.items() if lane in self.failures)
        return failed and f"{failed} failed"

    def told(self, lane: Lane, number: _Shown) -> _Shown | str:
        """A number of one lane, or in its place the word that the lane failed."""
        return "failed" if lane in self.failures else number

    @property
    def block_size(self) -> int:
        """The DFlash lane's block."""
        return self.dflash.request.block_size

    @property
    def is_served(self) -> bool:
        """Whether servers made it: texts and totals, no cycles, a block of their own."""
        return self.dflash.engine.reports != "cycles"

    @property
    def shown_block(self) -> int | None:
        """The block as it is known: what was asked for, or what a server's totals come to."""
        if not self.is_served:
            return self.block_size
        spec = self.comparison.dflash.spec
        if spec is None or not spec.num_cycles or spec.num_draft_tokens % spec.num_cycles:
            return None
        return 1 + spec.num_draft_tokens // spec.num_cycles

    @property
    def block_words(self) -> str:
        """The block for a person; '' where it is not known."""
        return "" if self.shown_block is None else f"block {self.shown_block}"

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
    """Write a run as JSON; ``load_run`` reads it back equal (odds to five digits)."""
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
            "odds": [[_odds_to_list(slot) for slot in cycle] for cycle in run.odds],
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
            f"this race was saved in version {data.get('version')!r:.40}; "
            f"this page reads {VERSION}.",
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
    dflash = trace_from_dict(data.get("dflash"))
    return Run(
        baseline=baseline,
        dflash=dflash,
        odds=_odds(data.get("odds", []), dflash),
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


def _odds_to_list(slot: SlotOdds) -> list[float | None]:
    target = slot.target_probability
    return [
        round(slot.draft_probability, 5),
        None if target is None else round(target, 5),
        slot.target_rank_in_draft,
    ]


def _odds(data: Any, dflash: Trace) -> tuple[tuple[SlotOdds, ...], ...]:
    widths = [len(cycle.draft_ids) for cycle in dflash.cycles if cycle.draft_ids]
    if not isinstance(data, list) or len(data) > len(widths):
        raise TraceError("'odds' must be a list with at most one entry per drafting cycle.")
    for cycle, width in zip(data, widths, strict=False):
        if not isinstance(cycle, list) or len(cycle) != width:
            raise TraceError("'odds' must have one entry for every drafted token.")
    return tuple(tuple(_slot_odds(slot) for slot in cycle) for cycle in data)


def _slot_odds(data: Any) -> SlotOdds:
    if not isinstance(data, list) or len(data) != 3:
        raise TraceError("the odds of a slot are two probabilities and a rank.")
    draft, target, rank = data
    known = [p for p in (draft, target) if p is not None]
    if draft is None or not all(type(p) in (int, float) and 0 <= p <= 1 for p in known):
        raise TraceError("the odds of a slot must be probabilities from 0 to 1.")
    if rank is not None and (type(rank) is not int or not 1 <= rank < 2**31):
        raise TraceError("the rank of a slot must be a whole number from 1.")
    return SlotOdds(draft, target, rank)


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
