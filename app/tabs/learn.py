"""The Learn tab: what DFlash does, when it pays, and every word explained. Layout only."""

from __future__ import annotations

from html import escape

import gradio as gr

from app import formula, view

_STEPS = (
    ("Start", "The last token both agree on is the anchor. It opens the block."),
    (
        "Draft",
        "A small model fills every empty slot of the block at once, in one pass. It reads the "
        "large model's own inner states, so it knows what that model was about to say.",
    ),
    ("Check", "The large model (the target) reads the whole block in one pass."),
    (
        "Keep",
        "Guesses are kept up to the first one the target would not have written itself.",
    ),
    (
        "Bonus",
        "At that place the target's own token is taken. So every pass gives at least one token, "
        "and the text is the target's own, token for token.",
    ),
)
_LINKS = (
    ("DFlash, the paper (arXiv 2602.06036)", "https://arxiv.org/abs/2602.06036"),
    ("DFlash, the authors' code", "https://github.com/z-lab/dflash"),
    ("Published drafts", "https://huggingface.co/z-lab"),
)


def build_learn() -> gr.HTML:
    """Lay the tab out; the component returned is the formula, refilled after every run."""
    with gr.Column(elem_id="learn"):
        gr.HTML(_picture(), apply_default_css=False)
        filled = gr.HTML(formula.formula_block(None), apply_default_css=False)
        gr.HTML(_when_not() + _glossary() + _links(), apply_default_css=False)
    return filled


def _picture() -> str:
    """The numbered text, and a drawing whose labels are numbered and named from that text."""
    slots = (
        ("anc", "the"), ("acc", "cat"), ("acc", "sat"), ("acc", "on"), ("rej", "a"), ("unj", "mat"),
    )  # fmt: skip
    cells = "".join(
        f'<span class="slot s-{kind}"><span class="slot-main">{word}</span>'
        + ('<span class="slot-under">the</span>' if kind == "rej" else "")
        + "</span>"
        for kind, word in slots
    )
    labels = "".join(
        f'<span class="step step-{name.lower()}"><i>{number}</i> {name}</span>'
        for number, (name, _) in enumerate(_STEPS, start=1)
    )
    steps = "".join(f"<li><b>{name}.</b> {escape(text)}</li>" for name, text in _STEPS)
    return (
        "<section><h2>A block, from left to right</h2>"
        f'<div class="cycle" aria-hidden="true">{cells}{labels}</div>'
        '<p class="caption">A drawing, not a run: three guesses kept, the fourth replaced by the '
        "target's own word, the fifth never judged. Four tokens for one pass.</p>"
        f'<ol class="steps">{steps}</ol></section>'
    )


def _when_not() -> str:
    reasons = (
        "The text is hard to foresee (free stories, another language than the draft knows): few "
        "guesses are kept, and a cycle costs more than a step.",
        "The machine is busy with many requests at once: checking a block is then no longer "
        "nearly free.",
        "The model is so small that drafting costs as much as just writing.",
        "The draft was trained for another model, another chat template or the other thinking "
        "mode: everything still works, but hardly a guess is kept.",
    )
    items = "".join(f"<li>{escape(reason)}</li>" for reason in reasons)
    return f"<section><h2>When it does not pay</h2><ul>{items}</ul></section>"


def _glossary() -> str:
    rows = "".join(
        f"<dt>{escape(word)}</dt><dd>{escape(text)}</dd>" for word, text in view.TERMS.items()
    )
    return f"<section><h2>Words</h2><dl class='glossary'>{rows}</dl></section>"


def _links() -> str:
    items = "".join(
        f'<li><a href="{url}" target="_blank" rel="noopener">{escape(name)}</a></li>'
        for name, url in _LINKS
    )
    return f"<section><h2>Read more</h2><ul>{items}</ul></section>"
