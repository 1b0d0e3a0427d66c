"""The demo corpus: reproducible, never seen by training, and with answers that are right."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from dflash.train.__main__ import main
from dflash.train.corpus import (
    KINDS,
    TRAINING_SEED_START,
    Task,
    draw_drills,
    draw_tasks,
    is_held_out,
    is_right,
    sample_prompts,
)

SEED = 7


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_rows(kind: str) -> None:
    assert sample_prompts(kind, 5, SEED) == sample_prompts(kind, 5, SEED)


@pytest.mark.parametrize("kind", KINDS)
def test_a_shorter_draw_is_the_start_of_a_longer_one(kind: str) -> None:
    assert sample_prompts(kind, 3, SEED) == sample_prompts(kind, 6, SEED)[:3]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_have_the_three_fields_of_a_prompt_file(kind: str) -> None:
    for row in sample_prompts(kind, 5, SEED):
        assert set(row) == {"category", "turns", "answer"}
        assert row["category"] == kind
        assert len(row["turns"]) == 1
        assert json.loads(json.dumps(row)) == row


@pytest.mark.parametrize("kind", KINDS)
def test_no_held_out_prompt_is_ever_a_training_prompt(kind: str) -> None:
    asked = {task.prompt for seed in range(3) for task in draw_tasks(kind, 40, seed)}
    trained = {
        task.prompt
        for seed in range(TRAINING_SEED_START, TRAINING_SEED_START + 3)
        for task in draw_tasks(kind, 150, seed)
    }
    assert all(is_held_out(prompt) for prompt in asked)
    assert not any(is_held_out(prompt) for prompt in trained)
    assert not asked & trained


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_hardly_ever_repeat(kind: str) -> None:
    tasks = draw_tasks(kind, 400, TRAINING_SEED_START)
    assert len({task.prompt for task in tasks}) >= 396


@pytest.mark.parametrize("kind", KINDS)
def test_the_judge_accepts_every_model_answer(kind: str) -> None:
    num = 12 if kind == "code" else 60
    assert all(is_right(kind, task, task.answer) for task in draw_tasks(kind, num, SEED))


@pytest.mark.parametrize("kind", KINDS)
def test_the_judge_refuses_the_answer_to_another_prompt(kind: str) -> None:
    tasks = draw_tasks(kind, 12, SEED)
    swapped = zip(tasks, tasks[1:] + tasks[:1], strict=True)
    assert not any(is_right(kind, task, other.answer) for task, other in swapped)


def test_every_number_of_a_sum_is_worked_out_rightly_by_python() -> None:
    for task in draw_tasks("math", 200, SEED) + draw_drills(100, SEED):
        for line in task.answer.splitlines():
            if " = " in line:
                terms = line.rpartition(": ")[2].split(" = ")
                assert all(re.fullmatch(r"[-+*/ \d]+", term) for term in terms)
                assert len({eval(term) for term in terms}) == 1  # digits and signs only
                assert all(0 <= int(number) < 1200 for number in re.findall(r"\d+", line))


def test_a_right_result_with_a_wrong_sum_on_the_way_is_wrong() -> None:
    task = Task("", "Tom starts with 4 pears.\nTom finds 3 more: 4 + 3 = 7\nThe answer is 7.")
    assert is_right("math", task, task.answer)
    assert not is_right("math", task, task.answer.replace("4 + 3", "4 + 2"))
    assert not is_right("math", task, task.answer.replace("is 7", "is 8"))


def test_json_answers_hold_only_what_the_prompt_says() -> None:
    for task in draw_tasks("json", 100, SEED):
        for value in json.loads(task.answer).values():
            if isinstance(value, bool):
                continue
            for part in value if isinstance(value, list) else [value]:
                assert str(part).lower() in task.prompt.lower()


def test_json_with_its_keys_in_another_order_is_wrong() -> None:
    task = Task("", '{"a": 1, "b": 2}')
    assert is_right("json", task, '{ "a":1, "b":2 }')
    assert not is_right("json", task, '{"b": 2, "a": 1}')
    assert not is_right("json", task, '{"a": 1,')
    assert not is_right("json", task, "[1, 2]")


def test_stories_must_keep_the_names_and_things_of_the_prompt() -> None:
    for task in draw_tasks("chat", 50, SEED):
        assert task.keep
        assert all(word in task.prompt for word in task.keep)
        assert not is_right("chat", task, task.answer.replace(task.keep[0], "Nobody"))


def test_translations_agree_in_gender_and_number() -> None:
    text = " ".join(task.answer for task in draw_tasks("translate", 300, SEED))
    assert re.search(r"\b[Ll]a casa\b", text)
    assert not re.search(r"\b[Ee]l casa\b|\b[Uu]n casa\b|\bcasa (rojo|blanco|pequeño)\b", text)
    assert "lápices" in text
    assert not re.search(r"\by I", text)


def test_copy_edits_change_the_text_they_are_given() -> None:
    tasks = draw_tasks("edit", 200, SEED)
    changed = [task for task in tasks if task.answer not in task.prompt]
    assert len(changed) > 160


def test_functions_are_run_and_wrong_ones_refused() -> None:
    task = draw_tasks("code", 1, SEED)[0]
    assert not is_right("code", task, "def broken(:\n")
    assert not is_right("code", task, f"def {task.function}(items):\n    return None")
    assert not is_right("code", task, f"def {task.function}(items):\n    while True:\n        pass")


@pytest.mark.parametrize(
    "line", ["open('x', 'w')", "import os", "().__class__.__mro__", "exec('1')", "print(1)"]
)
def test_functions_cannot_reach_out_of_their_box(line: str) -> None:
    task = Task("", "", function="f", checks=((([1],), 1),))
    assert is_right("code", task, "def f(items):\n    return items[0]")
    assert not is_right("code", task, f"def f(items):\n    {line}\n    return items[0]")


def test_an_unknown_kind_is_named_in_the_error() -> None:
    with pytest.raises(ValueError, match="'poem'"):
        draw_tasks("poem", 1, SEED)


def test_the_command_prints_rows_and_nothing_else() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dflash.train", "sample", "--kind", "math", "--num", "3", "--seed", "7"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [json.loads(line) for line in done.stdout.splitlines()] == sample_prompts("math", 3, 7)


def test_fewer_than_one_row_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["dflash.train", "sample", "--kind", "math", "--num", "-1"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert "must be at least 1, got -1" in capsys.readouterr().err
