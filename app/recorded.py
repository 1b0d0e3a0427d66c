"""Recorded real runs that ship with the page. Knows the folder and the file format."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path

from app.runs import Run, load_run
from dflash.errors import TraceError

TRACES = Path(__file__).resolve().parent.parent / "presets" / "traces"
_log = logging.getLogger(__name__)


@cache
def recorded_runs() -> tuple[Run, ...]:
    """Every readable run under presets/traces/, in the order of their file names."""
    runs = []
    for path in sorted(TRACES.glob("*.json")):
        try:
            runs.append(load_run(path.read_text(encoding="utf-8"), source="recorded"))
        except (TraceError, OSError, UnicodeDecodeError) as error:
            _log.warning("%s is left out: %s", path.name, error)
    return tuple(runs)
