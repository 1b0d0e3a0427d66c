"""A second look at a run as the page's views. Knows runs, the stage and a visitor's session.

Knows no engine and no lock: what is found comes in as values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace

from app import headline, view
from app.card import takeaway
from app.finished import PlaygroundView
from app.form import PlaygroundForm
from app.race import SLICE_S
from app.runs import Run
from app.session import PairChoice, Session, Stopped
from app.share import link_query
from app.stage import StageWriter
from dflash.close_look import SlotOdds


def looking_views(
    session: Session,
    run: Run,
    found: Iterator[tuple[SlotOdds, ...] | str],
    gives_way: Callable[[], bool],
    *,
    unasked: bool,
) -> Generator[PlaygroundView, None, None]:
    """Put what ``look_closer`` finds on the stage, then into the run itself.

    Raises ``Stopped`` when it has to give way, or when another run is shown by now. Nobody asked:
    the status line stays as it is, and only a difference is shown beside the odds.
    """
    writer = StageWriter(run.word, session.stage_text)
    odds: list[tuple[SlotOdds, ...]] = []
    since, parting = time.monotonic(), ""
    with closing(found) as parts:  # type: ignore[type-var]
        for part in parts:
            if gives_way() or session.run is not run:
                raise Stopped("stopped looking.")
            if isinstance(part, str):
                parting = part
                continue
            writer.odds(len(odds), part)
            odds.append(part)
            if time.monotonic() - since > SLICE_S:
                since = time.monotonic()
                yield PlaygroundView(stage=writer.text)
    session.stage_text = writer.text
    looked = replace(run, odds=tuple(odds))
    session.keep(looked)
    shown = PlaygroundView(
        stage=writer.text, takeaway=takeaway(looked, link_of(session, looked)), look=parting
    )
    if unasked:
        yield shown if headline.texts_part(run) else replace(shown, look=None)
        return
    found_where = (
        "both servers were asked again, with the odds of every token"
        if run.is_served
        else "hover or focus a slot of the blocks to see its odds"
    )
    status = view.status_line("good", found_where)
    yield replace(shown, status=status, running=False)


def link_of(session: Session, run: Run) -> str | None:
    """The query string that restores the form of a run; ``None`` for a prompt too long for it."""
    choice = session.choice or PairChoice(run.pair_id)
    form = PlaygroundForm.of_run(run.dflash.request, choice)
    return link_query(form, leave_out=("pair_id", "block_size") if run.is_served else ())
