"""What changes on the page when servers are chosen, and asking them. Knows Gradio and handlers."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app import pair_card, wiring
from app.form import OWN_PAIR
from app.handlers import PlaygroundHandlers
from app.served import SERVED, ServerForm
from app.server_card import server_card
from app.session import PairChoice
from app.tabs.playground import LOOK_HERE, LOOK_SERVED, RUN_HERE, RUN_SERVED, Playground

_PRIVATE: dict[str, Any] = {"api_visibility": "private"}


def wire_servers(page: Playground, handlers: PlaygroundHandlers) -> None:
    """Connect the engine choice and the button that asks the servers."""

    def on_engine(engine: str, pair_id: str) -> list[Any]:
        served = engine == SERVED
        card = (
            server_card(None)
            if served
            else pair_card.pair_card(pair_id, handlers.pool.peek(PairChoice(pair_id)))
        )
        # Hidden, not removed: the slider's own marks would not come back.
        here_only = gr.update(visible="hidden" if served else True)
        run, look = (RUN_SERVED, LOOK_SERVED) if served else (RUN_HERE, LOOK_HERE)
        return [
            card,
            gr.update(visible=served),
            gr.update(visible=served),
            gr.update(visible=not served),
            gr.update(visible=not served and pair_id == OWN_PAIR),
            here_only,
            here_only,
            gr.update(value=run),
            gr.update(value=look),
            gr.update(open=served),
        ]

    def on_ask(*values: Any) -> list[Any]:
        shown = handlers.on_ask(ServerForm(*values))
        return [wiring.or_skip(shown.status), wiring.or_skip(shown.pair_card)]

    servers = page.servers
    changed = [
        page.pair_card, servers.part, servers.ask, page.pair, page.own, page.local_settings,
        page.what_if_part, page.run, page.look_closer, page.more,
    ]  # fmt: skip
    servers.engine.change(
        on_engine,
        [servers.engine, page.pair],
        changed,
        queue=False,
        show_progress="hidden",
        **_PRIVATE,
    )
    servers.ask.click(
        on_ask,
        servers.form,
        [page.status, page.pair_card],
        show_progress_on=page.pair_card,
        show_progress="minimal",
        **_PRIVATE,
    )
