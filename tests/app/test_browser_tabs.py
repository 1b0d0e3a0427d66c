"""In Chromium: the drawing of the Learn tab, wide and on a phone; and that refusals are seen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from app.theme import build_theme
from app.ui import CSS, build_demo

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
pytestmark = pytest.mark.browser
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
if CHROMIUM is None:
    pytest.skip("no Chromium here", allow_module_level=True)

SERIOUS = ("serious", "critical")
# Left and right edge of what is drawn, and whether the words fit into it.
EDGES = """(found) => found.map((e) => {
  const box = e.getBoundingClientRect();
  return [e.innerText.trim(), box.left, box.right, e.scrollWidth <= e.clientWidth];
})"""


# Style, width and colour of the bracket that stands over or under a label.
BRACKETS = """(found) => found.map((e) => ['::before', '::after']
  .map((part) => getComputedStyle(e, part)).filter((style) => style.content !== 'none')
  .map((s) => `${s.borderLeftStyle} ${s.borderLeftWidth} ${s.borderLeftColor}`).join())"""


@pytest.fixture(scope="module")
def site(counting_engine) -> Iterator[str]:
    demo = build_demo(lambda choice, report: counting_engine())
    demo.queue()
    _, url, _ = demo.launch(
        prevent_thread_lock=True, quiet=True, theme=build_theme(), css_paths=CSS
    )
    yield url
    demo.close()


@pytest.fixture
def open_tab(site):
    """Opens a tab of the page in a window of some width."""
    with playwright.sync_playwright() as driver:
        args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=args)

        def build(name: str, width: int):
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.set_default_timeout(60_000)
            page.goto(site)
            page.get_by_role("tab", name=name, exact=True).click()
            return page

        yield build
        browser.close()


@pytest.mark.parametrize("width", [390, 1440])
def test_the_drawing_of_a_cycle_is_numbered_like_the_text_and_each_step_spans_its_slots(
    open_tab, width
):
    page = open_tab("Learn", width)
    page.locator(".cycle").wait_for()
    text = page.locator(".steps b").all_inner_texts()
    labels = page.locator(".cycle .step").evaluate_all(EDGES)
    said = [" ".join(label[0].split()) for label in labels]
    assert said == [f"{n} {name.rstrip('.')}" for n, name in enumerate(text, start=1)]
    slots = page.locator(".cycle .slot").evaluate_all(EDGES)
    spans = {"Check": (0, 5), "Draft": (1, 5), "Start": (0, 0), "Keep": (1, 3), "Bonus": (4, 4)}
    for words, (_, left, right, fits) in zip(said, labels, strict=True):
        first, last = spans[words.split()[1]]
        assert left == pytest.approx(slots[first][1], abs=1), words
        assert right == pytest.approx(slots[last][2], abs=1), words
        assert fits, words
    assert all(fits for *_, fits in slots)
    brackets = page.locator(".cycle .step").evaluate_all(BRACKETS)
    assert len(set(brackets)) == 5 and all(" 2px " in bracket for bracket in brackets)


def test_the_drawing_of_a_cycle_adds_nothing_to_what_a_screen_reader_reads(open_tab):
    page = open_tab("Learn", 1440)
    heard = page.locator("#learn section").first.aria_snapshot()
    assert heard.count("Draft.") == 1 and "Check." in heard
    assert "A drawing, not a run" in heard
    assert "cat" not in heard.split()


def test_an_unknown_prompt_length_is_shown_empty_and_a_wrong_one_is_refused_by_value(open_tab):
    page = open_tab("Advisor", 1440)
    length = page.get_by_label("Prompt length, tokens")
    length.wait_for()
    assert length.input_value() == ""
    page.locator("#advise").click()
    page.locator("#advice-results .verdict").wait_for()
    length.fill("long")
    page.locator("#advise").click()
    said = page.locator(".toast-body").inner_text()
    assert "prompt tokens must be a whole number" in said and "'long'" in said


def test_no_cell_of_the_answer_is_cut_off_on_a_phone(open_tab):
    page = open_tab("Advisor", 390)
    page.get_by_label("Target", exact=True).fill("qwen3-8b")
    page.get_by_text("More", exact=True).first.click()
    page.get_by_label("Mode", exact=True).click()
    page.get_by_role("option", name="train a draft").click()
    page.get_by_role("button", name="Guide against evidence").click()
    page.locator("#compared td").first.wait_for()
    cells = page.locator("#advice-results :is(th, td)").evaluate_all(EDGES)
    assert [words for words, _, right, _ in cells if right > 390] == []
    assert sum("Eq. 4" in words for words, *_ in cells) == 1


@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_no_serious_fault_in_an_answer_of_the_advisor(open_tab, width):
    page = open_tab("Advisor", width)
    page.get_by_label("Target", exact=True).fill("qwen3-8b")
    page.get_by_role("button", name="Guide against evidence").click()
    page.locator("#compared td").first.wait_for()
    page.locator(".cm-line", has_text="speculative-config").first.wait_for()
    found = axe.Axe().run(page).response["violations"]
    faults = [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in SERIOUS]
    assert faults == []
    assert page.locator("#advice-results .cm-editor").bounding_box()["height"] < 200


def test_a_file_that_is_no_run_is_refused_in_sight(open_tab, tmp_path):
    page = open_tab("Playground", 1440)
    path = tmp_path / "run.json"
    path.write_text("no run")
    page.locator("#replays input[type=file]").set_input_files(path)
    assert "JSON" in page.locator(".toast-body").inner_text()
