"""A recommendation as markup: verdict, findings, knobs, memory. Knows strings and HTML only.

Everything that came from a config or a user is escaped here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import escape
from typing import Any

from advisor.schema import Estimate, Finding, Knob, Recommendation
from app import view

_VERDICT_WORDS = {"use": "Use it", "try": "Try it", "off": "Leave it off"}
_VERDICT_MARKS = {"use": "✓", "try": "?", "off": "✕"}
_SEVERITY_MARKS = {"error": "✕", "warning": "!", "note": "i"}
_BADGES: dict[str, str] = {"measured": "measured here"}
_CALIBRATED = "calibrated here"  # chosen by computing from what was measured here; no run of it
_FIELDS = {  # whole phrases first, single flags after them
    "a machine (--hardware)": "a machine",
    "(--costs or --hardware)": "(a calibration or a known machine)",
    "(--costs, or --hardware with a known machine)": "(a calibration or a known machine)",
    "name a similar machine with --hardware": "choose a similar machine",
    "(and --hardware for hours)": "(and a machine, for the hours)",
    "python -m dflash.benchmark --calibrate": "Calibrate this machine (Benchmark tab)",
    "python -m dflash.benchmark --tune": "the Benchmark tab",
    "--prompt-tokens": "the prompt length",
    "--target": "the target",
    "--draft": "the draft",
    "--tokenizer": "a tokenizer",
    "--hardware": "a machine",
    "--costs": "a calibration",
    "--tau": "a measured τ",
    "--params": "the parameter count",
}
_COMMAND_TAIL = re.compile(r"(dflash\.benchmark --\w+) --dataset .*")  # ends its sentence
_NAMES = {
    "block_size": "how many tokens are looked at in one go",
    "target_layer_ids": "which target layers the draft reads",
    "sliding_window_size": "how much context the draft keeps",
    "mask_token_id": "the token that marks an empty slot",
}


def verdict(answer: Recommendation) -> str:
    """The verdict in one line, with the figures it rests on."""
    figures = " · ".join(
        part
        for part in (
            _figure("speedup", answer.estimate["speedup"]),
            _figure("τ", answer.estimate["tau"]),
            _figure("break-even τ", answer.break_even_tau),
        )
        if part
    )
    return (
        f'<section class="verdict verdict-{answer.verdict}" aria-label="verdict">'
        f'<span class="mark" aria-hidden="true">{_VERDICT_MARKS[answer.verdict]}</span>'
        f"<div><strong>{_VERDICT_WORDS[answer.verdict]}</strong> "
        f"<span>{escape(in_page_words(answer.headline))}</span>"
        f'<p class="where">{figures}</p></div></section>'
    )


def _figure(name: str, estimate: Estimate) -> str:
    if estimate.value is None:
        return ""
    shown = view.factor(estimate.value) if estimate.unit == "x" else view.number(estimate.value)
    if estimate.low is not None and estimate.high is not None:
        shown += f" ({view.number(estimate.low)} to {view.number(estimate.high)})"
    return f"{name} {shown} {rung_badge(str(estimate.source), estimate.basis)}"


def _rung_word(answer: Recommendation, knob: Knob) -> str | None:
    """A setting's rung in the page's words: "measured here" is kept for what was run here."""
    ran = any(point["source"] == "measured" for point in answer.curve)
    if knob.rung == "measured" and not ran:
        return _CALIBRATED
    return _BADGES.get(knob.rung, knob.rung) if knob.rung else None


def rung_badge(rung: str | None, basis: str = "") -> str:
    """The badge of a rung of evidence; unknown is said, not left blank."""
    if rung is None or rung == "unknown":
        return '<span class="badge badge-unknown">unknown</span>'
    return view.badge(_BADGES.get(rung, rung), basis)


def findings(items: Iterable[Finding]) -> str:
    """Findings, errors first, each with shape, word and fix."""
    rows = "".join(
        f'<li class="finding finding-{f.severity}">'
        f'<span class="mark" aria-hidden="true">{_SEVERITY_MARKS[f.severity]}</span><div>'
        f"<strong>{f.severity}</strong> <code>{escape(f.field)}</code> "
        f"{escape(in_page_words(f.message))}{_hint(f)}</div></li>"
        for f in sorted(items, key=lambda f: list(_SEVERITY_MARKS).index(f.severity))
    )
    return f'<ul class="findings" aria-label="findings">{rows}</ul>' if rows else ""


def _hint(finding: Finding) -> str:
    hint = f'<p class="hint">{escape(in_page_words(finding.hint))}</p>' if finding.hint else ""
    evidence = f'<p class="where">{links(finding.evidence)}</p>' if finding.evidence else ""
    return hint + evidence


def links(text: str) -> str:
    """Escaped text in which https addresses can be followed."""
    words = []
    for word in text.split(" "):
        address = word.strip("();,.")
        if address.startswith("https://"):
            link = (
                f'<a href="{escape(address)}" target="_blank" rel="noopener">{escape(address)}</a>'
            )
            words.append(escape(word).replace(escape(address), link))
        else:
            words.append(escape(word))
    return " ".join(words)


def knobs(answer: Recommendation) -> str:
    """The four knobs as rows: value, rung, what the guide says, why, and every other rung."""
    rows = "".join(
        _knob(name, knob, _rung_word(answer, knob)) for name, knob in answer.knobs.items()
    )
    return (
        '<table class="data knobs"><caption class="sr-only">Recommended settings</caption><thead>'
        '<tr><th scope="col">setting</th><th scope="col">value</th><th scope="col">from</th>'
        '<th scope="col">guide says</th><th scope="col">why</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _knob(name: str, knob: Knob, standing: str | None) -> str:
    lock = "" if knob.tunable else ' <span class="lock">▣ locked: belongs to the checkpoint</span>'
    ladder = "; ".join(f"{rung}: {shown(value)}" for rung, value in knob.rungs.items())
    folded = view.folded("ladder of evidence", escape(ladder)) if ladder else ""
    guide = shown(knob.rungs["guide"]) if "guide" in knob.rungs else "–"
    value = shown(knob.value) if knob.value is not None or knob.rung else "unknown"
    return (
        f'<tr><th scope="row"><code>{escape(name)}</code><small>{_NAMES.get(name, "")}</small></th>'
        f'<td class="value">{escape(value)}{lock}</td><td>{rung_badge(standing)}</td>'
        f"<td>{escape(guide)}</td>"
        f"<td>{links(in_page_words(knob.reason))}{folded}</td></tr>"
    )


def shown(value: Any) -> str:
    """A knob's value for a person; ``None`` is the setting "none", not a missing one."""
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def memory(answer: Recommendation, available_bytes: int | None) -> str:
    """What the pair needs against what the machine has; unknown stays unknown."""
    need = answer.estimate["memory_bytes"]
    if need.value is None:
        return ""
    text = f"{view.gigabytes(need.value)} needed"
    if available_bytes is None:
        return f'<p class="memory">Memory: {text} {rung_badge(str(need.source), need.basis)}</p>'
    share = need.value / available_bytes
    return (
        f'<p class="memory">Memory: {text} of {view.gigabytes(available_bytes)} '
        f'<meter min="0" max="1" high="0.9" value="{min(share, 1):.3f}" '
        f'aria-label="memory needed">{share:.0%}</meter> '
        f"{rung_badge(str(need.source), need.basis)}</p>"
    )


