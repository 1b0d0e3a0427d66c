"""What the log says of a race: started, ended, refused. Knows runs and log lines; no prompt."""

from __future__ import annotations

import logging

from app import logs
from app.recorder import Recorder
from app.runs import Run
from app.session import Session
from dflash.errors import DFlashError

_log = logging.getLogger(__name__)


def started(recorder: Recorder) -> None:
    """Both lanes are about to read the prompt."""
    request = recorder.request
    logs.event(
        _log, "run started", request_id=recorder.id, pair=recorder.choice.label,
        block_size=request.block_size, max_new_tokens=request.sampling.max_new_tokens,
        num_prompt_chars=sum(len(message.content) for message in request.messages),
    )  # fmt: skip


def ended(run: Run) -> None:
    """The race is over, by itself or by a stop."""
    comparison = run.comparison
    logs.event(
        _log, "run ended", request_id=run.id, is_stopped=run.stopped,
        num_failed_lanes=len(run.failures), speedup=comparison.speedup,
        num_tokens=comparison.dflash.num_output_tokens,
    )  # fmt: skip


def refused(session: Session, error: DFlashError) -> None:
    """The visitor got a sentence instead of a race."""
    logs.event(
        _log, "run refused", request_id=session.request_id, level=logging.WARNING,
        kind=type(error).__name__, reason=error.message,
    )  # fmt: skip
