"""The playground's events, driven without Gradio."""

from __future__ import annotations

import threading
import time

import pytest

from app.form import OWN_PAIR, PlaygroundForm
from app.handlers import PlaygroundHandlers
from app.session import EnginePool, PairChoice, Sessions, Stopped
from app.stage import WAITING
from dflash.errors import CheckpointError, DFlashError

FORM = {
    "pair_id": "demo", "target": "", "draft": "", "prompt": "count", "block_size": 8,
    "max_new_tokens": 64, "temperature": 0, "seed": 0, "top_k": 0, "top_p": 1.0,
    "enable_thinking": False,
}  # fmt: skip


def form(**changes):
    return PlaygroundForm(**{**FORM, **changes})


@pytest.fixture
def page(counting_engine):
    def build(engine=None, opener=None):
        engine = engine or counting_engine()

        def open_pair(choice, report):
            report("loading", 0.5)
            return engine

        pool = EnginePool(opener or open_pair)
        return PlaygroundHandlers(pool, Sessions(), lambda: "a test machine")

    return build


def test_a_run_ends_with_a_headline_every_chart_and_the_same_text_in_both_lanes(page):
    handlers = page()
    last = list(handlers.on_run(form(), "a"))[-1]
    assert last.running is False and "both lanes wrote the same text" in last.status
    assert "identical text, 64 of 64 tokens" in last.headline
    assert "measured here" in last.headline
    assert all(chart.figure is not None and chart.caption for chart in last.charts)
    assert handlers.sessions.of("a").run.comparison.outputs_match


def test_an_unchanged_field_is_not_sent_again(page):
    views = list(page().on_run(form(), "a"))
    assert all(v.charts is None and v.takeaway is None for v in views[:-1])
    assert sum(v.headline is not None for v in views) == 2


def test_the_numbers_shown_are_the_lanes_own_whatever_the_page_costs(page, counting_engine):
    """A slow page (20 ms per update) changes no measured number."""
    shown = []
    for draw_s in (0.0, 0.02):
        handlers = page(counting_engine(busy_s=0.002))
        for _ in handlers.on_run(form(), "a"):
            time.sleep(draw_s)
        shown.append(handlers.sessions.of("a").run.comparison.dflash.output_tps)
    assert shown[1] == pytest.approx(shown[0], rel=0.02)


def test_stop_keeps_the_numbers_so_far_and_frees_the_device_within_one_step(page, counting_engine):
    engine = counting_engine(busy_s=0.01)
    handlers = page(engine)
    views = []

    def consume():
        for view in handlers.on_run(form(max_new_tokens=2000), "a"):
            views.append(view)

    worker = threading.Thread(target=consume)
    worker.start()
    while len(views) < 8:
        time.sleep(0.01)
    handlers.sessions.of("a").stop.set()
    since = time.monotonic()
    while engine.open_streams:
        time.sleep(0.005)
    assert time.monotonic() - since < 0.5
    stopped = handlers.on_stop("a")
    assert not handlers.pool.device.locked() and engine.open_streams == 0
    worker.join(timeout=5)
    assert "stopped half way" in stopped.status.lower() and "stopped half way" in stopped.headline
    run = handlers.sessions.of("a").run
    assert run.stopped and run.dflash.cycles and not run.dflash.finished
    assert run.comparison.dflash.output_tps is not None


def test_a_run_after_a_stopped_one_starts_from_zero(page, counting_engine):
    handlers = page(counting_engine(busy_s=0.005))
    running = handlers.on_run(form(max_new_tokens=2000), "a")
    for _ in range(6):
        next(running)
    running.close()
    assert not handlers.pool.device.locked()
    assert handlers.sessions.of("a").run.stopped
    list(handlers.on_run(form(), "a"))
    run = handlers.sessions.of("a").run
    assert run.comparison.dflash.num_output_tokens == 64
    assert not run.stopped


def test_repeating_a_run_shows_the_median_and_its_interval(page):
    handlers = page()
    first = list(handlers.on_run(form(), "a"))[-1]
    assert "runs of this" not in first.headline
    list(handlers.on_run(form(seed=5), "a"))
    again = list(handlers.on_run(form(), "a"))[-1]
    assert "2 runs of this: median" in again.headline and "95 % interval" in again.headline


def test_two_windows_never_see_each_others_run(page):
    handlers = page()
    list(handlers.on_run(form(prompt="first secret"), "a"))
    list(handlers.on_run(form(prompt="second"), "b"))
    assert handlers.sessions.of("a").run.prompt == "first secret"
    assert handlers.sessions.of("b").run.prompt == "second"
    with pytest.raises(DFlashError, match="no longer kept"):
        handlers.on_recall(handlers.sessions.of("a").run.id, "b")


