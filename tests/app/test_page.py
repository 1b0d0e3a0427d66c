"""The page as Gradio serves it: light to build, private plumbing, nothing fetched from elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from gradio_client import Client

from app.theme import build_theme
from app.ui import CSS, build_demo

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def served(counting_engine):
    demo = build_demo(lambda choice, report: counting_engine())
    demo.queue()
    _, url, _ = demo.launch(
        prevent_thread_lock=True, quiet=True, theme=build_theme(), css_paths=CSS
    )
    yield url
    demo.close()


def test_building_the_page_imports_neither_torch_nor_transformers():
    code = (
        "import sys, app.ui\n"
        "app.ui.build_demo()\n"
        "heavy = {'torch', 'transformers', 'mlx'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=120)


def test_the_module_level_demo_exists_for_a_space():
    code = "import importlib.util as u; s = u.spec_from_file_location('page', 'app.py'); m = u.module_from_spec(s); s.loader.exec_module(m); assert m.demo"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=120)


def test_the_plumbing_is_private(served):
    api = Client(served, verbose=False).view_api(return_format="dict", print_info=False)
    assert all(name in ("/check", "/recommend", "/export") for name in api["named_endpoints"])
    assert api["unnamed_endpoints"] == {}


def test_the_page_is_served_and_names_no_font_or_script_of_another_host(served):
    page = httpx.get(served).text
    assert "DFlash Playground" in page
    theme = httpx.get(f"{served.rstrip('/')}/theme.css").text
    assert "fonts.googleapis.com" not in theme
