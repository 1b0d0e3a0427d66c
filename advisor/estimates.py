"""The numbers of an answer, each with its unit, its interval and where it came from.

A number that is not known is ``None``, and its basis says what it would take.
"""

from __future__ import annotations

from typing import Any

from advisor import cost
from advisor.knobs import PUBLISHED_NUM_TAPS
from advisor.predict import Outlook, Prediction
from advisor.schema import Estimate, Knob
from advisor.situation import Situation

_NEEDS_BOTH = "needs the machine's costs (--costs or --hardware) and acceptance (--tau)"


def estimates(knob: Knob, view: Outlook, memory: cost.MemoryNeed | None) -> dict[str, Estimate]:
    """tau, speedup, seconds per token and memory at the block size that was chosen."""
    row = _plain(view) if knob.value == 1 else view.at(knob.value)
    return {
        "tau": _tau(knob, view, row),
        "speedup": _speedup(row),
        "tpot_s": _tpot(row),
        "memory_bytes": _memory_bytes(memory),
    }


def break_even(view: Outlook, chosen: Prediction | None) -> Estimate:
    """The tau at which the chosen block size, else the best or the largest, only ties."""
    rows = [row for row in view.rows if row.break_even_tau is not None]
    row = chosen or view.best or (rows[-1] if rows else None)
    if row is None or row.break_even_tau is None or view.costs is None:
        needs = "needs the machine's costs (--costs or --hardware)"
        return Estimate(None, "tokens/cycle", "unknown", needs)
    basis = f"cycle over step at block size {row.block_size}; {view.costs.basis}"
    return Estimate(row.break_even_tau, "tokens/cycle", view.costs.source, basis)


def curve_point(row: Prediction) -> dict[str, Any]:
    """One point of the predicted curve, as plain values for a chart."""
    return {
        "block_size": row.block_size,
        "tau": row.tau.value if row.tau else None,
        "speedup": row.speedup,
        "low": row.low,
        "high": row.high,
        "break_even_tau": row.break_even_tau,
        "source": row.source,
        "n": row.n,
    }


def memory(situation: Situation, settled: dict[str, Knob]) -> cost.MemoryNeed | None:
    """What the pair takes with the chosen settings; ``None`` when the target's size is unknown."""
    draft = situation.draft if situation.mode == "serve" else None
    taps = settled["target_layer_ids"].value
    window = settled["sliding_window_size"]
    return cost.memory_need(
        situation.target_shape,
        draft.shape if draft else None,
        situation.workload,
        block_size=settled["block_size"].value or 1,
        num_taps=len(taps) if taps else PUBLISHED_NUM_TAPS,
        draft_window=window.value if window.tunable else None,
    )


def _tau(knob: Knob, view: Outlook, row: Prediction | None) -> Estimate:
    if row is not None and row.tau is not None and view.curve is None:
        return Estimate(
            row.tau.value, "tokens/cycle", row.source, row.basis, row.tau.low, row.tau.high
        )
    known = row.tau if row else None
    if known is None and view.curve is not None and knob.value is not None:
        known = view.curve.at(knob.value)
    if known is None or view.curve is None:
        return Estimate(None, "tokens/cycle", "unknown", "acceptance is not known; give --tau")
    curve = view.curve
    return Estimate(known.value, "tokens/cycle", curve.source, curve.basis, known.low, known.high)


def _speedup(row: Prediction | None) -> Estimate:
    if row is None or row.speedup is None:
        return Estimate(None, "x", "unknown", _NEEDS_BOTH)
    return Estimate(row.speedup, "x", row.source, row.basis, row.low, row.high)


def _tpot(row: Prediction | None) -> Estimate:
    if row is None or row.tpot_s is None:
        return Estimate(None, "s", "unknown", _NEEDS_BOTH)
    if not (row.speedup and row.low and row.high):
        return Estimate(row.tpot_s, "s", row.source, row.basis)
    step_s = row.tpot_s * row.speedup
    return Estimate(row.tpot_s, "s", row.source, row.basis, step_s / row.high, step_s / row.low)


def _memory_bytes(need: cost.MemoryNeed | None) -> Estimate:
    if need is None:
        return Estimate(None, "bytes", "unknown", "the target's size is not known; give --target")
    missing = "" if need.complete else "; caches or the draft are not fully known"
    if need.complete and not need.target_kv:
        missing = "; the caches are empty: they grow with prompt and answer"
    reach = f"weights, both caches, taps and one block of logits{missing}"
    return Estimate(float(need.total), "bytes", "modelled", reach)


def _plain(view: Outlook) -> Prediction | None:
    """Plain decoding as a row: one token per step, speedup 1 by definition."""
    if view.costs is None:
        return None
    basis = f"plain decoding, one token per step; {view.costs.basis}"
    step_s, tau = view.costs.ar_step_s, view.curve.at(1) if view.curve else None
    return Prediction(1, tau, 1.0, 1.0, 1.0, 1.0, step_s, view.costs.source, basis)