def test_a_closed_window_stops_its_run_and_is_forgotten(page, counting_engine):
    handlers = page(counting_engine(busy_s=0.005))
    running = handlers.on_run(form(max_new_tokens=5000), "a")
    for _ in range(6):
        next(running)
    handlers.sessions.drop("a")
    rest = list(running)
    assert len(rest) < 20 and not handlers.pool.device.locked()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"prompt": "  "}, "prompt is empty"),
        ({"block_size": 17}, "1 to 16, got 17"),
        ({"block_size": 0}, "block_size"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": None}, "."),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"top_p": 0}, "top_p"),
        ({"pair_id": OWN_PAIR}, "no target"),
    ],
)
def test_a_wrong_field_is_named_in_one_sentence_and_nothing_runs(page, changes, named):
    last = list(page().on_run(form(**changes), "a"))[-1]
    assert "status-bad" in last.status and named in last.status.lower()
    assert last.running is False


def test_a_model_that_does_not_open_is_one_sentence_with_a_hint(page):
    def broken(choice, report):
        raise CheckpointError("the file is half there.", "Delete it and try again.")

    last = list(page(opener=broken).on_run(form(), "a"))[-1]
    assert "half there" in last.status and "Delete it" in last.status


def test_stop_during_a_download_cancels_it(page):
    cancelled = threading.Event()

    def slow(choice, report):
        try:
            while True:
                report("downloading", 0.1)
                time.sleep(0.01)
        finally:
            cancelled.set()

    handlers = page(opener=slow)
    running = handlers.on_run(form(), "a")
    for _ in range(4):
        next(running)
    handlers.sessions.of("a").stop.set()
    last = list(running)[-1]
    assert "stopped" in last.status.lower() and cancelled.wait(2)
    assert not handlers.pool.device.locked()


def test_a_lane_that_breaks_is_said_and_the_other_is_kept(page, counting_engine):
    handlers = page(counting_engine(fails_after={8: 3}))
    last = list(handlers.on_run(form(), "a"))[-1]
    assert "the lane broke" in last.status
    assert handlers.sessions.of("a").run.baseline.finished is not None


def test_texts_that_differ_are_never_called_lossless(page, counting_engine):
    last = list(page(counting_engine(differs_at=30)).on_run(form(), "a"))[-1]
    assert "differ from token 30" in last.status
    assert "differs from token 30" in last.headline and "identical" not in last.headline


def test_the_pool_opens_a_pair_once_and_closes_the_least_used(counting_engine):
    opened = []

    def open_pair(choice, report):
        opened.append(choice.pair_id)
        return counting_engine()

    pool = EnginePool(open_pair)
    engines = {}
    for name in ("a", "b", "a", "c"):
        list(pool.opening(PairChoice(name), lambda: False))
        engines[name] = pool.peek(PairChoice(name))
    assert opened == ["a", "b", "c"]
    assert engines["b"].steps == -1 and pool.peek(PairChoice("b")) is None
    assert engines["a"].steps != -1


def test_a_prompt_with_markup_is_shown_as_text(page):
    name = "<img src=x onerror=alert(1)>"
    last = list(page().on_run(form(pair_id=OWN_PAIR, target=name, draft="d"), "a"))[-1]
    assert "<img" not in last.headline and "&lt;img" in last.headline


def test_a_press_clears_the_last_answer_and_gives_it_back_where_no_race_comes(page):
    handlers = page()
    list(handlers.on_run(form(), "a"))
    pressed = handlers.on_run_pressed("a")
    assert (pressed.headline, pressed.stage, pressed.running) == ("", WAITING, True)
    *_, refused = handlers.on_run(form(max_new_tokens=-1), "a")
    handlers.on_run_pressed("a")
    for given_back in (refused, handlers.on_stop("a")):
        assert "identical text" in given_back.headline and '"k":"end"' in given_back.stage
    handlers.on_run_pressed("a")
    race = handlers.on_run(form(prompt="another"), "a")
    assert all(v.headline in (None, "") for v in list(race)[:-1])
    assert handlers.on_stop("a").headline is None, "that race took its place"


def test_a_run_stopped_while_the_model_loads_gives_the_last_answer_back(page):
    handlers = page()
    list(handlers.on_run(form(), "a"))
    handlers.on_run_pressed("a")
    loading = handlers.on_run(form(pair_id=OWN_PAIR, target="x/y", draft="x/z"), "a")
    next(loading)
    told = loading.throw(Stopped("stopped while the model was loading."))
    assert "identical text" in told.headline
    loading.close()  # Gradio drops what a run that Stop cancelled has still to say
    stopped = handlers.on_stop("a")
    assert "stopped before it began" in stopped.status.lower()
    assert "identical text" in stopped.headline
