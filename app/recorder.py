"""Collects a race while it runs, so that a stopped one keeps its numbers. Knows events."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from app.footer import versions
from app.race import BASELINE, DFLASH, Lane, LaneFailed, RaceEvent, lane_requests
from app.runs import Run
from app.session import PairChoice
from dflash.engines import Engine
from dflash.schema import EngineInfo, Event, Request, Trace


@dataclass(slots=True)
class Recorder:
    """One race in progress."""

    choice: PairChoice
    engines: tuple[Engine, Engine]
    request: Request
    machine: str
    kind: str = ""
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    words: dict[int, str] = field(default_factory=dict)
    events: tuple[list[Event], list[Event]] = field(default_factory=lambda: ([], []))
    failures: dict[Lane, str] = field(default_factory=dict)

    def word(self, token_id: int) -> str:
        """The text of one id, decoded once."""
        if token_id not in self.words:
            self.words[token_id] = self.engines[DFLASH].decode([token_id])
        return self.words[token_id]

    def add(self, batch: list[RaceEvent]) -> None:
        """Keep a batch."""
        for item in batch:
            if isinstance(item, LaneFailed):
                self.failures[item.lane] = item.message
            else:
                self.events[item.lane].append(item.event)

    @property
    def both_prefilled(self) -> bool:
        """Whether both lanes have read the prompt (or broken while trying)."""
        return all(
            lane in self.failures or bool(events)
            for lane, events in zip((BASELINE, DFLASH), self.events, strict=True)
        )

    def run(self, *, stopped: bool) -> Run:
        """The race as far as it got."""
        left, right = (
            Trace(request, _without_folders(engine.info), tuple(events))
            for request, engine, events in zip(
                lane_requests(self.request), self.engines, self.events, strict=True
            )
        )
        return Run(
            id=self.id,
            pair_id=self.choice.label,
            baseline=left,
            dflash=right,
            words=dict(self.words),
            failures=dict(self.failures),
            stopped=stopped,
            machine=self.machine,
            date=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            kind=self.kind,
            versions=versions(),
        )


def _without_folders(info: EngineInfo) -> EngineInfo:
    """A saved or shared run names the models, not where this machine keeps them."""
    draft_id = info.draft_id and _name(info.draft_id)
    return replace(info, target_id=_name(info.target_id), draft_id=draft_id)


def _name(model_id: str) -> str:
    path = Path(model_id)
    return "/".join(path.parts[-2:]) if path.is_absolute() else model_id
