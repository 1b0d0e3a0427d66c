"""Comparing with other implementations: the worker's protocol, and which cycles are comparable."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted_engine import ScriptedEngine

from dflash.errors import EngineError
from dflash.schema import Message, Request, SamplingParams, Trace
from scripts import compare_official, compare_vllm, peer
from scripts.comparison import conclude, take_turns, without_rows
from scripts.ours import num_whole_blocks

ECHO = """
import json, os, sys
print("noise of a library, on the log", file=sys.stderr)
for line in sys.stdin:
    job = json.loads(line)
    if job.get("die"):
        sys.exit("worker: out of paper")
    print(json.dumps({"got": job, "path": os.environ.get("PYTHONPATH"), "x": os.environ.get("X")}))
    sys.stdout.flush()
"""


def test_a_worker_answers_line_by_line_without_our_packages_on_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    worker, log = tmp_path / "echo.py", tmp_path / "deep" / "log.txt"
    worker.write_text(ECHO, "utf-8")
    with peer.running(Path(sys.executable), worker, log=log, variables={"X": "1"}) as echo:
        for n in range(3):
            answer = echo.ask({"n": n})
            assert answer == {"got": {"n": n}, "path": None, "x": "1"}
        with pytest.raises(EngineError, match="the peer stopped: worker: out of paper"):
            echo.ask({"die": True})
        with pytest.raises(EngineError, match="the peer stopped"):
            echo.ask({"n": 9})
    assert "noise of a library" in log.read_text("utf-8")


def test_an_environment_is_made_once_and_again_when_its_packages_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(peer, "_pip", lambda python, *arguments: calls.append(arguments))
    monkeypatch.setattr(peer.venv, "create", lambda folder, with_pip: folder.mkdir(exist_ok=True))
    for _ in range(2):
        peer.make_environment(tmp_path / "env", packages=["a==1", "b"], removed=["c"])
    assert calls == [("install", "a==1", "b"), ("uninstall", "--yes", "c")]
    peer.make_environment(tmp_path / "env", packages=["a==2"])
    assert calls[2:] == [("install", "a==2")]


@pytest.mark.parametrize(("max_new_tokens", "expected"), [(16, 3), (12, 2), (8, 1), (4, 0)])
def test_blocks_that_the_length_limit_narrows_are_not_compared(
    max_new_tokens: int, expected: int
) -> None:
    engine = ScriptedEngine(answer=tuple(range(max_new_tokens)))
    sampling = SamplingParams(max_new_tokens=max_new_tokens)
    request = Request((Message("user", "x"),), sampling, block_size=4)
    trace = Trace(request, engine.info, tuple(engine.stream(request)))
    whole = trace.cycles[: num_whole_blocks(trace)]
    assert len(whole) == expected
    assert all(len(c.draft_ids) == 3 for c in whole)


def official_row(ratio: float, *, block_size: int, difference: int | None = None):
    return compare_official.Row(0, "code", block_size, 9, ratio * 0.01, 0.01, difference, True)


@pytest.mark.parametrize(
    ("ratio", "difference", "passed"), [(0.9, None, True), (1.0, None, False), (0.9, 4, False)]
)
def test_the_official_comparison_passes_only_when_equal_and_fast_enough(
    ratio: float, difference: int | None, passed: bool
) -> None:
    rows = [official_row(ratio, block_size=16, difference=difference)]
    rows.append(official_row(2.0, block_size=1))
    report = compare_official.summarise(rows, 16, {"machine": "test"})
    assert report["passed"] is passed
    assert report["cycle_ratio"]["median"] == pytest.approx(ratio)
    assert report["step_ratio"]["median"] == pytest.approx(2.0)
    text = compare_official.table(report)
    assert ("PASSED" if passed else "FAILED") in text
    assert ("differs from token 4" in text) is (difference is not None)


def test_the_vllm_comparison_pools_speeds_and_needs_equal_tokens_counts_and_speed() -> None:
    def row(dflash: bool, *, same: bool = True):
        counts = (3, 3, 2) if dflash else ()
        return compare_vllm.Row(0, "code", dflash, 0.5, 1.0, 12, 12, None, counts, counts, same)

    report = compare_vllm.summarise([row(False), row(True)], 4, {"machine": "test"})
    assert report["passed"] is True
    assert report["tokens_per_s"] == {
        "ours_ar": 24.0, "theirs_ar": 12.0, "ours_dflash": 24.0, "theirs_dflash": 12.0,
    }  # fmt: skip
    assert report["dflash_ratio"]["median"] == 2.0
    assert report["tau"]["ours"] == pytest.approx(1 + 8 / 3)
    assert "PASSED" in compare_vllm.table(report)
    other = compare_vllm.summarise([row(False), row(True, same=False)], 4, {"machine": "test"})
    assert other["passed"] is False


def test_sides_take_turns_and_the_warm_up_is_thrown_away() -> None:
    asked: list[str] = []

    class Side:
        prompts = ("first", "second")
        stop_ids: tuple[int, ...] = ()

        def prompt_ids(self, prompt: str) -> list[int]:
            return [len(prompt)]

        def answer(self, prompt: str, block_size: int) -> str:
            asked.append("ours")
            return f"{prompt} at {block_size}"

        def ask(self, job: dict) -> dict:
            asked.append("theirs")
            return job

    side: Any = Side()
    turns = list(take_turns(side, side, [(0, 8), (1, 8), (1, 1)], 5))
    assert [(t.prompt, t.block_size, t.answer) for t in turns] == [
        ("first", 8, "first at 8"), ("second", 8, "second at 8"), ("second", 1, "second at 1"),
    ]  # fmt: skip
    assert [t.theirs["ids"] for t in turns] == [[5], [6], [6]]
    first = asked[::2]
    assert len(first) == 5 and first == ["ours", "theirs", "ours", "theirs", "ours"]
    assert [t.prompt for t in take_turns(side, side, [(0, 8)], 5)] == ["first"]


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 1)])
def test_the_last_line_is_the_brief_report_and_the_exit_code_its_verdict(
    passed: bool, code: int, capsys: pytest.CaptureFixture
) -> None:
    report = {"passed": passed, "rows": [1, 2], "provenance": {}, "tau": 3.5}
    assert conclude(lambda: report, without_rows) == code
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"passed": passed, "tau": 3.5}


def test_a_comparison_that_could_not_be_made_says_why_and_exits_with_two(
    capsys: pytest.CaptureFixture,
) -> None:
    def fails() -> dict:
        raise EngineError("the peer stopped.", "Look at its log.")

    assert conclude(fails, without_rows) == 2
    assert capsys.readouterr().err == "error: the peer stopped. Look at its log.\n"
