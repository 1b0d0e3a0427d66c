"""Where prompts come from, and the sentence a user gets when they cannot be had."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest

from dflash.benchmark.prompts import (
    DEFAULT_HUB_LIMIT,
    HUB_DATASETS,
    Prompt,
    load_prompts,
    mixed,
    read_jsonl,
    spread,
)
from dflash.errors import PromptError
from dflash.presets import preset_ids

ROWS = {
    "gsm8k": {"question": "1+1?", "answer": "2"},
    "math500": {"problem": "x = 2. x?"},
    "humaneval": {"prompt": "def f():\n"},
    "mbpp": {"prompt": "Write a function."},
    "mt-bench": {"prompt": ["Hello.", "And now?"]},
}


def test_jsonl_rows_become_prompts_and_blank_lines_are_passed_over(tmp_path: Path) -> None:
    rows = [
        {"category": "json", "turns": ["a\u2028b"], "answer": "{}"},
        {"turns": ["one", "two"]},
        {"prompt": "three"},
    ]
    path = tmp_path / "p.jsonl"
    text = "\n\n".join(json.dumps(r, ensure_ascii=False) for r in rows) + "\n"
    path.write_text(text, "utf-8-sig")  # editors on Windows put a mark in front
    assert load_prompts(str(path), limit=None) == [
        Prompt("json", ("a\u2028b",), "{}"),
        Prompt("other", ("one", "two"), None),
        Prompt("other", ("three",), None),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "p.jsonl:1: is not JSON"),
        ("[" * 100_000, "p.jsonl:1: is not JSON"),
        ('{"turns": ["a"]}\n{"category": "x"}', "p.jsonl:2: has no 'turns'"),
        ('{"turns": []}', "must be a list of texts"),
        ('{"turns": "abc"}', "must be a list of texts"),
        ('{"turns": ["  "]}', "must be a list of texts"),
        (r'{"turns": ["\ud83e"]}', "half a character"),
        ('{"turns": [null]}', "must be a list of texts"),
        ('{"prompt": " "}', "must be a list of texts"),
        ('{"turns": ["a"], "category": 3}', "must be text"),
        ("", "has no rows"),
    ],
)
def test_a_bad_file_is_refused_with_the_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(text, "utf-8")
    with pytest.raises(PromptError) as caught:
        read_jsonl(path)
    assert words in str(caught.value)


def test_a_missing_file_and_an_unknown_name_say_what_to_do() -> None:
    with pytest.raises(PromptError, match="cannot be read"):
        load_prompts("nowhere.jsonl", limit=None)
    with pytest.raises(PromptError, match="no data set called 'gsm9k'.*gsm8k"):
        load_prompts("gsm9k", limit=None)


def test_a_limit_takes_prompts_from_the_whole_file() -> None:
    prompts = [Prompt(str(i), ("x",)) for i in range(60)]
    assert [p.category for p in spread(prompts, 6)] == ["0", "10", "20", "30", "40", "50"]
    assert spread(prompts, None) == prompts == spread(prompts, 99)
    assert len({p.category for p in spread(prompts, 59)}) == 59


def test_mixing_keeps_every_prompt_and_repeats_by_seed() -> None:
    prompts = [Prompt(kind, (str(i),)) for kind in ("a", "b") for i in range(20)]
    once = mixed(prompts, seed=1)
    assert once == mixed(prompts, seed=1) != prompts
    assert sorted(once, key=prompts.index) == prompts
    assert {p.category for p in once[:8]} == {"a", "b"}


@pytest.mark.parametrize("name", HUB_DATASETS)
def test_a_public_data_set_is_asked_for_by_its_address_and_limited(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def load_dataset(path: str, config: str | None, *, split: str) -> list[dict]:
        asked.append((path, config, split))
        return [ROWS[name]] * 500

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    prompts = load_prompts(name, limit=None)
    source = HUB_DATASETS[name]
    assert asked == [(source.path, source.config, source.split)]
    assert len(prompts) == DEFAULT_HUB_LIMIT and prompts[0].category == name
    assert len(prompts[0].turns) == (2 if name == "mt-bench" else 1)
    assert all(
        str(v) in "".join(prompts[0].turns) for k, v in ROWS[name].items() if k == "question"
    )


def test_without_the_datasets_library_the_sentence_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(PromptError, match="pip install datasets"):
        load_prompts("gsm8k", limit=3)


def test_an_unreachable_hub_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*args: object, **kwargs: object) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(PromptError, match="could not be fetched .ConnectionError"):
        load_prompts("humaneval", limit=3)


@pytest.mark.parametrize("set_id", preset_ids("prompts"))
def test_every_prompt_set_of_ours_loads(set_id: str) -> None:
    prompts = load_prompts(set_id, limit=None)
    assert len(prompts) >= 12
    assert all(p.turns for p in prompts)
