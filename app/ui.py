"""The page: its tabs in order and what belongs to no tab. Knows layout; computes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from app import wiring
from app.advice_wiring import wire_advisor, wire_beside
from app.api import Blocks, add_endpoints
from app.footer import footer
from app.handlers import PlaygroundHandlers
from app.health import Health
from app.hosted import HOME, Limits
from app.open_pair import open_pair, opening_within
from app.playground_wiring import wire_playground
from app.session import EnginePool, PairChoice, Report, Sessions
from app.sweep_wiring import wire_benchmark
from app.tabs.advisor import build_advisor
from app.tabs.benchmark import build_benchmark
from app.tabs.learn import build_learn
from app.tabs.playground import build_playground
from app.zerogpu import lend
from dflash.device import detect
from dflash.engines import Engine

CSS = Path(__file__).parent / "style.css"
_HEADER = """<header class="page-head"><h1>DFlash Playground</h1>
<p>The same model, the same answer: left one token at a time, right a block at a time.</p>
</header>"""
_CACHE_S = (1800, 86_400)  # every half hour, uploads and exports older than a day are removed
_SHORTCUTS = """() => {
  document.addEventListener('keydown', (e) => {
    const press = (id) => { // not from another tab, where nobody would see what it did
      const button = document.getElementById(id);
      if (button?.offsetParent) button.click();
    };
    if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) { e.preventDefault(); press('run'); }
    if (e.key === 'Escape') press('stop');
  });
}"""


@dataclass(frozen=True, slots=True)
class Page:
    """The page and what is served beside it."""

    demo: gr.Blocks
    health: Health


def build_demo(opener: Callable[[PairChoice, Report], Engine] = open_pair) -> gr.Blocks:
    """Build the page alone, without limits."""
    return build_page(opener).demo


def build_page(
    opener: Callable[[PairChoice, Report], Engine] = open_pair,
    limits: Limits = HOME,
    spaces: Any | None = None,  # the package of that name, where a GPU is lent per call
) -> Page:
    """Build the whole page; ``opener`` opens pairs later.

    Opens no model and imports no torch, but where a GPU is lent every served pair is opened now.
    """
    pool, sessions = EnginePool(opening_within(limits, opener)), Sessions()
    lent = lend(spaces, pool, limits.pair_ids or ()) if spaces else None
    handlers = PlaygroundHandlers(pool, sessions, lambda: detect().title, limits, lent)
    with Blocks(title="DFlash Playground", fill_width=True, delete_cache=_CACHE_S) as demo:
        gr.HTML(_HEADER, apply_default_css=False)
        with gr.Tabs(elem_id="tabs", overflow_behavior="wrap") as tabs:
            with gr.Tab("Playground", id="playground"):
                playground = build_playground(limits)
            with gr.Tab("Advisor", id="advisor-tab"):
                advisor = build_advisor(limits)
            with gr.Tab("Benchmark", id="benchmark-tab") as benchmark_tab:
                benchmark = build_benchmark(limits)
            with gr.Tab("Learn", id="learn"):
                formula = build_learn()
        gr.HTML(footer(limits, detect().title), apply_default_css=False)
        wire_playground(demo, playground, formula, handlers)
        wire_advisor(advisor, playground.block, tabs, limits)
        wire_beside(demo, playground, pool, limits)
        wire_benchmark(benchmark, pool, sessions, benchmark_tab, limits)
        add_endpoints(limits)
        demo.load(None, js=_SHORTCUTS, api_visibility="private")
        _forget_closed_windows(demo, sessions)
    return Page(demo, Health(pool, sessions))


def _forget_closed_windows(demo: gr.Blocks, sessions: Sessions) -> None:
    def on_unload(request: gr.Request) -> None:
        sessions.drop(wiring.session_id(request))

    demo.unload(on_unload)
