"""The divergence microscope as markup: the two tokens, both lists of candidates, the verdict."""

from __future__ import annotations

from html import escape

from app import view
from app.headline import is_sampled
from app.runs import Run
from dflash.close_look import TIE_MARGIN, Candidate, Divergence

_CONTEXT_TOKENS = 12


def microscope(run: Run, look: Divergence) -> str:
    """What the second look at the first differing token found."""
    before = "".join(
        run.word(i)
        for i in run.baseline.output_ids[max(0, look.index - _CONTEXT_TOKENS) : look.index]
    )
    tie = look.verdict == "tie"
    tone, mark = ("warn", "≈") if tie else ("bad", "✕")
    return (
        f'<section class="microscope"><h2>Where the texts part: token {look.index + 1}</h2>'
        f"<p>After <code>…{escape(before)}</code> one lane wrote "
        f"<code>{_shown(run, look.baseline_id)}</code>, DFlash "
        f"<code>{_shown(run, look.dflash_id)}</code>.</p>"
        f'<p class="verdict-{tone}"><b><span aria-hidden="true">{mark}</span> '
        f"{escape(_verdict(look))}</b></p>"
        f'<div class="two">{_candidates(run, "Autoregressive path", look.baseline)}'
        f"{_candidates(run, 'DFlash path', look.dflash)}</div></section>"
    )


def no_difference(run: Run) -> str:
    """What to say when there is nothing to look at."""
    if is_sampled(run):
        return _note(
            "At a temperature above 0 both lanes draw at random, each draw from the target's own "
            "odds: the texts differ, their distribution does not."
        )
    return _note("The two texts are the same, so there is no place to look at.")


def _note(text: str) -> str:
    return f'<p class="caption">{escape(text)}</p>'


def _verdict(look: Divergence) -> str:
    gap = f"{look.margin:.3g}"
    if look.verdict == "tie":
        return (
            f"A numerical tie: the same two tokens lead in both lanes, {gap} apart in logits "
            f"(up to {TIE_MARGIN} is rounding). Reading one token or a block rounds differently."
        )
    return (
        f"A real fault: this is no rounding (the gap is {gap} in logits). Please report it with "
        "the saved run."
    )


def _candidates(run: Run, title: str, candidates: tuple[Candidate, ...]) -> str:
    rows = [
        (_visible(run.word(c.token_id)), c.token_id, f"{c.logit:.4f}", view.percent(c.probability))
        for c in candidates
    ]
    return f"<div><h3>{title}</h3>{view.table(('token', 'id', 'logit', 'odds'), rows, title)}</div>"


def _shown(run: Run, token_id: int) -> str:
    return escape(_visible(run.word(token_id)))


def _visible(text: str) -> str:
    return text.replace(" ", "␣").replace("\n", "↵") or "…"
