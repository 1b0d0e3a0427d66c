"""Served targets on the page: the same race, with what servers tell and no more than that."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from dataclasses import replace

import pytest
from fake_servers import FakeVllm

from app.card import html_card
from app.form import PlaygroundForm
from app.handlers import PlaygroundHandlers
from app.hosted import HOME, Limits, limits_from
from app.open_pair import opening_within
from app.runs import dump_run, load_run
from app.served import HERE, SERVED, ServerForm
from app.session import EnginePool, PairChoice, ServerChoice, Sessions
from dflash.errors import DFlashError

FORM = PlaygroundForm("demo", "", "", "count for me", 16, 64, 0.0, 0, 0, 1.0, True)
KEY, OTHER_KEY = "key-of-the-first-server-0123", "key-of-the-other-server-4567"


def named(url: str, baseline_url: str = "", **changes: str) -> ServerForm:
    form = ServerForm(SERVED, "vllm", url, baseline_url, "", "", "")
    return replace(form, **changes)


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return f"http://127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def page(counting_engine):
    def build(limits: Limits = HOME) -> PlaygroundHandlers:
        opener = opening_within(limits, lambda choice, report: counting_engine())
        return PlaygroundHandlers(EnginePool(opener), Sessions(), lambda: "here", limits)

    return build


@pytest.fixture
def servers():
    """Makes a DFlash server and a plain one; both note what they are asked in ``order``."""
    opened: list[FakeVllm] = []

    def build(plain: dict | None = None, **drafting) -> tuple[FakeVllm, FakeVllm]:
        order: list[str] = []
        pair = (
            FakeVllm(**{"drafts": True, "order": order, **drafting}),
            FakeVllm(**{"drafts": False, "order": order, **(plain or {})}),
        )
        opened.extend(one.__enter__() for one in pair)
        return pair

    yield build
    for one in opened:
        one.__exit__()


def raced(handlers: PlaygroundHandlers, form: ServerForm, local: PlaygroundForm = FORM) -> list:
    return list(handlers.on_run(local, "a", form))


def claims_no_speed(last, session) -> None:
    """Nowhere on the page is one lane held against the other."""
    row, taken = json.loads(last.kept), json.loads(last.takeaway)
    said = [last.headline, taken["svg"], taken["html"], last.what_if.text, last.formula]
    said += [chart.caption for chart in last.charts] + [session.stage_text.splitlines()[-1]]
    assert row["speedup"] is None and row["end_to_end"] is None
    assert not any(re.search(r"\d×|✓|identical", text) for text in said)
    drawn = {chart.title: chart.figure for chart in last.charts}
    assert drawn["Speedup as the answer grows"] is None
    assert len(drawn["Tokens over time"].data) == 1
    assert "failed" in (row["dflash_tps"], row["baseline_tps"]) and ">failed" in last.headline


def test_two_servers_race_and_the_page_says_what_they_told(page, servers):
    drafting, plain = servers()
    handlers = page()
    views = raced(handlers, named(drafting.url, plain.url))
    last, run = views[-1], handlers.sessions.of("a").run
    assert "both lanes wrote the same text" in last.status and last.running is False
    assert "identical text, 40 of 40 tokens" in last.headline
    assert "4.00 <small>of 4</small>" in last.headline  # the server's own block, not the form's
    assert "tiny-27b (vllm)" in last.headline and "block 16" not in last.headline
    assert run.comparison.speedup > 1
    charts = {chart.title: chart for chart in last.charts}
    assert charts["Acceptance by position"].figure and charts["Tokens over time"].figure
    assert "not single cycles" in charts["Where blocks end"].caption
    card = next(view.pair_card for view in views if view.pair_card)
    assert card.count("dot-on") == 2 and "one after the other, DFlash first" in card
    assert all(body["chat_template_kwargs"]["enable_thinking"] for body in drafting.asked)


def test_the_dflash_server_is_asked_first_and_the_other_only_when_it_is_done(page, servers):
    drafting, plain = servers()
    raced(page(), named(drafting.url, plain.url))
    warm_up, race = drafting.order[:2], drafting.order[2:]
    assert sorted(warm_up) == ["dflash True", "plain True"]
    assert race == ["dflash True", "plain True"]


def test_a_lane_shows_tokens_as_the_server_counts_them_and_no_block(page, servers):
    drafting, plain = servers()
    handlers = page()
    raced(handlers, named(drafting.url, plain.url))
    lines = [json.loads(line) for line in handlers.sessions.of("a").stage_text.splitlines()]
    assert lines[0]["k"] == "run" and lines[0]["block"] is None
    pieces = [line for line in lines if line["k"] == "h" and line["l"] == 1]
    assert [line["n"] for line in pieces] == list(range(4, 41, 4))


def test_a_served_run_is_saved_and_opened_again_and_its_link_names_no_server(page, servers):
    drafting, plain = servers()
    handlers = page()
    last = raced(handlers, named(drafting.url, plain.url))[-1]
    run = handlers.sessions.of("a").run
    again = load_run(dump_run(run), source="opened")
    assert again.dflash == run.dflash and again.shown_block == 4
    assert handlers.show(again, "b").headline
    query = json.loads(last.takeaway)["query"]
    assert "count+for+me" in query and "127.0.0.1" not in query
    assert "pair=" not in query and "b=" not in query.split("&")


def test_a_server_without_a_draft_is_red_and_no_speedup_is_claimed(page, servers):
    drafting, plain = servers(drafts=False)
    handlers = page()
    views = raced(handlers, named(drafting.url, plain.url))
    last, run = views[-1], handlers.sessions.of("a").run
    assert "status-bad" in last.status and "Speculation is not active" in last.status
    assert "dot-bad" in last.pair_card and ">–</span>" in last.headline
    assert run.baseline.finished and run.dflash.finished
    said = [json.loads(line) for line in handlers.sessions.of("a").stage_text.splitlines()]
    assert any(line["k"] == "x" and "not active" in line["m"] for line in said)
    claims_no_speed(last, handlers.sessions.of("a"))


def test_a_baseline_that_speculates_is_red_and_no_speedup_is_claimed(page, servers):
    drafting, plain = servers(plain={"drafts": True, "reports": False})
    handlers = page()
    last = raced(handlers, named(drafting.url, plain.url))[-1]
    assert "status-bad" in last.status and "no baseline" in last.status
    claims_no_speed(last, handlers.sessions.of("a"))


def test_the_same_server_under_two_names_is_raced_with_itself_and_no_speedup_is_claimed(
    page, servers
):
    drafting, _ = servers()
    handlers = page()
    last = raced(handlers, named(drafting.url, drafting.url.replace("127.0.0.1", "localhost")))[-1]
    assert "status-bad" in last.status and "no baseline" in last.status
    claims_no_speed(last, handlers.sessions.of("a"))


def test_acceptance_that_is_not_reported_is_said_and_how_to_have_it(page, servers):
    drafting, plain = servers(reports=False)
    last = raced(page(), named(drafting.url, plain.url))[-1]
    assert "not reported" in last.headline and "big-number" in last.headline
    assert "--per-request-spec-decode-metrics" in last.pair_card
    histogram = next(chart for chart in last.charts if chart.title == "Histogram")
    assert histogram.figure is None and "did not report" in histogram.caption


@pytest.mark.parametrize(
    ("fault", "lane", "sentence"),
    [
        ({"breaks_after": 3}, "dflash", "in the middle of the answer"),
        ({"key": "secret"}, "dflash", "Check the key"),
        ({"model": "another"}, "dflash", "does not exist"),
    ],
)
def test_a_fault_of_one_server_is_a_sentence_and_the_other_lane_ends(
    page, servers, fault, lane, sentence
):
    drafting, plain = servers(**fault)
    handlers = page()
    last = raced(handlers, named(drafting.url, plain.url, model="tiny-27b"))[-1]
    run = handlers.sessions.of("a").run
    assert "status-bad" in last.status and sentence in last.status
    assert list(run.failures) == [1] and run.baseline.finished is not None
    claims_no_speed(last, handlers.sessions.of("a"))
    assert not handlers.pool.device.locked()


@pytest.mark.parametrize("gone", ["dflash", "plain"])
def test_a_server_that_is_gone_leaves_the_other_lane_alive(page, servers, gone):
    drafting, plain = servers()
    urls = {"dflash": (closed_port(), plain.url), "plain": (drafting.url, closed_port())}[gone]
    handlers = page()
    last = raced(handlers, named(*urls))[-1]
    run = handlers.sessions.of("a").run
    assert "nothing answers at" in last.status and last.status.count("nothing answers") == 1
    claims_no_speed(last, handlers.sessions.of("a"))
    alive = run.baseline if gone == "dflash" else run.dflash
    assert alive.finished is not None and "dot-bad" in last.pair_card


def test_without_a_second_server_the_dflash_lane_runs_alone_and_says_why(page, servers):
    drafting, _ = servers()
    handlers = page()
    last = raced(handlers, named(drafting.url, drafting.url + "/v1/"))[-1]
    assert "no second server" in last.status
    assert handlers.sessions.of("a").run.dflash.finished is not None


def test_stop_works_while_a_server_is_silent(page, servers):
    drafting, plain = servers(silent_after=2)
    handlers = page()
    views: list = []

    def press() -> None:
        views.extend(raced(handlers, named(drafting.url, plain.url)))

    handlers.pool.is_warm(named(drafting.url, plain.url).choice(), 2)
    racing = threading.Thread(target=press, daemon=True)
    racing.start()
    until = time.monotonic() + 30
    while not (handlers.sessions.of("a").run or drafting.asked) and time.monotonic() < until:
        time.sleep(0.02)
    since = time.monotonic()
    stopped = handlers.on_stop("a")
    racing.join(5)
    assert time.monotonic() - since < 5 and not handlers.pool.device.locked()
    assert "stopped half way" in stopped.status.lower() and plain.asked == []


def test_the_servers_are_asked_without_generating_anything(page, servers):
    drafting, plain = servers()
    card = page().on_ask(named(drafting.url, plain.url)).pair_card
    assert card.count("dot-on") == 2 and drafting.asked == []
    assert "vllm 0.32.0" in card and "not single cycles" in card
    gone = page().on_ask(named(closed_port(), closed_port()))
    assert "Nothing answers" in gone.status and gone.running is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"url": " "}, "No DFlash server"),
        ({"url": "localhost:8000"}, "not a server"),
        ({"url": "http://me:secret@host"}, "must not carry a password"),
        ({"baseline_url": "ftp://x"}, "not a server"),
        ({"kind": "torch"}, "This is no kind of server"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_asked(page, changes, words):
    last = raced(page(), replace(named("http://127.0.0.1:9"), **changes))[-1]
    assert "status-bad" in last.status and words in last.status and "secret" not in last.status


def test_where_two_served_texts_part_is_shown_with_their_odds(page, servers):
    words = FakeVllm(True).words
    other = [*words[:4], "x5", *words[5:]]
    for margin, verdict in ((0.01, "numerical tie"), (2.0, "real fault")):
        drafting, plain = servers(words=other, margin=margin)
        handlers = page()
        last = raced(handlers, named(drafting.url, plain.url))[-1]
        assert "the two texts differ from character" in last.status
        look = list(handlers.on_look("a"))[-1].look
        assert "token 5" in look and "x5" in look and verdict in look and "logprob" in look


def test_servers_that_agree_have_no_place_to_look_at(page, servers):
    drafting, plain = servers()
    handlers = page()
    raced(handlers, named(drafting.url, plain.url))
    assert "The two texts are the same" in list(handlers.on_look("a"))[-1].look
    assert "status-bad" in list(handlers.on_check(8, "a"))[-1].status


def test_keys_reach_their_own_server_and_nothing_that_is_shown_saved_or_logged(
    page, servers, caplog
):
    drafting, plain = servers(key=KEY, plain={"key": OTHER_KEY})
    form = named(drafting.url, plain.url, api_key=KEY, baseline_api_key=OTHER_KEY)
    handlers = page()
    with caplog.at_level(logging.DEBUG):
        views = raced(handlers, form)
    assert set(drafting.keys) == {KEY} and set(plain.keys) == {OTHER_KEY}
    session = handlers.sessions.of("a")
    written = [repr(views), dump_run(session.run), html_card(session.run), session.stage_text]
    written += [caplog.text, repr(form), repr(session.choice), repr(handlers.pool)]
    assert all(key not in text for text in written for key in (KEY, OTHER_KEY))


def test_a_server_is_opened_anew_each_time_and_closes_no_model_of_this_machine(page, servers):
    drafting, plain = servers()
    handlers = page()
    for pair_id in ("demo", "smollm2-135m"):
        list(handlers.on_run(replace(FORM, pair_id=pair_id), "a"))
    raced(handlers, named(drafting.url, plain.url))
    drafting.model = plain.model = "another-27b"
    raced(handlers, named(drafting.url, plain.url, api_key="now with a key"))
    assert handlers.sessions.of("a").run.pair_id == "another-27b (vllm)"
    kept = list(handlers.pool._engines)
    assert [choice.pair_id for choice in kept] == ["demo", "smollm2-135m", SERVED]
    assert kept[-1].server.api_key == "now with a key"


def test_this_machine_is_raced_whatever_the_server_fields_hold(page):
    handlers = page()
    raced(handlers, replace(named("http://127.0.0.1:9"), engine=HERE), replace(FORM, block_size=8))
    assert handlers.sessions.of("a").run.dflash.engine.backend == "torch"


def test_what_a_server_says_is_shown_as_text(page, servers):
    evil = "<img src=x onerror=alert(1)>"
    other = [evil, *FakeVllm(True).words[1:]]
    drafting, plain = servers(model=evil, words=other, plain={"model": evil})
    handlers = page()
    last = raced(handlers, named(drafting.url, plain.url))[-1]
    shown = [last.status, last.headline, last.pair_card, list(handlers.on_look("a"))[-1].look]
    shown.append(raced(handlers, named(drafting.url, plain.url, model="<img>"))[-1].status)
    assert all("<img" not in part for part in shown)
    assert all("&lt;img" in part for part in (last.headline, last.pair_card, shown[-1]))


# ---- public pages ---------------------------------------------------------------------------------


def test_a_public_page_names_no_server_unless_its_owner_lists_some(page, servers):
    drafting, plain = servers()
    public = limits_from({"DFLASH_HOSTED": "1"})
    assert not public.offers_servers
    last = raced(page(public), named(drafting.url, plain.url))[-1]
    assert "servers cannot be named here" in last.status and drafting.order == []
    assert "servers cannot be named here" in page(public).on_ask(named(drafting.url)).status
    opener = opening_within(public, lambda choice, report: pytest.fail("no local model"))
    with pytest.raises(DFlashError, match="cannot be named"):
        opener(PairChoice(SERVED, server=ServerChoice("vllm", drafting.url)), lambda *_: None)


def test_a_public_page_connects_to_the_servers_of_its_list_and_to_no_other(page, servers):
    drafting, plain = servers()
    hosts = ",".join(one.url.removeprefix("http://") for one in (drafting, plain))
    listed = limits_from({"DFLASH_HOSTED": "1", "DFLASH_HOSTED_SERVERS": hosts})
    assert "identical text" in raced(page(listed), named(drafting.url, plain.url))[-1].headline
    plain.order.clear()
    for url in ("http://127.0.0.1:22", "http://169.254.169.254", "https://example.com"):
        last = raced(page(listed), named(drafting.url, url))[-1]
        assert "this page does not connect to" in last.status.lower()
    assert plain.order == []


def test_a_list_of_servers_holds_hosts_and_no_urls():
    with pytest.raises(DFlashError, match="host or host:port"):
        limits_from({"DFLASH_HOSTED": "1", "DFLASH_HOSTED_SERVERS": "http://a:8000"})
