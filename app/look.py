"""A second look at a run: the odds of every slot, then the place where two greedy texts part.

Knows engines and runs. One generator, so that it can run wherever the engine's device is.
"""

from __future__ import annotations

from collections.abc import Iterator

from app.headline import is_sampled
from app.microscope_view import (
    microscope,
    no_difference,
    no_served_difference,
    served_microscope,
)
from app.runs import Run
from dflash.close_look import CloseLook, SlotOdds
from dflash.engines import Engine
from dflash.engines.remote import RemoteEngine
from dflash.errors import EngineError


def look_closer(engine: Engine, run: Run) -> Iterator[tuple[SlotOdds, ...] | str]:
    """Yield the slots' odds of every drafting cycle, then the markup of where texts part.

    Servers give no odds of slots; both are asked again with logprobs. Raises ``EngineError`` for
    an engine that cannot look again.
    """
    if isinstance(engine, RemoteEngine):
        yield _served_part(engine, run)
        return
    if not isinstance(engine, CloseLook):
        raise EngineError(f"{engine.info.backend} cannot look at a run again.")
    yield from engine.slot_odds(run.dflash)
    yield _part(engine, run)


def _served_part(engine: RemoteEngine, run: Run) -> str:
    if is_sampled(run):
        return no_difference(run)
    look = engine.served_divergence(run.dflash.request)
    return served_microscope(look) if look else no_served_difference(run)


def _part(engine: CloseLook, run: Run) -> str:
    """The place where two greedy texts part, if they do."""
    comparison = run.comparison
    index = comparison.first_difference
    greedy = run.dflash.request.sampling.temperature == 0
    longest = min(len(run.baseline.output_ids), len(run.dflash.output_ids))
    if index is None or index >= longest or not greedy:
        return no_difference(run)
    return microscope(run, engine.divergence(run.baseline, run.dflash, index))
