"""Serving the page until it is interrupted, also where the first page is slow to come."""

from __future__ import annotations

import logging
from typing import Any

import gradio as gr

_LOG = logging.getLogger(__name__)
# Gradio keeps what a window was last shown (about 1 MB here) until this many newer ones have come,
# long after it was closed; by itself it keeps 10,000.
_MAX_WINDOWS = 200


def serve(demo: gr.Blocks, **options: Any) -> None:
    """Launch with Gradio's own ``options`` and stay until interrupted.

    Gradio gives up when its first look at the page takes over three seconds. On a busy machine that
    page is only late: the server is up and has answered once already, so it is kept.
    """
    try:
        demo.launch(state_session_capacity=_MAX_WINDOWS, **options)
    except ValueError:
        if not demo.is_running:
            raise
        _LOG.warning("%s is up; its first page is slow to come", demo.local_url)
        demo.block_thread()
