"""From a choice on the page to an opened engine. Knows which backend serves local pairs, and that a
public page opens servers behind a guard."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from app.form import OWN_PAIR
from app.hosted import Limits
from app.session import PairChoice, Report, ServerChoice
from dflash.engines import Engine, open_engine
from dflash.engines.remote import RemoteEngine
from dflash.engines.url_guard import UrlGuard
from dflash.errors import PairError
from dflash.pairs import resolve_pair
from dflash.wheel_target import FetchProgress

Opener: TypeAlias = Callable[[PairChoice, Report], Engine]


def opening_within(limits: Limits, opener: Opener) -> Opener:
    """``opener`` for models of this machine, and servers as far as the page allows them."""

    def open_choice(choice: PairChoice, report: Report) -> Engine:
        if choice.server is None:
            return opener(choice, report)
        limits.check_choice(choice)
        report(f"asking {choice.label}", None)
        return open_server(choice.server, limits.guard)

    return open_choice


def open_server(server: ServerChoice, guard: UrlGuard | None) -> RemoteEngine:
    """Open a served target; one of its two servers may be gone. Raises ``EngineError``."""
    engine = open_engine(
        server.kind,
        base_url=server.url,
        baseline_url=server.baseline_url or None,
        model=server.model or None,
        api_key=server.api_key or None,
        baseline_api_key=server.baseline_api_key or None,
        needs_both=False,
        guard=guard,
    )
    assert isinstance(engine, RemoteEngine), "every kind of ServerForm is one"
    return engine


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
