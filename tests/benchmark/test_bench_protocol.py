"""The measuring protocol: order, warm-up, shared history, and prompts that cannot be answered."""

from __future__ import annotations

import pytest
from scripted_engine import ScriptedEngine

from dflash.benchmark.prompts import Prompt
from dflash.benchmark.runner import Arm, Plan, Run, Skipped, measure, warm_up
from dflash.errors import PromptError
from dflash.schema import SamplingParams


def make_plan(engine: ScriptedEngine, prompts: list[Prompt], repeats: int = 2) -> Plan:
    arms = (
        Arm("baseline_loop", 1, engine),
        Arm("dflash", 4, engine),
        Arm("dflash", 8, engine),
    )
    return Plan(arms, tuple(prompts), SamplingParams(seed=7), repeats)


def ask(*texts: str) -> list[Prompt]:
    return [Prompt("chat", (text,)) for text in texts]


def test_the_order_of_the_arms_is_turned_round_from_prompt_to_prompt_and_repeat_to_repeat() -> None:
    engine = ScriptedEngine()
    list(measure(make_plan(engine, ask("a", "b"))))
    order = [(prompt, block) for prompt, block, _ in engine.log]
    forward, back = [1, 4, 8], [8, 4, 1]
    expected = [("a", forward), ("b", back), ("a", back), ("b", forward)]
    assert order == [(prompt, block) for prompt, blocks in expected for block in blocks]


def test_every_arm_runs_equally_often_in_every_position() -> None:
    runs = list(measure(make_plan(ScriptedEngine(), ask("a", "b"))))
    for arm in (1, 8):
        positions = [r.position for r in runs if isinstance(r, Run) and r.block_size == arm]
        assert sorted(positions) == [0, 0, 2, 2]


def test_warm_up_runs_every_arm_once_on_the_longest_prompt_and_measures_nothing() -> None:
    engine = ScriptedEngine()
    warm_up(make_plan(engine, ask("short", "the longest prompt of all", "mid")))
    assert [(p, b) for p, b, _ in engine.log] == [
        ("the longest prompt of all", b) for b in (1, 4, 8)
    ]


def test_all_arms_of_a_repeat_share_a_seed_and_repeats_do_not() -> None:
    engine = ScriptedEngine()
    list(measure(make_plan(engine, ask("a"))))
    assert [seed for _, _, seed in engine.log] == [7, 7, 7, 8, 8, 8]


def test_later_turns_build_on_one_history_for_all_arms_without_the_stop_token() -> None:
    engine = ScriptedEngine(answer=(10, 11, 12), wrong_from=1)
    runs = list(measure(make_plan(engine, [Prompt("chat", ("one", "two"))], 1)))
    histories = set()
    for run in runs:
        assert isinstance(run, Run) and len(run.traces) == 2
        histories.add(run.traces[1].request.messages)
    (history,) = histories
    assert [m.content for m in history] == ["one", "<10><11>", "two"]
    assert [m.role for m in history] == ["user", "assistant", "user"]


def test_a_prompt_that_cannot_be_answered_is_left_out_with_its_reason() -> None:
    engine = ScriptedEngine(too_long=5)
    steps = list(measure(make_plan(engine, ask("ok", "far too long"))))
    skipped = [s for s in steps if isinstance(s, Skipped)]
    assert [s.prompt_index for s in skipped] == [1]
    assert "12 characters. Shorten it." in skipped[0].reason
    assert {s.prompt_index for s in steps if isinstance(s, Run)} == {0}


def test_no_answerable_prompt_at_all_is_an_error_and_not_an_empty_report() -> None:
    with pytest.raises(PromptError, match="no prompt could be answered"):
        list(measure(make_plan(ScriptedEngine(too_long=1), ask("aa", "bb"))))
