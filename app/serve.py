"""Serving the page until it is interrupted, also where the first page is slow to come."""

from __future__ import annotations

import logging
from typing import Any

import gradio as gr

_LOG = logging.getLogger(__name__)


def serve(demo: gr.Blocks, **options: Any) -> None:
    """Launch with Gradio's own ``options`` and stay until interrupted.

    Gradio gives up when its first look at the page takes over three seconds. On a busy machine that
    page is only late: the server is up and has answered once already, so it is kept.
    """
    try:
        demo.launch(**options)
    except ValueError:
        if not demo.is_running:
            raise
        _LOG.warning("%s is up; its first page is slow to come", demo.local_url)
        demo.block_thread()
