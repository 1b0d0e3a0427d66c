"""Log lines, the health endpoint, and versions on the page and in every export."""

from __future__ import annotations

import io
import json
import logging
import re
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from advisor.exports import yaml_file
from app import logs
from app.advice_form import AdviceForm, ask
from app.card import html_card
from app.footer import footer, versions
from app.form import PlaygroundForm
from app.handlers import PlaygroundHandlers
from app.hosted import HOME, limits_from
from app.runs import dump_run
from app.session import EnginePool, Sessions
from app.ui import build_page
from dflash import __version__

ROOT = Path(__file__).resolve().parents[2]
FORM = PlaygroundForm("demo", "", "", "a very private prompt", 8, 32, 0.0, 0, 0, 1.0, False)


@pytest.fixture
def lines():
    """Configured logging, as parsed lines; the root logger is left as it was."""
    stream = io.StringIO()
    root, before = logging.getLogger(), logging.getLogger("app").level
    logs.configure("info", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    for handler in [h for h in root.handlers if isinstance(h.formatter, logs.JsonLines)]:
        root.removeHandler(handler)
    logging.getLogger("app").setLevel(before)


@pytest.fixture
def handlers(counting_engine):
    pool = EnginePool(lambda choice, report: counting_engine())
    return PlaygroundHandlers(pool, Sessions(), lambda: "here", limits_from({"SPACE_ID": "a/b"}))


def test_a_run_leaves_two_lines_with_its_own_id_and_without_its_prompt(lines, handlers):
    list(handlers.on_run(FORM, "visitor"))
    run = handlers.sessions.of("visitor").run
    started, ended = (line for line in lines() if line["event"].startswith("run"))
    assert started["request_id"] == ended["request_id"] == run.id
    assert (started["event"], ended["event"]) == ("run started", "run ended")
    assert ended["speedup"] == run.comparison.speedup and ended["is_stopped"] is False
    assert started["num_prompt_chars"] == len(FORM.prompt)
    assert "private" not in json.dumps(lines())


def test_the_log_claims_no_speedup_of_a_race_in_which_a_lane_broke(lines, counting_engine):
    pool = EnginePool(lambda choice, report: counting_engine(fails_after={1: 20}))
    list(PlaygroundHandlers(pool, Sessions(), lambda: "here").on_run(FORM, "visitor"))
    (ended,) = (line for line in lines() if line["event"] == "run ended")
    assert (ended["speedup"], ended["num_failed_lanes"]) == (None, 1)


def test_a_refusal_is_logged_with_its_reason_and_an_id(lines, handlers):
    list(handlers.on_run(replace(FORM, max_new_tokens=9999), "visitor"))
    (line,) = [line for line in lines() if line["event"] == "run refused"]
    assert line["level"] == "warning" and "9999" in line["reason"] and line["request_id"]


def test_two_presses_have_two_ids(lines, handlers):
    for _ in range(2):
        list(handlers.on_run(FORM, "visitor"))
    assert len({line["request_id"] for line in lines()}) == 2


def test_a_line_break_cannot_forge_a_second_line_and_a_traceback_stays_in_one(lines):
    log = logging.getLogger("app.test")
    try:
        raise ValueError('x\n{"event": "forged"}')
    except ValueError:
        log.exception('y\n{"event": "forged"}')
    (line,) = lines()
    assert "ValueError" in line["traceback"]


def test_below_the_level_nothing_is_written(lines):
    logging.getLogger("app.test").debug("too much")
    logging.getLogger("somebody.else").info("not ours")
    assert lines() == []
    logs.configure("debug", io.StringIO())
    assert logging.getLogger("app").level == logging.DEBUG


def test_the_command_line_takes_a_level(lines, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["app.py", "--log-level", "loud"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "app.py"), run_name="__main__")
    said = capsys.readouterr().err
    assert ended.value.code == 2 and "--log-level" in said and "'debug'" in said


def test_the_health_endpoint_answers_also_while_the_device_is_held(counting_engine):
    page = build_page(lambda choice, report: counting_engine())
    _, url, _ = page.demo.launch(
        prevent_thread_lock=True, quiet=True, app_kwargs={"routes": [page.health.route()]}
    )
    try:
        state = httpx.get(f"{url}healthz").json()
        assert state["status"] == "ok" and state["device_is_busy"] is False
        assert state["versions"]["dflash-playground"] == __version__
        assert f"DFlash Playground {__version__}" in httpx.get(url).text
    finally:
        page.demo.close()


def test_the_footer_says_versions_and_machine_and_on_a_public_page_the_limits():
    at_home, public = footer(HOME, "<b>4 cores</b>"), footer(limits_from({"SPACE_ID": "a/b"}), "m")
    for name, version in versions().items():
        assert version in at_home, name
    assert "&lt;b&gt;4 cores" in at_home
    assert "This page is public" in public and "8000 characters" in public
    assert "public" not in at_home


def test_every_export_says_which_version_made_it(handlers):
    list(handlers.on_run(FORM, "visitor"))
    run = handlers.sessions.of("visitor").run
    assert json.loads(dump_run(run))["versions"] == versions()
    assert f"dflash-playground {__version__}" in html_card(run)
    assert f"dflash-playground: {__version__}" in yaml_file.dump(ask(AdviceForm(params="4B")))


def test_the_package_and_the_project_have_the_same_version():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^version = "(.+)"$', text, re.MULTILINE).group(1) == __version__
