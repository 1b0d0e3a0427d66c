"""From a choice on the page to an opened engine. Knows which backend serves local pairs."""

from __future__ import annotations

from app.form import OWN_PAIR
from app.session import PairChoice, Report
from dflash.engines import Engine, open_engine
from dflash.errors import PairError
from dflash.pairs import resolve_pair
from dflash.wheel_target import FetchProgress


def open_pair(choice: PairChoice, report: Report) -> Engine:
    """Open the torch engine for a choice, telling ``report`` how far it is.

    Raises ``DFlashError`` children in one sentence. Called in a worker thread.
    """
    report(f"loading {choice.label}", None)

    def on_fetch(step: FetchProgress) -> None:
        report(step.step, step.fraction)

    if choice.pair_id != OWN_PAIR:
        return open_engine("torch", pair=choice.pair_id, progress=on_fetch)
    if not choice.draft:
        raise PairError("no draft was given.", "Type the draft's folder or its hub id.")
    return open_engine("torch", pair=resolve_pair(choice.target, choice.draft), progress=on_fetch)
