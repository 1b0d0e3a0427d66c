"""Serving where the first page is slow to come."""

from __future__ import annotations

import gradio as gr
import httpx
import pytest
from gradio import networking

from app.serve import serve


@pytest.fixture
def demo(monkeypatch):
    """A page that Gradio's own look at it misses; serving ends as soon as it would wait."""
    monkeypatch.setattr(networking, "url_ok", lambda url: False)
    with gr.Blocks() as demo:
        gr.Markdown("here")
    yield demo
    demo.close()


def test_a_page_whose_first_look_comes_too_late_is_served_all_the_same(demo, monkeypatch):
    served = []
    monkeypatch.setattr(
        demo, "block_thread", lambda: served.append(httpx.get(demo.local_url).status_code)
    )
    serve(demo, quiet=True)
    assert served == [200]


def test_options_that_gradio_refuses_before_it_serves_are_still_an_error(demo):
    with pytest.raises(ValueError, match="allowed_paths"):
        serve(demo, quiet=True, allowed_paths="not a list")
