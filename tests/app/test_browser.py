"""The real page in Chromium: what a visitor sees and presses. Skipped where there is no browser."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import struct
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

import pytest
from PIL import Image

from app import recorded
from app.examples import EXAMPLES
from app.pair_card import DEFAULT_PAIR, trained_block
from app.theme import build_theme
from app.ui import CSS, build_demo
from dflash.presets import PRESETS

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
pytestmark = pytest.mark.browser
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
if CHROMIUM is None:
    pytest.skip("no Chromium here", allow_module_level=True)


@pytest.fixture(scope="module")
def site(counting_engine, tmp_path_factory) -> Iterator[str]:
    """The page on a counting engine, with no recorded run to be mistaken for the test's own."""
    patch = pytest.MonkeyPatch()
    patch.setattr(recorded, "TRACES", tmp_path_factory.mktemp("no-traces"))
    recorded.recorded_runs.cache_clear()
    demo = build_demo(lambda choice, report: counting_engine(busy_s=0.004, pattern=(3, 0, 7, 2)))
    demo.queue()
    _, url, _ = demo.launch(
        prevent_thread_lock=True, quiet=True, theme=build_theme(), css_paths=CSS
    )
    yield url
    demo.close()
    patch.undo()
    recorded.recorded_runs.cache_clear()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=args)
        yield browser
        browser.close()


@pytest.fixture
def window(browser, site):
    """Opens windows that fail the test when the page logs an error."""
    contexts, faults = [], []

    def build(path: str = "", **options):
        options.setdefault("viewport", {"width": 1280, "height": 900})
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(site + path)
        page.locator("#run").wait_for(timeout=30_000)
        page.locator("#stage .lanes").wait_for(timeout=30_000)
        return page

    yield build
    for context in contexts:
        context.close()
    assert not faults


@pytest.fixture(scope="module")
def demo_site() -> Iterator[str]:
    """The page as it ships, on the embedded pair."""
    folder = PRESETS / "models" / "demo"
    if not (folder / "target").is_dir() or not (folder / "draft").is_dir():
        pytest.skip("the demo pair is not here")
    demo = build_demo()
    demo.queue()
    _, url, _ = demo.launch(
        prevent_thread_lock=True, quiet=True, theme=build_theme(), css_paths=CSS
    )
    yield url
    demo.close()


def test_the_embedded_pair_races_on_the_page_that_ships(browser, demo_site):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(demo_site)
    page.locator("#stage .lanes").wait_for(timeout=30_000)
    page.wait_for_timeout(2_000)
    fill(page, prompt=EXAMPLES[0].prompt, tokens=96)
    before = page.locator(".stage").get_attribute("data-run") or ""
    page.locator("#run").click()
    page.locator(f'.stage[data-state="ended"]:not([data-run="{before}"])').wait_for(timeout=120_000)
    page.locator("#headline", has_text="measured here").wait_for(timeout=30_000)
    left, right = lane_texts(page)
    assert left == right and "def " in left
    assert re.fullmatch(r"\d+\.\d+×", page.locator(".big-number").inner_text())
    assert "identical text" in page.locator("#headline").inner_text()
    page.locator(".slot.s-acc").first.hover()
    odds = page.locator(".slot-detail", has_text="target probability")
    odds.wait_for(timeout=60_000)  # nobody pressed anything
    assert "in the draft's list" in odds.inner_text()
    page.locator("#look").click()
    page.locator("#look-result", has_text="the same").wait_for(timeout=60_000)
    page.close()


def test_the_slider_says_what_is_advised_and_what_the_draft_was_trained_for(window):
    page = window()
    words = page.locator("#block .marks-words")
    words.filter(has_text="advised").wait_for(timeout=20_000)
    assert re.search(r"advised \d+ \([a-z ]+\)", words.inner_text())
    assert f"trained {trained_block(DEFAULT_PAIR)}" in words.inner_text()
    for kind in ("range", "number"):
        said = page.locator(f"#block input[type={kind}]").get_attribute("aria-describedby")
        assert page.locator(f"#{said}").inner_text() == words.inner_text()
    track = page.locator("#block input[type=range]").bounding_box()
    mark = page.locator("#block .mark-trained.tick").bounding_box()
    assert track["x"] < mark["x"] + mark["width"] / 2 < track["x"] + track["width"] + 1


def fill(page, *, prompt: str = "count", tokens: int = 64) -> None:
    page.locator("#prompt textarea").fill(prompt)
    page.get_by_label("Max tokens").fill(str(tokens))
    page.get_by_label("Max tokens").blur()


def run_to_the_end(page) -> None:
    before = page.locator(".stage").get_attribute("data-run") or ""
    page.locator("#run").click()
    ended = f'.stage[data-state="ended"]:not([data-run="{before}"])'
    page.locator(ended).wait_for(timeout=90_000)
    page.locator("#headline .big-number").wait_for(timeout=20_000)


def lane_texts(page) -> list[str]:
    return page.locator(".lane-text").all_inner_texts()


