"""Log lines for machines: one JSON object per line, with the request that it belongs to.

Knows names, counts and seconds. Prompts, answers and keys are in no line: nobody may pass them.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")
DEFAULT_LEVEL = "info"
_OURS = ("app", "advisor", "dflash", "__main__")
_MAX_TEXT = 500


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON; line breaks in a text cannot forge a second line."""

    def format(self, record: logging.LogRecord) -> str:
        """Give time, level, logger and event, then the facts, then a traceback if there is one."""
        time = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, object] = {
            "time": time.isoformat("T", "milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage()[:_MAX_TEXT],
        }
        line |= getattr(record, "facts", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(level: str, stream: TextIO | None = None) -> None:
    """Send this project's lines of at least ``level`` to ``stream`` (standard error by default).

    Other libraries speak from warnings on. Call again to change the level.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    for old in [h for h in root.handlers if isinstance(h.formatter, JsonLines)]:
        root.removeHandler(old)
    root.addHandler(handler)
    for name in _OURS:
        logging.getLogger(name).setLevel(level.upper())


def event(
    logger: logging.Logger,
    name: str,
    *,
    request_id: str,
    level: int = logging.INFO,
    **facts: str | int | float | bool | None,
) -> None:
    """Log that something happened to a request."""
    short = {k: v[:_MAX_TEXT] if isinstance(v, str) else v for k, v in facts.items()}
    logger.log(level, name, extra={"facts": {"request_id": request_id, **short}})
