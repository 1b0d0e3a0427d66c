"""What the stage in the browser is told: one line of JSON per event, in one growing string.

Knows events and the line format that stage.js reads; knows no markup. The string only ever grows
during a run, so the server sends the browser nothing but the new end of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from app.race import BASELINE, DFLASH, LaneEvent, LaneFailed, RaceEvent
from dflash.close_look import SlotOdds
from dflash.schema import Chunk, Cycle, Event, Finished, Prefilled

WAITING = '{"k":"wait"}\n'  # all that the stage is told between a press and its race


@dataclass(frozen=True, slots=True)
class StageHeader:
    """The first line of a run. ``source`` is a badge word; ``where`` says machine and date.
    ``block_size`` is ``None`` where a server keeps it to itself."""

    run_id: str
    block_size: int | None
    source: str
    where: str = ""
    autoplay: bool = False


@dataclass(frozen=True, slots=True)
class StageEnd:
    """The last line: the verdict between the lanes, a note under each, where texts differ."""

    say: str
    notes: tuple[str, str]
    differs: int | None
    aloud: str


@dataclass(slots=True)
class StageWriter:
    """Builds the string. ``word`` turns one token id into text (drafts that were never emitted
    have no piece of their own); ids already told are not told again."""

    word: Callable[[int], str]
    text: str = ""
    _told: set[int] = field(default_factory=set)

    def header(self, header: StageHeader) -> None:
        """Start a run."""
        self._line(
            k="run",
            id=header.run_id,
            block=header.block_size,
            source=header.source,
            where=header.where,
            autoplay=header.autoplay,
        )

    def add(self, events: Iterable[RaceEvent]) -> None:
        """Append events of either lane."""
        for event in events:
            if isinstance(event, LaneFailed):
                self._line(k="x", l=event.lane, m=event.message)
            else:
                self._add_one(event)

    def odds(self, number: int, odds: Iterable[SlotOdds]) -> None:
        """Tell what draft and target thought of the slots of one drafting cycle, from 0."""
        slots = [
            [_short(o.draft_probability), _short(o.target_probability), o.target_rank_in_draft]
            for o in odds
        ]
        self._line(k="o", c=number, x=slots)

    def stopped(self, message: str) -> None:
        """Say under both lanes that the run was cut short."""
        self._line(k="x", l=-1, m=message)

    def end(self, end: StageEnd) -> None:
        """Close the run."""
        self._line(
            k="end", say=end.say, notes=list(end.notes), differs=end.differs, aloud=end.aloud
        )

    def _add_one(self, item: LaneEvent) -> None:
        if isinstance(item.event, Cycle) and item.lane == DFLASH:
            self._tell_words(item.event)
        if isinstance(item.event, Prefilled):
            self._tell([item.event.token_id])
        fields = _fields(item.event)
        if item.lane == BASELINE and isinstance(item.event, Cycle):
            # A step of the plain lane is shown as its text alone.
            fields = {"k": "c", "p": fields["p"]}
        self._line(l=item.lane, t=round(item.event.t_s, 6), **fields)

    def _tell_words(self, cycle: Cycle) -> None:
        self._tell([*cycle.draft_ids, cycle.bonus_id, *cycle.emitted_ids, *cycle.target_ids])

    def _tell(self, ids: list[int]) -> None:
        new = {i: self.word(i) for i in ids if i not in self._told}
        if new:
            self._told.update(new)
            self._line(k="v", t={str(i): text for i, text in new.items()})

    def _line(self, **fields: Any) -> None:
        self.text += json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


def _fields(event: Event) -> dict[str, Any]:
    if isinstance(event, Prefilled):
        return {"k": "p", "n": event.num_prompt_tokens, "i": event.token_id, "p": event.piece}
    if isinstance(event, Cycle):
        return {
            "k": "c",
            "d": list(event.draft_ids),
            "a": event.num_accepted,
            "b": event.bonus_id,
            "e": list(event.emitted_ids),
            "p": list(event.pieces) or [""] * len(event.emitted_ids),
            "ds": round(event.draft_s, 6),
            "vs": round(event.verify_s, 6),
        }
    if isinstance(event, Chunk):
        return {"k": "h", "p": event.text, "n": event.num_tokens}
    assert isinstance(event, Finished)
    return {"k": "f", "r": event.finish_reason, "n": event.num_output_tokens}
