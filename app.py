"""Start the page: ``python app.py``, or ``gradio app.py`` while working on it."""

from __future__ import annotations

import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

from app.hosted import limits_from
from app.runs import MAX_FILE_BYTES
from app.theme import build_theme
from app.ui import CSS, build_demo
from app.zerogpu import import_spaces

limits = limits_from(os.environ)
demo = build_demo(limits=limits, spaces=import_spaces(os.environ))
demo.queue(max_size=limits.max_waiting)

if __name__ == "__main__":
    demo.launch(theme=build_theme(), css_paths=CSS, mcp_server=True, max_file_size=MAX_FILE_BYTES)