def test_a_run_fills_both_columns_with_the_same_text_and_shows_a_speedup(window):
    page = window()
    fill(page)
    run_to_the_end(page)
    left, right = lane_texts(page)
    assert "t64" in left and left == right
    assert re.fullmatch(r"\d+\.\d+×", page.locator(".big-number").inner_text())
    assert "identical text, 64 of 64 tokens" in page.locator("#headline").inner_text()
    page.locator("#front-charts .js-plotly-plot").nth(2).wait_for(timeout=20_000)
    assert page.locator("#front-charts .caption").count() == 3


def test_a_press_clears_the_last_answer_before_the_next_one_comes(window):
    page = window()
    fill(page)
    run_to_the_end(page)
    page.evaluate(
        """() => {
          const stage = document.querySelector(".stage");
          const words = stage.querySelector(".lane-df .lane-words");
          window.seen = [];
          new MutationObserver(() => {
            const number = document.querySelector(".big-number");
            window.seen.push([stage.dataset.state, words.textContent.length, Boolean(number)]);
          }).observe(stage, { attributeFilter: ["data-state"] });
        }"""
    )
    run_to_the_end(page)
    seen = page.evaluate("window.seen")
    assert seen[0][:2] == ["waiting", 0]
    assert next(number for state, _, number in seen if state == "running") is False


def test_stop_keeps_what_was_written_and_the_next_run_starts_from_zero(window):
    page = window()
    fill(page, tokens=4000)
    page.locator("#run").click()
    page.locator(".lane-df .tok").nth(40).wait_for(state="attached", timeout=20_000)
    page.locator("#stop").click()
    page.locator("#status", has_text="stopped half way").wait_for(timeout=5_000)
    kept = page.locator(".lane-ar .tok").count()
    assert 0 < kept < 4000
    time.sleep(0.5)
    assert page.locator(".lane-ar .tok").count() == kept
    fill(page, tokens=32)
    run_to_the_end(page)
    assert page.locator(".lane-ar .tok").count() == 32


def test_what_stands_below_a_run_under_way_is_said_to_be_of_the_run_before(window):
    page = window()
    note = page.locator(".of-last")
    fill(page, tokens=4000)
    page.locator("#run").click()
    page.locator('.stage[data-state="running"]').wait_for(timeout=20_000)
    assert not note.first.is_visible()  # no run before: nothing stands below
    page.locator("#stop").click()
    page.locator("#front-charts .caption").first.wait_for(timeout=20_000)
    assert not note.first.is_visible()
    page.locator("#run").click()
    note.first.wait_for(timeout=20_000)
    assert all(note.nth(n).is_visible() for n in range(3))
    faded = "getComputedStyle(document.querySelector('#front-charts .chart')).opacity"
    assert float(page.evaluate(faded)) < 1
    page.locator("#stop").click()
    note.first.wait_for(state="hidden", timeout=20_000)


def test_two_windows_never_see_each_others_text(window):
    first, second = window(), window()
    fill(first, tokens=400)
    fill(second, tokens=24)
    first.locator("#run").click()
    first.locator(".lane-df .tok").nth(5).wait_for(state="attached", timeout=20_000)
    second.locator("#run").click()
    first.locator('.stage[data-state="ended"]').wait_for(timeout=60_000)
    second.locator('.stage[data-state="ended"]').wait_for(timeout=60_000)
    assert first.locator(".lane-ar .tok").count() == 400
    assert second.locator(".lane-ar .tok").count() == 24


def test_replay_scrubs_steps_and_plays(window):
    page = window()
    fill(page)
    run_to_the_end(page)
    page.get_by_label("To the start").click()
    assert page.locator(".lane-df .tok").count() == 0
    page.get_by_label("One cycle forward").click()
    page.get_by_label("One cycle forward").click()
    assert 0 < page.locator(".lane-df .tok").count() < 20
    assert "ahead" in page.locator(".gap").inner_text() or page.locator(".gap").inner_text()
    page.get_by_label("Play", exact=True).click()
    page.locator(".lane-ar .tok").nth(63).wait_for(state="attached", timeout=20_000)
    assert page.locator(".lane-ar .tok").count() == 64


def test_what_if_predicts_and_check_it_shows_the_error(window):
    page = window()
    fill(page)
    run_to_the_end(page)
    page.locator("#what-if input[type=number]").fill("4")
    page.locator("#what-if input[type=number]").press("Enter")
    page.locator("#what-if", has_text="Block 4 would give").wait_for(timeout=10_000)
    page.locator("#check").click()
    page.locator("#what-if", has_text="really gave").wait_for(timeout=30_000)
    assert "predicted were" in page.locator("#what-if").inner_text()