def training(answer: Recommendation) -> str:
    """Train mode: what the draft to be trained would be and cost."""
    if not answer.training:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(name.replace("_", " "))}</th>{_planned(value)}</tr>'
        for name, value in answer.training.items()
    )
    return (
        '<h2>The draft to train</h2><table class="data"><caption class="sr-only">The draft to '
        f"train</caption><tbody>{rows}</tbody></table>"
    )


def _planned(value: Any) -> str:
    """A training figure: its value, where it comes from, and why."""
    figure = value if isinstance(value, dict) else {"value": value}  # as older files have some
    known = figure.get("value")
    number = "unknown" if known is None else f"{known:,.4g} {figure.get('unit', '')}"
    why = in_page_words(str(figure.get("reason") or figure.get("basis") or ""))
    badge = rung_badge(figure.get("rung") or figure.get("source"))
    return f"<td>{escape(number)}</td><td>{badge}</td><td>{links(why)}</td>"


def in_page_words(text: str) -> str:
    """The advisor speaks of its command line; on the page the same things are fields."""
    text = _COMMAND_TAIL.sub(r"\1", text)
    for flag, field in _FIELDS.items():
        text = text.replace(flag, field)
    return text


def against(evidence: Recommendation, guide: Recommendation) -> str:
    """The guide's answer beside the evidence's, setting by setting."""
    rows = [
        (name, shown(guide_says(guide, name)), shown(knob.value), knob.reason)
        for name, knob in evidence.knobs.items()
    ]
    speeds = _speed_at(evidence, guide_says(guide, "block_size"))
    return view.table(("setting", "guide", "evidence", "why"), rows, "Guide against evidence") + (
        f"<p>{escape(speeds)}</p>" if speeds else ""
    )


def guide_says(guide: Recommendation, name: str) -> Any:
    """The guide's own value, also for a knob that belongs to the checkpoint."""
    knob = guide.knobs[name]
    return knob.rungs.get("guide", knob.value)


def _speed_at(evidence: Recommendation, theirs: Any) -> str:
    """What the guide's block size would give on the same predicted curve."""
    curve = {point["block_size"]: point["speedup"] for point in evidence.curve} | {1: 1.0}
    ours = evidence.knobs["block_size"].value
    fast, slow = curve.get(ours), curve.get(theirs)
    if fast is None or slow is None:
        return ""
    return (
        f"On the predicted curve the guide's block size {theirs} gives {view.factor(slow)} and "
        f"{ours} gives {view.factor(fast)}."
    )


def block_marks(answer: Recommendation) -> str:
    """What the block slider's track is marked with, as one JSON for the browser."""
    knob = answer.knobs["block_size"]
    marks = {
        "advised": knob.value,
        "trained": knob.rungs.get("checkpoint"),
        "rung": _rung_word(answer, knob),
    }
    return json.dumps(marks)


def advice_line(answer: Recommendation) -> str:
    """One line for beside the playground's slider: the value, its rung, and why."""
    knob = answer.knobs["block_size"]
    if knob.value is None:
        return (
            f'<p class="advice">No block size is advised: {escape(in_page_words(knob.reason))}</p>'
        )
    return (
        f'<p class="advice">Advised: <strong>{escape(shown(knob.value))}</strong> '
        f"{rung_badge(_rung_word(answer, knob))} {escape(knob.reason)}</p>"
    )
