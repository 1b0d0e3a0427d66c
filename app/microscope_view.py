"""The divergence microscope as markup: the two tokens, both lists of candidates, the verdict."""

from __future__ import annotations

import math
from html import escape

from app import view
from app.headline import is_sampled, lossless_words
from app.runs import Run
from dflash.close_look import TIE_MARGIN, Candidate, Divergence
from dflash.engines.served_parting import ServedCandidate, ServedDivergence

_CONTEXT_TOKENS = 12


def microscope(run: Run, look: Divergence) -> str:
    """What the second look at the first differing token found."""
    before = "".join(
        run.word(i)
        for i in run.baseline.output_ids[max(0, look.index - _CONTEXT_TOKENS) : look.index]
    )
    return (
        f'<section class="microscope"><h2>Where the texts part: token {look.index + 1}</h2>'
        f"<p>After <code>…{escape(before)}</code> one lane wrote "
        f"<code>{_shown(run, look.baseline_id)}</code>, DFlash "
        f"<code>{_shown(run, look.dflash_id)}</code>.</p>"
        f"{_judged(look)}"
        f'<div class="two">{_candidates(run, "Autoregressive path", look.baseline)}'
        f"{_candidates(run, 'DFlash path', look.dflash)}</div></section>"
    )


def served_microscope(look: ServedDivergence) -> str:
    """The same of two servers, which tell tokens by their text and odds as logprobs."""
    sides = (("Autoregressive server", look.baseline), ("DFlash server", look.dflash))
    return (
        f'<section class="microscope"><h2>Where the texts part: token {look.index + 1}</h2>'
        "<p>Asked again with logprobs, one server wrote "
        f"<code>{escape(_visible(look.baseline_text))}</code>, the DFlash server "
        f"<code>{escape(_visible(look.dflash_text))}</code>.</p>{_judged(look)}"
        f'<div class="two">{"".join(_served_candidates(*side) for side in sides)}</div></section>'
    )


def no_served_difference(run: Run) -> str:
    """What to say when two servers asked again show no difference."""
    if run.comparison.outputs_match:
        return _note(
            "The two texts are the same, and so are the servers' answers when asked again with "
            "logprobs, as far as they give any."
        )
    return _note(
        "Asked again with logprobs, the two servers show no token at which they part: their "
        "answers are the same this time, or they give no logprobs."
    )


def no_difference(run: Run) -> str:
    """What to say when there is nothing to look at."""
    if is_sampled(run):
        return _note(
            "At a temperature above 0 both lanes draw at random, each draw from the target's own "
            "odds: the texts differ, their distribution does not."
        )
    if run.comparison.outputs_match:
        return _note("The two texts are the same, so there is no place to look at.")
    return _note(f"There are no two tokens to look at ({lossless_words(run, run.comparison)}).")


def _note(text: str) -> str:
    return f'<p class="caption">{escape(text)}</p>'


def _judged(look: Divergence | ServedDivergence) -> str:
    tone, mark = ("warn", "≈") if look.verdict == "tie" else ("bad", "✕")
    return (
        f'<p class="verdict-{tone}"><b><span aria-hidden="true">{mark}</span> '
        f"{escape(_verdict(look))}</b></p>"
    )


def _verdict(look: Divergence | ServedDivergence) -> str:
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


def _served_candidates(title: str, candidates: tuple[ServedCandidate, ...]) -> str:
    rows = [
        (_visible(c.text), f"{c.logprob:.4f}", view.percent(math.exp(min(c.logprob, 0))))
        for c in candidates
    ]
    return f"<div><h3>{title}</h3>{view.table(('token', 'logprob', 'odds'), rows, title)}</div>"


def _shown(run: Run, token_id: int) -> str:
    return escape(_visible(run.word(token_id)))


def _visible(text: str) -> str:
    return text.replace(" ", "␣").replace("\n", "↵") or "…"
