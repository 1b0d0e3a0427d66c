"""Numbers and states as words and markup. The only place that formats units.

Knows strings and HTML; knows no Gradio. Everything that came from a model, a file or a user is
escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal, TypeAlias

Badge: TypeAlias = Literal[
    "measured here", "checkpoint", "published", "modelled", "guide", "recorded", "opened"
]
Tone: TypeAlias = Literal["idle", "busy", "good", "warn", "bad"]

_BADGE_HELP = {
    "measured here": "timed on this machine, in this process",
    "calibrated here": "chosen by a calculation from costs measured on this machine; no run with "
    "this setting was timed for it",
    "checkpoint": "read from the model's own files",
    "published": "taken from a publication; the source is linked",
    "modelled": "calculated from measured or published numbers, not measured itself",
    "guide": "a rule of the tuning guide, as written",
    "recorded": "a real run recorded earlier on another machine",
    "opened": "a real run from a file that you opened",
}
_TONE_MARK = {"idle": "○", "busy": "◐", "good": "✓", "warn": "!", "bad": "✕"}

TERMS = {
    "τ": "tokens per cycle: how many tokens one pass of the target yields on average, the "
    "target's own bonus token included. Between 1 and the block size.",
    "block": "how many tokens are looked at in one go: one anchor, already certain, and the "
    "draft's guesses for the places after it",
    "anchor": "the last token that is already certain; every block starts from it",
    "accepted": "a guess of the draft that is exactly the token the target itself chose",
    "bonus": "the target's own token after the accepted ones; it comes free with the check",
    "cycle": "draft one block, check it with one target pass, keep what is right",
    "TTFT": "time to first token: how long reading the prompt takes",
    "break-even": "the tokens per cycle at which DFlash is exactly as fast as one token at a time",
}


def milliseconds(seconds: float | None) -> str:
    """A duration below a few seconds, in ms."""
    if seconds is None:
        return "unknown"
    value = seconds * 1e3
    return f"{value:.1f} ms" if value < 10 else f"{value:,.0f} ms"


def duration(seconds: float | None) -> str:
    """Any duration, in the unit a person would choose."""
    if seconds is None:
        return "unknown"
    if seconds < 1:
        return milliseconds(seconds)
    if seconds < 90:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def rate(tokens_per_s: float | None) -> str:
    """Tokens per second."""
    if tokens_per_s is None:
        return "unknown"
    return f"{tokens_per_s:,.0f} tok/s" if tokens_per_s >= 99.95 else f"{tokens_per_s:.1f} tok/s"


def factor(value: float | None) -> str:
    """A ratio as a multiple."""
    if value is None:
        return "–"
    return f"{value:.1f}×" if value >= 10 else f"{value:.2f}×"


def percent(share: float | None) -> str:
    """A share of one, as whole percent."""
    return "unknown" if share is None else f"{share * 100:.0f} %"


def number(value: float | None, digits: int = 2) -> str:
    """A plain number."""
    return "unknown" if value is None else f"{value:.{digits}f}"


def count(value: int, word: str) -> str:
    """A count with its noun: 1 token, 2 tokens, 1,024 tokens."""
    return f"{value:,} {word}" if value == 1 else f"{value:,} {word}s"


def megabytes(num_bytes: float) -> str:
    """A file size."""
    return f"{num_bytes / 1e6:.0f} MB" if num_bytes >= 1e7 else f"{num_bytes / 1e6:.1f} MB"


def gigabytes(num_bytes: float) -> str:
    """A memory size."""
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else megabytes(num_bytes)


def parameters(value: int | None) -> str:
    """A parameter count: 6.2 M, 134 M, 27 B."""
    if value is None:
        return "unknown size"
    if value >= 1e9:
        return f"{value / 1e9:.3g} B parameters"
    return f"{value / 1e6:.3g} M parameters"


def badge(word: str, detail: str = "") -> str:
    """The provenance mark of a number: same word and shape everywhere, explained on hover."""
    slug = word.replace(" ", "-")
    help_text = _BADGE_HELP.get(word, "") + (f" ({detail})" if detail else "")
    return (
        f'<span class="badge badge-{escape(slug)}" title="{escape(help_text)}">'
        f"{escape(word)}</span>"
    )


def term(word: str, shown: str | None = None) -> str:
    """A technical word that explains itself on hover and focus."""
    return (
        f'<abbr class="term" tabindex="0" title="{escape(TERMS[word])}">'
        f"{escape(shown or word)}</abbr>"
    )


def status_line(tone: Tone, text: str, hint: str = "", extra: str = "") -> str:
    """The state of the page in one sentence. ``extra`` is trusted markup."""
    hint_html = f' <span class="hint">{escape(hint)}</span>' if hint else ""
    return (
        f'<div class="status status-{tone}" role="status">'
        f'<span class="mark" aria-hidden="true">{_TONE_MARK[tone]}</span>'
        f"<span>{escape(_sentence(text))}{hint_html}{extra}</span></div>"
    )


def progress_line(text: str, done: float | None, detail: str = "") -> str:
    """A long step under way. ``done`` is a share of one, ``None`` when unknown."""
    bar = (
        f'<progress max="100" value="{100 * done:.0f}" aria-label="{escape(text)}"></progress>'
        if done is not None
        else f'<progress aria-label="{escape(text)}"></progress>'
    )
    return status_line("busy", text, detail, bar)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], caption: str) -> str:
    """A plain table; every cell is escaped."""
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in headers)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f'<table class="data"><caption class="sr-only">{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def folded(summary: str, body: str) -> str:
    """A part that opens on demand. ``body`` is trusted markup."""
    return (
        f'<details class="fold"><summary>{escape(summary)}</summary>'
        f'<div class="fold-body" tabindex="0">{body}</div></details>'
    )


def _sentence(text: str) -> str:
    """Start with a capital, unless the first word is a name such as block_size."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.rstrip(":,.;").isalpha() else text
