"""Start the page: ``python app.py``, or ``gradio app.py`` while working on it."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

from app import logs
from app.api import refuse_names
from app.hosted import limits_from
from app.runs import MAX_FILE_BYTES
from app.serve import serve
from app.theme import build_theme
from app.ui import CSS, build_page
from app.zerogpu import import_spaces

logs.configure(os.environ.get("DFLASH_LOG_LEVEL", logs.DEFAULT_LEVEL))
limits = limits_from(os.environ)
page = build_page(limits=limits, spaces=import_spaces(os.environ))
demo = page.demo
demo.queue(max_size=limits.max_waiting)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The DFlash Playground as a page")
    parser.add_argument("--log-level", choices=logs.LEVELS, help="default: info")
    options = parser.parse_args()
    if options.log_level:
        logs.configure(options.log_level)
    serve(
        demo,
        theme=build_theme(),
        css_paths=CSS,
        mcp_server=True,
        max_file_size=MAX_FILE_BYTES,
        app_kwargs={
            "routes": [page.health.route()],
            "exception_handlers": {TypeError: refuse_names},
        },
    )
