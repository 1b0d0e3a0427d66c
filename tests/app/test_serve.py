"""Serving where the first page is slow to come, and where windows come and go."""

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
        demo.load(lambda: "here", None, gr.Markdown(), queue=False)
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


def test_what_closed_windows_were_shown_is_forgotten_when_newer_ones_come(demo, monkeypatch):
    monkeypatch.setattr("app.serve._MAX_WINDOWS", 3)
    kept: list[str] = []

    def windows_come_and_go() -> None:
        for name in "abcde":
            load = {"data": [], "fn_index": 0, "session_hash": name}
            address = f"{demo.local_url}gradio_api/run/predict"
            assert httpx.post(address, json=load).json()["data"] == ["here"]
        kept.extend(demo.app.state_holder.session_data)

    monkeypatch.setattr(demo, "block_thread", windows_come_and_go)
    serve(demo, quiet=True)
    assert kept == ["c", "d", "e"]
