"""What the catalogue knows about the pair at hand. Knows presets; knows no formula.

A pair is found by the draft's name or verifier, else by the target's name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median

from advisor.catalog import PublishedResult, match_draft, match_target, published_results
from advisor.known import known_pairs, same_numbers, target_from_facts, target_names
from advisor.schema import DraftSpec, TargetSpec, Task
from advisor.situation import Published, PublishedSpeed, TauBand
from dflash.presets import DraftFacts, PairPreset

_ALIKE_IN_SIZE = 1.2  # as a factor
_MAX_ALIKE = 3
SAMPLED_TAU_SHARE = 0.85  # paper, Table 1: DFlash keeps 0.84-0.87 of its tau at temperature 1


@dataclass(frozen=True, slots=True)
class Known:
    """The catalogue's pair, and the revision of its draft that is meant."""

    pair: PairPreset
    facts: DraftFacts


def find_known(draft: DraftSpec | None, target: TargetSpec | None) -> Known | None:
    """The catalogue's pair for this draft, or for this target when no draft was given."""
    if draft is not None:
        named = (
            draft
            if draft.target_name or target is None
            else replace(draft, target_name=target.name)
        )
        match = match_draft(named)
        return Known(match.pair, match.facts) if match else None
    found = match_target(target.name) if target else ()
    return Known(found[0], found[0].draft) if found else None


def lookalike(draft: DraftSpec) -> PairPreset | None:
    """The one pair whose draft has this draft's block size and taps, and no number against it."""
    same = {
        pair.id: pair for pair in known_pairs() for facts in pair.drafts if _resembles(draft, facts)
    }
    return next(iter(same.values())) if len(same) == 1 else None


def nearest_in_size(num_params: int) -> tuple[PairPreset, ...]:
    """The few published pairs whose targets are nearest in size, none over a fifth away."""

    def factor(pair: PairPreset) -> float:
        theirs = pair.target.num_params or math.inf
        return max(theirs, num_params) / min(theirs, num_params)

    alike = [p for p in known_pairs() if p.status == "released" and factor(p) <= _ALIKE_IN_SIZE]
    return tuple(sorted(alike, key=factor)[:_MAX_ALIKE])


def _resembles(draft: DraftSpec, facts: DraftFacts) -> bool:
    same_block = facts.block_size is not None and facts.block_size == draft.block_size
    same_kind = (facts.format == "dflash2") == (draft.dialect == "dflash2")
    return same_block and same_kind and same_numbers(draft, facts)


def completed(target: TargetSpec, pair: PairPreset) -> TargetSpec:
    """The target as read, with the sizes that only the catalogue has."""
    known = target_from_facts(pair)
    shape = target.shape
    return replace(
        target,
        shape=replace(
            shape,
            num_params=shape.num_params or known.shape.num_params,
            num_active_params=shape.num_active_params or known.shape.num_active_params,
        ),
    )


def published(known: Known, *, task: Task | None, temperature: float) -> Published:
    """What the catalogue says that bears on this task and temperature."""
    pair, draft = known.pair, known.facts
    kinds = draft.layer_types
    speeds, speeds_basis = _speeds(known, task, temperature)
    return Published(
        pair_id=pair.id,
        title=pair.title,
        source=draft.source[0],
        target_name=next(iter(target_names(pair.target)), None),
        draft_name=draft.hub_id or draft.path or pair.draft.hub_id,
        block_size=draft.block_size,
        target_layer_ids=draft.target_layer_ids,
        mask_token_id=draft.mask_token_id,
        sliding_window=draft.sliding_window,
        full_attention=set(kinds) == {"full_attention"} if kinds else None,
        tau_band=_band(known, task, temperature),
        speeds=speeds,
        speeds_basis=speeds_basis,
    )


def _speeds(
    known: Known, task: Task | None, temperature: float
) -> tuple[tuple[PublishedSpeed, ...], str]:
    """The published sweep over block sizes for this kind of text, and what it was taken on.

    Sampled text has its own acceptance, so a sweep says nothing of another temperature.
    """
    found = published_results(known.pair, facts=known.facts, temperature=temperature)
    for kind in dict.fromkeys((task, None)):
        sweeps: dict[str, dict[int, PublishedSpeed]] = {}
        for result in found:
            speed = _speed(result) if result.row.task == kind else None
            if speed is not None:
                sweeps.setdefault(_conditions(result), {})[speed.block_size] = speed
        for conditions, by_block in sweeps.items():
            if len(by_block) > 1:
                return tuple(by_block[b] for b in sorted(by_block)), conditions
    return (), ""


def _conditions(result: PublishedResult) -> str:
    table = result.table
    parts = (table.where, table.engine, table.note or table.hardware, result.row.benchmark)
    return ": ".join(part.rstrip(".") for part in parts if part)


def _speed(result: PublishedResult) -> PublishedSpeed | None:
    table, row = result.table, result.row
    if row.speedup is None or table.block_size is None:
        return None
    texts = table.rows if row.task is None else (row,)
    taus = [r.tau for r in texts if r.tau is not None]
    return PublishedSpeed(
        table.block_size,
        row.speedup,
        row.tau,
        min(taus, default=None),
        max(taus, default=None),
    )


def _band(known: Known, task: Task | None, temperature: float) -> TauBand | None:
    """The published tau for this kind of text: median, lowest and highest of its rows."""
    results = _results(known, task, temperature)
    blocks = [_block_of(known, result) for result in results]
    present = {b for b in blocks if b is not None}
    if not present:
        return None
    trained = known.facts.block_size
    block = trained if trained in present else max(present)
    taus = sorted(
        r.row.tau for r, b in zip(results, blocks, strict=True) if b == block and r.row.tau
    )
    share, remark = 1.0, ""
    if temperature > 0 and not any(r.table.temperature for r in results):
        share, remark = SAMPLED_TAU_SHARE, f", times {SAMPLED_TAU_SHARE} for sampling"
    value, low, high = (max(1.0, share * tau) for tau in (median(taus), taus[0], taus[-1]))
    text = task if any(r.row.task == task for r in results) else None
    basis = (
        f"published tau for {text or 'text of all kinds'} at block size {block}{remark} "
        f"({results[0].table.source[0]})"
    )
    return TauBand(value, low, high, block, basis)


def _results(known: Known, task: Task | None, temperature: float) -> list[PublishedResult]:
    """The rows nearest to what is asked: this task and temperature, else less and less of it."""
    narrowings = ((task, temperature), (task, None), (None, temperature), (None, None))
    for kind, warmth in narrowings:
        found = published_results(known.pair, facts=known.facts, task=kind, temperature=warmth)
        rows = [r for r in found if r.row.tau is not None and _block_of(known, r)]
        if rows:
            return rows
    return []


def _block_of(known: Known, result: PublishedResult) -> int | None:
    return result.table.block_size or known.facts.block_size
