"""Start the page: ``python app.py``, or ``gradio app.py`` while working on it."""

from __future__ import annotations

import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

from app.theme import build_theme
from app.ui import CSS, build_demo

demo = build_demo()
demo.queue(max_size=64)

if __name__ == "__main__":
    demo.launch(theme=build_theme(), css_paths=CSS, mcp_server=True)
