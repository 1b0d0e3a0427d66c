"""The top line while servers are chosen: whether each speculates, and what a race with them shows.

Knows the servers' own words and markup; connects to nothing.
"""

from __future__ import annotations

from html import escape

from dflash.engines.remote import RemoteEngine, ServerState

IN_TURN = (
    "The lanes run one after the other, DFlash first, because both servers may share a device; "
    "each is timed from sending its own request, and the replay shows them side by side."
)
_DOTS = {"good": ("dot-on", "●"), "unknown": ("dot-off", "○"), "bad": ("dot-bad", "✕")}
_LANES = {"dflash": "DFlash", "baseline": "one at a time"}


def server_card(
    engine: RemoteEngine | None, states: tuple[ServerState, ...] = (), *, note: str = ""
) -> str:
    """Both servers' states; ``None`` before anybody asked them."""
    lines = "".join(_line(state) for state in states)
    if not states:
        lines = '<div><span class="dot dot-off">○ not asked yet</span></div>'
    facts = [engine.info.version, engine.info.target_id] if engine else []
    said = [part for part in (note, IN_TURN, engine.no_cycles if engine else "") if part]
    shown = "".join(f"<p>{escape(text)}</p>" for text in said)
    what = f"<p>{escape(' · '.join(facts))}</p>" if facts else ""
    return f'<div class="pair-card servers">{lines}{what}{shown}</div>'


def _line(state: ServerState) -> str:
    css, mark = _DOTS[state.severity]
    return (
        f'<div><span class="dot {css}">{mark} {_LANES[state.lane]}</span>'
        f"<span>{escape(state.sentence)}</span></div>"
    )
