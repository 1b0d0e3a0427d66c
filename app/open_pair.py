"""From a choice on the page to an opened engine. Knows which backend serves local pairs."""

from __future__ import annotations

from app.session import PairChoice, Report
from dflash.engines import Engine, open_engine


def open_pair(choice: PairChoice, report: Report) -> Engine:
    """Open the torch engine for a choice, telling ``report`` how far it is.

    Raises ``DFlashError`` children in one sentence. Called in a worker thread.
    """
    report("loading torch and the models", None)
    return open_engine("torch", pair=choice.pair_id, progress=report)
