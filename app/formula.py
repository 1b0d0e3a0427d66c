"""The one formula of the page, and the same with a run's numbers in it. Knows runs and words."""

from __future__ import annotations

from app import view
from app.runs import Run
from app.whatif import cycle_cost


def formula_block(run: Run | None) -> str:
    """The formula; ``None`` or a run without cycles leaves the numbers out."""
    numbers = _filled(run) if run else None
    below = numbers or "Run a race in the Playground, and its numbers appear here."
    return (
        "<section class='formula'><h2>Why it is faster, in one line</h2>"
        "<p class='eq'>speedup = T<sub>step</sub> × τ / (T<sub>draft</sub> + T<sub>verify</sub>)"
        f"</p><p>{below}</p></section>"
    )


def _filled(run: Run) -> str | None:
    run = run.counted
    step, cycle = cycle_cost(run.baseline), cycle_cost(run.dflash)
    spec = run.comparison.dflash.spec
    if step is None or cycle is None or spec is None or not spec.tau:
        return None
    speedup, raced = step.total_s * spec.tau / cycle.total_s, run.comparison.speedup
    whole = (
        f" Counting every cycle, the race itself gave {view.factor(raced)}."
        if raced and view.factor(raced) != view.factor(speedup)
        else ""
    )
    return (
        f"{view.badge(run.source, run.where)} {view.milliseconds(step.total_s)} × {spec.tau:.2f} / "
        f"({view.milliseconds(cycle.draft_s)} + {view.milliseconds(cycle.verify_s + cycle.other_s)}"
        f") = <b>{view.factor(speedup)}</b>: one step of the target, times the tokens that a cycle "
        f"gives, over what a cycle costs (medians).{whole}"
    )
