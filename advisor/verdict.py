"""Is it worth it, and why not otherwise: the verdict in one line, and what each loser lost by.

Knows predictions; knows no cost and no file.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.predict import Outlook, Prediction
from advisor.schema import Alternative, Finding, Knob, Verdict

WORTH_IT = 1.05  # below this a gain drowns in run-to-run noise


def verdict(view: Outlook, knob: Knob, chosen: Prediction | None) -> tuple[Verdict, str]:
    """Use, try or off, with the reason in one line."""
    best = view.best
    if best is None or best.speedup is None:
        return "try", _unknown_headline(view, knob)
    if best.speedup <= 1:
        return "off", _off_headline(best)
    at = chosen if chosen and chosen.speedup is not None else best
    assert at.speedup is not None and at.low is not None
    gain = f"{at.speedup:.2f}x at block size {at.block_size}"
    if at.speedup <= 1:
        return "try", (
            f"Not at block size {at.block_size} ({at.speedup:.2f}x); block size "
            f"{best.block_size} is expected to give {best.speedup:.2f}x. Measure it."
        )
    if at.low > WORTH_IT:
        return "use", f"Use DFlash: {gain} ({_standing(view, at)})."
    if at.low == at.high:
        return "try", f"A small gain: {gain} ({at.source}), about what runs differ by."
    return "try", f"Probably worth it: {gain} ({_standing(view, at)})."


def _standing(view: Outlook, row: Prediction) -> str:
    """What a speedup stands on and between what it lies: a figure that was computed says so."""
    between = f"{row.low:.2f}x to {row.high:.2f}x"
    if row.source == "measured":
        return f"measured, {between}, n = {row.n}"
    costs = "calibrated" if view.costs and view.costs.source == "measured" else "modelled"
    acceptance = view.curve.source if view.curve else "unknown"
    return f"modelled from {costs} costs and {acceptance} acceptance, {between}"


def blocked(findings: Sequence[Finding]) -> str | None:
    """The headline for a pair that cannot run as it stands, or ``None`` when nothing stops it."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if not errors:
        return None
    more = f" ({len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"Not as it stands: {errors[0].message}{more}"


def _off_headline(best: Prediction) -> str:
    where = f"block size {best.block_size}"
    if best.high is not None and best.high > 1:
        return (
            f"Probably not worth it here: at best {best.speedup:.2f}x, at {where}, between "
            f"{best.low:.2f}x and {best.high:.2f}x. Measure before you turn it on."
        )
    if best.tau is None or best.break_even_tau is None:
        return f"DFlash is not worth it here: at best {best.speedup:.2f}x, at {where}."
    return (
        f"DFlash is not worth it here: at {where} it would need {best.break_even_tau:.2f} tokens "
        f"per cycle and gets {best.tau.value:.2f}."
    )


def _unknown_headline(view: Outlook, knob: Knob) -> str:
    rows = [row for row in view.rows if row.break_even_tau is not None]
    row = view.at(knob.value) or (rows[-1] if rows else None)
    if row is not None and row.break_even_tau is not None:
        return (
            f"Worth it above {row.break_even_tau:.2f} tokens per cycle at block size "
            f"{row.block_size}; acceptance is not known."
        )
    at = view.curve.at(knob.value) if view.curve and knob.value else None
    if at is not None:
        return (
            f"About {at.value:.1f} tokens per cycle at block size {knob.value}; what that is "
            "worth needs the machine's costs (--costs, or --hardware with a known machine)."
        )
    return "The speedup is not known: it needs a machine (--hardware) and acceptance (--tau)."


def alternatives(view: Outlook, knob: Knob, chosen: Prediction | None) -> tuple[Alternative, ...]:
    """The block sizes that were not chosen, plain decoding first, each with its reason."""
    rows = [
        Alternative(
            row.block_size,
            row.speedup,
            _why_lost(row, knob, chosen),
            "unknown" if row.speedup is None else row.source,
        )
        for row in view.rows
        if row.block_size != knob.value
    ]
    if view.best is not None and knob.value != 1:
        gained = (chosen.speedup if chosen else None) or view.best.speedup or 0.0
        relation = "instead" if gained > 1 else "at the block size above: slower"
        reason = f"plain decoding; {gained:.2f}x is expected {relation}"
        rows.insert(0, Alternative(1, 1.0, reason, view.best.source))
    above = [
        Alternative(block, None, "above the block size the draft was trained at")
        for block in view.beyond_trained
    ]
    return (*rows, *above)


def _why_lost(row: Prediction, knob: Knob, chosen: Prediction | None) -> str:
    if row.speedup is None:
        return f"needs tau above {row.break_even_tau:.2f}; acceptance is not known"
    if knob.value == 1:
        return f"{row.speedup:.2f}x: no faster than plain decoding"
    if chosen is None or chosen.speedup is None:
        return f"{row.speedup:.2f}x predicted; the {knob.rung} rung stands above it"
    if row.speedup > chosen.speedup and row.source == knob.rung == "measured":
        return (
            f"{row.speedup:.2f}x on the prompts it was tuned on, and slower than the winner there"
        )
    if row.speedup > chosen.speedup:
        return (
            f"{row.speedup:.2f}x predicted, above {chosen.speedup:.2f}x; but the {knob.rung} rung "
            "stands above a prediction: measure it"
        )
    return f"{row.speedup:.2f}x against {chosen.speedup:.2f}x: {_trade(row, chosen)}"


def _trade(row: Prediction, chosen: Prediction) -> str:
    if None in (row.tau, chosen.tau, row.break_even_tau, chosen.break_even_tau):
        return "slower when measured"
    assert row.tau and chosen.tau and row.break_even_tau and chosen.break_even_tau
    tokens = row.tau.value / chosen.tau.value - 1
    cycle = row.break_even_tau / chosen.break_even_tau - 1
    return f"{tokens:+.0%} tokens per cycle for {cycle:+.0%} time per cycle"
