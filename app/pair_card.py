"""The top line: which pairs there are, and what the chosen one is. Knows the catalogue and words;
opens no model."""

from __future__ import annotations

from html import escape

from app import view
from app.form import OWN_PAIR
from app.hosted import HOME, Limits
from dflash.engines import Engine
from dflash.presets import PairPreset, load_pair, pair_ids

DEFAULT_PAIR = "demo"
SECOND_PAIR = "smollm2-135m"
_FALLBACK_BLOCK = 16
_OPENABLE = ("embedded", "released", "gated")


def pair_choices(limits: Limits = HOME) -> list[tuple[str, str]]:
    """(label, id) for the picker: the embedded pairs, the catalogue, one's own."""
    own = [("my own: a folder or a hub id", OWN_PAIR)] if limits.offers_own_models else []
    return [*catalogue_choices(limits), *own]


def catalogue_choices(limits: Limits = HOME) -> list[tuple[str, str]]:
    """(label, id) of every pair that can be opened here, the embedded ones first."""
    known = [i for i in pair_ids() if limits.pair_ids is None or i in limits.pair_ids]
    first = [pair_id for pair_id in (DEFAULT_PAIR, SECOND_PAIR) if pair_id in known]
    rest = [i for i in known if i not in first and _openable(load_pair(i))]
    return [(_label(load_pair(pair_id)), pair_id) for pair_id in (*first, *rest)]


def trained_block(pair_id: str) -> int:
    """The block the draft was trained with, as far as the catalogue knows."""
    if pair_id == OWN_PAIR or pair_id not in pair_ids():
        return _FALLBACK_BLOCK
    return load_pair(pair_id).draft.block_size or _FALLBACK_BLOCK


def pair_card(pair_id: str, engine: Engine | None = None) -> str:
    """What the pair is, and, once it is open, where it runs and whether a draft is active."""
    facts = [] if pair_id == OWN_PAIR else _facts(load_pair(pair_id))
    if engine is None:
        state = '<span class="dot dot-off">○ not loaded yet</span>'
    elif engine.info.draft_id:
        state = '<span class="dot dot-on">● DFlash active</span>'
        facts += [escape(engine.info.device), escape(engine.info.dtype)]
    else:
        state = '<span class="dot dot-bad">✕ no draft: speculation is NOT active</span>'
    return f'<div class="pair-card">{state} <span>{" · ".join(facts)}</span></div>'


def _facts(preset: PairPreset) -> list[str]:
    target, draft = preset.target, preset.draft
    facts = [escape(preset.title)]
    if target.num_params:
        layers = f", {target.num_layers} layers" if target.num_layers else ""
        facts.append(f"target {view.parameters(target.num_params)}{layers}")
    if draft.block_size:
        facts.append(f"trained {view.term('block')} {draft.block_size}")
    if preset.id == DEFAULT_PAIR:
        facts.append("a demonstration model, trained for the six kinds of task below only")
    return facts


def _label(preset: PairPreset) -> str:
    size = preset.target.num_params
    notes = {DEFAULT_PAIR: "ships with this page", SECOND_PAIR: "fetched on first use"}
    note = notes.get(preset.id) or (view.parameters(size) if size else preset.status)
    return f"{preset.id} ({note})"


def _openable(preset: PairPreset) -> bool:
    where = preset.draft.hub_id or preset.draft.path
    return preset.status in _OPENABLE and preset.draft.format == "z-lab" and bool(where)
