"""Chromium windows for ``load_page.py``: what a person does with the page, again and again.

Knows Playwright and the page's own marks in the document. Each browser is a process of its own.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Error, Page, sync_playwright

from scripts.load_findings import Findings

_LONG_STORY = "Tell me a very long story about a fox, a river and a mountain."
_ARGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
_WAIT_MS = 300_000  # a press waits behind everybody else's
_QUICK_MS = 60_000  # what never waits behind a generation
# Pressed by the browser itself, since a race is over before a driver outside has answered.
_STOP_WHILE_IT_WRITES = """() => {
  if (document.querySelectorAll('.lane-df .tok').length < 20) return false;
  document.querySelector('#stop').click();
  return true;
}"""


def browse(
    url: str,
    number: int,
    prompt: str,
    is_answer: Callable[[dict[str, Any]], bool],
    until_s: float,
    tokens: int,
    findings: Findings,
) -> None:
    """Visit the page again and again; ``is_answer`` tells whether a saved run is the prompt's."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=_ARGS)
        while time.monotonic() < until_s:
            try:
                _visit(browser, url, prompt, is_answer, tokens, findings)
                findings.count("visits of a browser")
            except Error as error:
                findings.fault(f"browser {number}: {' '.join(error.message.split())[:200]}")
        browser.close()


def _visit(
    browser: Browser,
    url: str,
    prompt: str,
    is_answer: Callable[[dict[str, Any]], bool],
    tokens: int,
    findings: Findings,
) -> None:
    """One visit: race, replay, save, share, advice, Stop; the window closes while a race runs."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.set_default_timeout(_QUICK_MS)
    try:
        page = _open(context, url, findings)
        _race(page, prompt, tokens, findings)
        if not is_answer(_saved(page)):
            findings.fault(f"a browser asked {prompt!r} and was shown another run")
        _replay(page, findings)
        _reopen_link(context, page, prompt, findings)
        _advise(page, findings)
        _stop_half_way(page, findings)
        _fill(page, _LONG_STORY, 512)
        _press(page)  # and leaves
    finally:
        context.close()


def _open(context: BrowserContext, url: str, findings: Findings) -> Page:
    """A window whose events are wired: only then has the page said what it advises."""
    page = context.new_page()
    page.on("pageerror", lambda error: findings.fault(f"an error on the page: {error}"))
    with findings.timed("browser: open"):
        page.goto(url)
        page.locator("#stage .lanes").wait_for()
        page.locator("#block .marks-words", has_text="advised").wait_for()
    return page


def _fill(page: Page, prompt: str, tokens: int) -> None:
    page.locator("#prompt textarea").fill(prompt)
    page.get_by_label("Max tokens").fill(str(tokens))
    page.get_by_label("Max tokens").blur()


def _press(page: Page) -> None:
    page.locator("#run:not([disabled])").click()
    page.locator("#stop:not([disabled])").wait_for()


def _race(page: Page, prompt: str, tokens: int, findings: Findings) -> None:
    _fill(page, prompt, tokens)
    before = page.locator(".stage").get_attribute("data-run") or ""
    with findings.timed("browser: press answered"):
        _press(page)
    with findings.timed("browser: race, with its wait"):
        ended = f'.stage[data-state="ended"]:not([data-run="{before}"])'
        page.locator(ended).wait_for(timeout=_WAIT_MS)
        page.locator("#run:not([disabled])").wait_for()
    left, right = page.locator(".lane-text").all_inner_texts()
    if left != right:
        findings.fault(f"a browser asked {prompt!r} and its lanes differ")


def _saved(page: Page) -> dict[str, Any]:
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save run (JSON)").click()
    return json.loads(Path(saved.value.path()).read_text(encoding="utf-8"))


def _replay(page: Page, findings: Findings) -> None:
    words = page.locator(".lane-ar .tok")
    num_words = words.count()
    page.get_by_label("To the start").click()
    page.get_by_label("Play", exact=True).click()
    words.nth(num_words - 1).wait_for(state="attached")
    findings.count("replays")


def _reopen_link(context: BrowserContext, page: Page, prompt: str, findings: Findings) -> None:
    page.get_by_role("button", name="Copy link").click()
    page.locator(".takeaway .said", has_text="link copied").wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    other = _open(context, link, findings)
    field = other.locator("#prompt textarea")
    if field.input_value() != prompt:
        findings.fault(f"a link to {prompt!r} opened with {field.input_value()!r}")
    findings.count("links opened")
    other.close()


def _advise(page: Page, findings: Findings) -> None:
    page.get_by_role("tab", name="Advisor", exact=True).click()
    with findings.timed("browser: advice"):
        page.locator("#advise").click()
        page.locator("#verdict strong").wait_for()
    page.get_by_role("tab", name="Playground", exact=True).click()


def _stop_half_way(page: Page, findings: Findings) -> None:
    _fill(page, _LONG_STORY, 512)
    _press(page)
    page.wait_for_function(_STOP_WHILE_IT_WRITES, polling=20, timeout=_WAIT_MS)
    with findings.timed("browser: stop"):
        page.locator("#run:not([disabled])").wait_for()
    stopped = "stopped half way" in page.locator("#status").inner_text()
    findings.count("stopped half way" if stopped else "stopped after the end")
