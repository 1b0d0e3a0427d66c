"""A served model raced from the page in Chromium, against servers on real sockets."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
from fake_servers import FakeVllm

from app.runs import Run, dump_run
from app.theme import build_theme
from app.ui import CSS, build_demo
from dflash.schema import Chunk, EngineInfo, Finished, Trace

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
if CHROMIUM is None:
    pytest.skip("no Chromium here", allow_module_level=True)

ARGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
KEY = "key-that-no-browser-may-keep"


@pytest.fixture(scope="module")
def site(counting_engine) -> Iterator[str]:
    demo = build_demo(lambda choice, report: counting_engine())
    demo.queue()
    _, url, _ = demo.launch(
        prevent_thread_lock=True, quiet=True, theme=build_theme(), css_paths=CSS
    )
    yield url
    demo.close()


def test_servers_are_named_asked_and_raced_and_nothing_of_theirs_stays_in_the_browser(site):
    faults: list[str] = []
    with (
        FakeVllm(True, key=KEY) as drafting,
        FakeVllm(False) as plain,
        playwright.sync_playwright() as driver,
    ):
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.set_default_timeout(90_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(site)
        page.locator("#stage .lanes").wait_for()
        page.locator("#engine").get_by_label("a server").check()
        page.get_by_label("DFlash server: URL").fill(drafting.url)
        page.get_by_label("The same target without a draft: URL").fill(plain.url)
        page.get_by_text("keys, if the servers ask for one").click()
        page.get_by_label("Key of the DFlash server").fill(KEY)
        assert page.get_by_label("Key of the DFlash server").get_attribute("type") == "password"
        assert not page.locator("#block").is_visible()
        assert not page.get_by_label("Block size to predict").first.is_visible()
        page.locator("#ask-servers").click()
        page.locator("#pair-card .dot-on").nth(1).wait_for()
        page.locator("#run").click()
        page.locator("#headline", has_text="measured here").wait_for()
        page.wait_for_timeout(1_500)  # what follows a race must not empty the page
        assert "identical text, 40 of 40 tokens" in page.locator("#headline").inner_text()
        left, right = page.locator(".lane-text").all_inner_texts()
        assert left == right and "w40" in left
        assert all("40 tokens" in head for head in page.locator(".lane-meta").all_inner_texts())
        assert page.get_by_role("button", name="Cycles (CSV)").is_disabled()
        assert "no single cycles" in page.locator(".takeaway .said").inner_text()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        stores = "JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])"
        assert KEY not in page.evaluate(stores) and drafting.url not in page.evaluate(stores)
        page.locator("#engine").get_by_label("this machine").check()
        page.locator("#block").wait_for()
        browser.close()
    assert not faults


@pytest.mark.parametrize(
    ("drafting", "plain", "failed"),
    [
        pytest.param({}, {"breaks_after": 2}, 0, id="the plain server breaks off"),
        pytest.param({"breaks_after": 3}, {}, 1, id="the DFlash server breaks off"),
        pytest.param({"drafts": False}, {}, 1, id="no draft is loaded"),
    ],
)
def test_a_race_with_a_lane_that_failed_claims_no_speed_anywhere(site, drafting, plain, failed):
    with (
        FakeVllm(**{"drafts": True, **drafting}) as one,
        FakeVllm(**{"drafts": False, **plain}) as other,
        playwright.sync_playwright() as driver,
    ):
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(90_000)
        page.goto(site)
        page.locator("#stage .lanes").wait_for()
        page.locator("#engine").get_by_label("a server").check()
        page.get_by_label("DFlash server: URL").fill(one.url)
        page.get_by_label("The same target without a draft: URL").fill(other.url)
        page.locator("#run").click()
        page.locator("#headline", has_text="measured here").wait_for()
        page.locator("#kept td").first.wait_for()
        gauges = page.locator(".gauge").all_inner_texts()
        assert gauges[failed] == "failed" and "tok/s" in gauges[1 - failed]
        assert page.locator(".lane-meta").nth(failed).inner_text().count("·") == 0
        assert "lane failed" in page.locator(".gap").inner_text()
        page.get_by_label("To the start").click()
        page.get_by_label("One cycle forward").click()
        assert page.locator(".gap").inner_text() == ""
        shown = page.locator("#headline, #kept tbody, #front-charts").all_inner_texts()
        assert not re.search(r"\d×|✓|identical", "".join(shown))
        assert all("failed" in part for part in shown)
        browser.close()


def test_text_that_came_in_one_burst_is_given_no_pace(site, ask, tmp_path):
    info = EngineInfo("vllm", "0.32", "t", None, "server", "as served", "summary")
    lanes = []
    for block_size, apart_s in ((1, 0.00002), (2, 0.004)):
        chunks = [Chunk(0.1 + n * apart_s, f" w{n}", n) for n in range(1, 41)]
        events = (*chunks, Finished(chunks[-1].t_s, "stop", 40, None))
        lanes.append(Trace(ask(block_size=block_size), info, events))
    saved = tmp_path / "run.json"
    saved.write_text(dump_run(Run("burst", "own", *lanes)), encoding="utf-8")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(90_000)
        page.goto(site)
        page.locator("#stage .lanes").wait_for()
        page.locator("#replays input[type=file]").set_input_files(saved)
        page.locator("#headline", has_text="opened").wait_for()
        page.locator('.stage[data-run="burst"]').wait_for()
        assert page.locator(".gauge").all_inner_texts() == ["", "250 tok/s"]
        assert "40 tokens" in page.locator(".lane-meta").first.inner_text()
        assert "came all at once" in page.locator("#headline").inner_text()
        browser.close()