def test_a_link_restores_the_form(window):
    page = window("?v=1&p=hello+%3Cb%3Ethere%3C%2Fb%3E&b=5&n=33&t=0.5&s=9&unknown=1&tp=nonsense")
    page.wait_for_function("document.querySelector('#prompt textarea').value.startsWith('hello')")
    assert page.locator("#prompt textarea").input_value() == "hello <b>there</b>"
    assert page.get_by_label("Max tokens").input_value() == "33"
    assert page.get_by_label("Temperature").input_value() == "0.5"
    assert page.locator("#block input[type=number]").input_value() == "5"


def test_a_link_to_another_pair_keeps_its_own_block(window):
    page = window("?v=1&pair=smollm2-135m&p=hello&b=2")
    page.locator("#pair-card", has_text="SmolLM2").wait_for(timeout=20_000)
    page.locator("#block .marks-words", has_text="trained").wait_for(timeout=20_000)
    slider = page.locator("#block input[type=range]")
    assert slider.input_value() == "2"
    assert slider.get_attribute("max") == str(trained_block("smollm2-135m"))


def test_a_saved_run_opens_again(window, tmp_path):
    page = window()
    fill(page)
    run_to_the_end(page)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save run (JSON)").click()
    path = tmp_path / "run.json"
    saved.value.save_as(path)
    assert json.loads(path.read_text())["format"] == "dflash-race"
    other = window()
    other.locator("#replays input[type=file]").set_input_files(path)
    other.locator("#headline", has_text="opened").wait_for(timeout=20_000)
    assert other.locator(".lane-ar .tok").count() == 64


@pytest.mark.parametrize("kind", ["SVG", "PNG", "HTML", "CSV"])
def test_what_is_taken_away_is_a_whole_file(window, tmp_path, kind):
    page = window()
    fill(page)
    run_to_the_end(page)
    with page.expect_download() as saved:
        page.get_by_role("button", name=f"({kind})").click()
    path = tmp_path / saved.value.suggested_filename
    saved.value.save_as(path)
    assert path.name.startswith("dflash-demo-block") and path.suffix == f".{kind.lower()}"
    content = path.read_bytes()
    if kind == "PNG":
        assert content[:8] == b"\x89PNG\r\n\x1a\n" and content[12:16] == b"IHDR"
        assert struct.unpack(">II", content[16:24]) == (1520, 800)
        with Image.open(path) as picture:
            assert len(picture.convert("RGB").getcolors(2_000_000)) > 20  # drawn, not blank
    elif kind == "SVG":
        assert ElementTree.fromstring(content).tag.endswith("svg")
        assert page.locator(".big-number").inner_text().encode() in content
    elif kind == "HTML":
        assert b"<svg" in content and b"t64" in content
        assert not re.search(rb'(src|href)="', content)  # nothing that has to be fetched
    else:
        lanes = [row["lane"] for row in csv.DictReader(io.StringIO(content.decode()))]
        assert lanes.count("baseline") == 63 and 0 < lanes.count("dflash") < 63


def test_the_page_works_with_the_keyboard_alone(window):
    page = window()
    page.locator("#prompt textarea").focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("count")
    page.keyboard.press("Control+Enter")
    page.locator('.stage[data-state="ended"]').wait_for(timeout=60_000)
    page.locator(".slot[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    assert "position 1" in page.locator(".slot-detail").inner_text()
    page.keyboard.press("ArrowDown")
    assert "Cycle" in page.locator(".slot-detail").inner_text()


def test_the_runs_of_this_browser_are_listed_and_compared(window):
    page = window()
    for tokens in (64, 48):
        fill(page, tokens=tokens)
        run_to_the_end(page)
    boxes = page.locator("#kept input[type=checkbox]")
    boxes.nth(0).check()
    boxes.nth(1).check()
    assert "speedup" in page.locator(".compared").inner_text()


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_nothing_is_wider_than_the_window(window, width):
    page = window(viewport={"width": width, "height": 844})
    fill(page)
    run_to_the_end(page)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def serious_faults(page) -> list[tuple]:
    found = axe.Axe().run(page).response["violations"]
    return [
        (v["id"], v["impact"], [n["html"][:160] for n in v["nodes"][:3]])
        for v in found
        if v["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_fault_on_any_tab(window, theme):
    page = window(f"?__theme={theme}")
    fill(page)
    run_to_the_end(page)
    # Gradio shows a placeholder while its plot code is still loading.
    page.wait_for_function("!document.querySelector('#front-charts [aria-label=\"Empty value\"]')")
    page.wait_for_timeout(1_000)
    faults = {"Playground": serious_faults(page)}
    for name in ("Advisor", "Benchmark", "Learn"):
        page.get_by_role("tab", name=name, exact=True).click()
        page.wait_for_timeout(700)
        faults[name] = serious_faults(page)
    assert not any(faults.values()), faults


def test_markup_in_a_prompt_or_file_is_shown_as_text(window, tmp_path):
    page = window()
    fill(page, prompt="<img src=x onerror=\"document.title='owned'\">")
    run_to_the_end(page)
    assert page.title() == "DFlash Playground"
    assert page.locator("#kept img").count() == 0
