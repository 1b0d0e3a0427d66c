"""On a lent GPU: one call for both lanes, plain data across, refusals in a sentence with a replay."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from fake_spaces import FakeSpaces

from app import handlers as handlers_module
from app.form import PlaygroundForm
from app.handlers import PlaygroundHandlers
from app.hosted import limits_from
from app.recorder import Recorder
from app.session import EnginePool, PairChoice, Sessions
from app.sweep import SweepForm, sweep
from app.zerogpu import duration_s, import_spaces, lend, race_slices
from dflash.errors import DFlashError, EngineError

ROOT = Path(__file__).resolve().parents[2]
ZERO = limits_from({"SPACE_ID": "a/b", "SPACES_ZERO_GPU": "true", "DFLASH_HOSTED_PAIRS": "demo"})
FORM = PlaygroundForm("demo", "", "", "hello", 8, 64, 0.0, 0, 0, 1.0, False)


@pytest.fixture
def spaces():
    return FakeSpaces()


def page(spaces, opener) -> PlaygroundHandlers:
    pool = EnginePool(opener)
    lent = lend(spaces, pool, ZERO.pair_ids)
    return PlaygroundHandlers(pool, Sessions(), lambda: "a Space", ZERO, lent)


def test_without_zerogpu_the_package_is_not_even_looked_for():
    assert import_spaces({}) is None
    assert import_spaces({"SPACES_ZERO_GPU": "0"}) is None


def test_both_lanes_run_in_one_call_and_the_run_is_the_same_as_at_home(spaces, counting_engine):
    lent = page(spaces, lambda choice, report: counting_engine())
    home = PlaygroundHandlers(
        EnginePool(lambda choice, report: counting_engine()), Sessions(), lambda: "a Space"
    )
    for one in (lent, home):
        list(one.on_run(FORM, "visitor"))
    there, here = (one.sessions.of("visitor").run for one in (lent, home))
    assert there.baseline.events == here.baseline.events
    assert there.dflash.events == here.dflash.events
    assert len(spaces.durations) == 1
    assert there.dflash.engine.device.endswith("lent by ZeroGPU")


def test_models_are_opened_in_the_main_thread_before_the_page_starts(spaces, counting_engine):
    threads = []

    def opener(choice, report):
        threads.append(threading.current_thread())
        return counting_engine()

    lent = page(spaces, opener)
    list(lent.on_run(FORM, "visitor"))
    assert threads == [threading.main_thread()]


def test_a_stop_reaches_the_other_process_and_keeps_the_numbers_so_far(spaces, counting_engine):
    lent = page(spaces, lambda choice, report: counting_engine(busy_s=0.05))
    running = lent.on_run(replace(FORM, max_new_tokens=400), "visitor")
    for shown in running:
        if shown.stage and '"k":"c"' in shown.stage:
            lent.sessions.of("visitor").stop.set()
    assert spaces.stopped_in_child.is_set()
    run = lent.sessions.of("visitor").run
    assert run.stopped and len(run.dflash.cycles) > 0
    assert not lent.pool.device.locked()


def test_an_abandoned_page_stops_the_other_process(spaces, counting_engine):
    lent = page(spaces, lambda choice, report: counting_engine(busy_s=0.05))
    running = lent.on_run(replace(FORM, max_new_tokens=400), "visitor")
    for shown in running:
        if shown.stage and '"k":"c"' in shown.stage:
            break
    running.close()
    assert spaces.stopped_in_child.is_set()
    assert not lent.pool.device.locked()


def test_a_quota_that_is_used_up_is_one_sentence_and_a_recorded_run(
    spaces, counting_engine, monkeypatch, ask
):
    engine = counting_engine()
    recorder = Recorder(PairChoice("demo"), (engine, engine), ask(), "recorded there")
    for batch in race_slices(engine, ask()):
        recorder.add(batch)
    recorded = replace(recorder.run(stopped=False), source="recorded")
    monkeypatch.setattr(handlers_module, "recorded_runs", lambda: (recorded,))
    spaces.refuse_with = "You have exceeded your free ZeroGPU quota (18s requested vs. 3s left)."
    lent = page(spaces, lambda choice, report: counting_engine())
    last = list(lent.on_run(FORM, "visitor"))[-1]
    assert "18s requested vs. 3s left" in last.status and "recorded run is shown" in last.status
    assert last.stage and last.headline and last.running is False
    monkeypatch.setattr(handlers_module, "recorded_runs", tuple)
    last = list(lent.on_run(FORM, "visitor"))[-1]
    assert "3s left" in last.status and "later" in last.status.lower()
    assert not lent.pool.device.locked()


def _breaks(engine):
    raise EngineError("the model broke.", "Use a smaller block.")
    yield


def test_what_goes_wrong_in_the_other_process_keeps_its_sentence(spaces, counting_engine):
    lent = page(spaces, lambda choice, report: counting_engine()).lent
    with pytest.raises(DFlashError, match="Use a smaller block"):
        list(lent.run(_breaks, PairChoice("demo")))


def test_a_pair_that_cannot_be_opened_does_not_keep_the_page_from_starting(spaces):
    def opener(choice, report):
        raise DFlashError("the download failed.")

    assert page(spaces, opener).pool.peek(PairChoice("demo")) is None


def test_the_duration_grows_with_the_run_and_stays_in_what_a_visitor_has(ask):
    few, many = (duration_s(race_slices, PairChoice("demo"), (ask(num=n),)) for n in (32, 512))
    assert 10 < few < many <= 60


def test_a_lent_gpu_is_not_measured_with(counting_engine):
    pool = EnginePool(lambda choice, report: counting_engine())
    with pytest.raises(DFlashError, match="lent for single runs"):
        list(sweep(pool, SweepForm("demo", ["demo"], [4], 1, 1, 8), lambda: False, ZERO))


def test_the_package_is_imported_before_torch(tmp_path):
    (tmp_path / "spaces.py").write_text(
        "import sys\n"
        "assert 'torch' not in sys.modules, 'torch came first'\n"
        "def GPU(duration):\n"
        "    return lambda function: function\n"
        "print('spaces came first')\n"
    )
    code = "import runpy; runpy.run_path('app.py', run_name='page')"
    environ = {
        **os.environ, "PYTHONPATH": str(tmp_path), "SPACES_ZERO_GPU": "true", "SPACE_ID": "a/b",
        "DFLASH_HOSTED_PAIRS": "demo",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, timeout=120,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "spaces came first" in done.stdout
