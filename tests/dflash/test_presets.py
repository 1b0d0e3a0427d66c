"""Pair presets: strict reading, sources, and the numbers that were published."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from dflash.errors import PairError, PresetError
from dflash.presets import (
    PRESETS,
    PairPreset,
    load_pair,
    load_prompt_set,
    pair_ids,
    preset_ids,
    read_pair,
)
from dflash.strict_yaml import MAX_FILE_BYTES, StrictModel, parse_yaml, validated
from dflash.taps import build_target_layer_ids

PAIRS = [load_pair(pair_id) for pair_id in pair_ids()]
DRAFTS = [(pair.id, facts) for pair in PAIRS for facts in pair.drafts]
SOURCE_TEXT = (PRESETS / "pairs" / "qwen3-8b.yaml").read_text(encoding="utf-8")
NOT_UNIFORM = {
    "qwen3-coder-next",
    "qwen3.8-27b-dflash2",
    "qwen3.6-27b-dflash2",
    "alpamayo-r1-10b",
}


def refusal(tmp_path: Path, old: str, new: str) -> str:
    """What reading qwen3-8b.yaml says after one edit."""
    assert old in SOURCE_TEXT
    path = tmp_path / "qwen3-8b.yaml"
    path.write_text(SOURCE_TEXT.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(PresetError) as caught:
        read_pair(path)
    return str(caught.value)


def test_an_unknown_key_is_refused_with_the_nearest_known_one(tmp_path):
    message = refusal(tmp_path, "block_size", "blocksize")
    assert message.startswith(
        "presets/pairs/qwen3-8b.yaml: unknown key 'blocksize'; did you mean 'block_size'?"
    )


def test_an_unknown_key_deep_inside_gets_a_suggestion_from_its_own_level(tmp_path):
    message = refusal(tmp_path, "speedup: 5.15", "speed_up: 5.15")
    assert "unknown key 'speed_up'; did you mean 'speedup'?" in message
    assert "published[0].rows[0]" in message


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("num_layers: 36", 'num_layers: "36"', "target.num_layers"),
        ("mask_token_id: 151669", "mask_token_id: true", "draft.mask_token_id"),
        ("mask_token_id: 151669", "mask_token_id: -1", "draft.mask_token_id"),
        ("speedup: 5.15", "speedup: .nan", ".nan is no finite number"),
        ("speedup: 5.15", "speedup: 0", "speedup"),
        ("tau: 6.54", "tau: 0.5", "tau"),
        ("[1, 9,", "[9, 9,", "must rise without repeats"),
        ("[1, 9, 17, 25, 33]", "[1, 9, 17, 25, 36]", "must lie in 0...35"),
        ("[full_attention, full", "[full", "4 layer_types for 5 layers"),
        ("status: released", "status: rumoured", "status"),
        ("id: qwen3-8b", "id: qwen3-9b", "the file name says 'qwen3-8b'"),
        ("thinking: false", "thinking: false\n  thinking: true", "'thinking' is written twice"),
        ("https://huggingface.co", "ftp://huggingface.co", "a source is an https:// address"),
        (
            "    thinking:\n      - https",
            "    thinkin:\n      - https",
            "which are not fields here",
        ),
        ("title:", "title: [", "not readable as YAML"),
        ("title:", "title: !!python/object:os.system ", "tags (!!name) are not allowed"),
        ("title:", "x" * 900 + ": 1\ntitle:", "unknown key 'xxx"),
    ],
)
def test_a_broken_pair_file_is_refused_in_one_sentence(tmp_path, old, new, named):
    message = refusal(tmp_path, old, new)
    assert message.startswith("presets/pairs/qwen3-8b.yaml: ")
    assert named in message
    assert "\n" not in message and len(message) < 400


def test_a_number_without_a_source_is_refused(tmp_path):
    start = SOURCE_TEXT.index("  source:\n")
    end = SOURCE_TEXT.index("draft:\n")
    path = tmp_path / "qwen3-8b.yaml"
    path.write_text(SOURCE_TEXT[:start] + SOURCE_TEXT[end:], encoding="utf-8")
    with pytest.raises(PresetError, match="'source' is missing"):
        read_pair(path)


def test_hostile_yaml_never_escapes_as_another_error():
    class Anything(StrictModel):
        id: str

    bomb = "a: &a [x, x]\nb: &b [*a, *a]\nid: *b"
    for text in (bomb, "[" * 5000, "{" * 5000, "\x00", "id: 1" * MAX_FILE_BYTES, "? [a]\n: b"):
        with pytest.raises(PresetError):
            validated(parse_yaml(text, name="upload"), Anything, name="upload")
    with pytest.raises(PresetError, match="upload"):
        validated(["not", "a", "mapping"], Anything, name="upload")


@pytest.mark.parametrize(
    "text",
    ["!!bool maybe", "!!int ''", "!!timestamp soon", "a: !!float ''", "{1: a, 0x1: b}", "a: -.inf",
     "0x" + "f" * 5000],
)  # fmt: skip
def test_yaml_that_breaks_its_reader_is_refused_in_one_sentence(text):
    with pytest.raises(PresetError, match="^upload: ") as caught:
        parse_yaml(text, name="upload")
    assert "\n" not in str(caught.value)


def test_dates_merges_and_numbers_in_base_60_are_text_and_read_at_once():
    for text in ("2026-99-99", "1:30", "1:30.5", "1" + ":1" * 200 + ".0"):
        assert parse_yaml(text, name="upload") == text
    assert parse_yaml("<<: {a: 1}", name="upload") == {"<<": {"a": 1}}
    long = "1" + ":1" * 400_000  # as a number in base 60 this took minutes
    start_s = time.perf_counter()
    assert parse_yaml(long, name="upload") == long
    assert time.perf_counter() - start_s < 10


def test_a_file_too_large_or_not_text_is_refused(tmp_path):
    path = tmp_path / "qwen3-8b.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PresetError, match="cannot be read"):
        read_pair(path)
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(PresetError, match="larger than"):
        read_pair(path)
    with pytest.raises(PresetError, match="cannot be read"):
        read_pair(tmp_path / "missing.yaml")


def test_an_unknown_id_is_answered_with_the_nearest_one():
    with pytest.raises(PresetError, match="Did you mean 'qwen3-8b'"):
        load_pair("qwen3-8")


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.id)
def test_every_pair_has_sources_for_target_draft_and_results(pair: PairPreset):
    for facts in (pair.target, *pair.drafts, *pair.published):
        assert facts.source
        assert all("public copy" not in url for url in facts.source)
    for facts in pair.drafts:
        assert facts.hub_id or facts.path or pair.status == "recipe"


@pytest.mark.parametrize(("pair_id", "facts"), DRAFTS, ids=lambda value: str(value)[:32])
def test_blocks_taps_masks_and_windows_are_sane(pair_id, facts):
    assert facts.block_size is None or 2 <= facts.block_size <= 16
    target = load_pair(pair_id).target
    if target.num_layers and facts.num_target_layers:
        assert target.num_layers == facts.num_target_layers
    if facts.mask_token_id is not None and target.vocab_size:
        assert facts.mask_token_id < target.vocab_size
    if facts.hidden_size and target.hidden_size:
        assert facts.hidden_size == target.hidden_size
    if facts.layer_types and "sliding_attention" in facts.layer_types and facts.sliding_window:
        assert facts.sliding_window >= (facts.block_size or 1)
    if facts.layer_types and set(facts.layer_types) == {"full_attention"}:
        assert facts.sliding_window is None


def test_the_uniform_rule_gives_every_published_tap_list_but_the_known_exceptions():
    checked = 0
    for pair_id, facts in DRAFTS:
        ids, depth = facts.target_layer_ids, facts.num_target_layers
        if not ids or not depth:
            continue
        uniform = build_target_layer_ids(depth, len(ids)) == list(ids)
        assert uniform == facts.uniform_taps == (pair_id not in NOT_UNIFORM), pair_id
        checked += 1
    assert checked >= 25


# pair, revision, block, taps, layers of the target, mask, draft layers, window (facts as published)
PUBLISHED = [
    ("qwen3-4b", 0, 16, (1, 9, 17, 25, 33), 36, 151669, 5, None),
    ("qwen3-8b", 0, 16, (1, 9, 17, 25, 33), 36, 151669, 5, None),
    ("qwen3-coder-30b-a3b", 0, 16, (1, 12, 23, 34, 45), 48, None, 8, None),
    ("qwen3-coder-next", 0, 16, (3, 11, 23, 35, 43), 48, None, 8, None),
    ("llama-3.1-8b", 0, 10, (1, 8, 15, 22, 29), 32, 128002, 5, None),
    ("gpt-oss-20b", 0, 8, (1, 6, 11, 16, 21), 24, 200000, 8, None),
    ("gpt-oss-120b", 0, 10, (1, 9, 17, 25, 33), 36, 200000, 8, None),
    ("qwen3.5-4b", 0, 16, (1, 5, 9, 13, 17, 21, 25, 29), 32, None, 6, 4096),
    ("qwen3.5-4b", 1, 16, (1, 8, 15, 22, 29), 32, 248070, 5, None),
    ("qwen3.5-9b", 0, 16, (1, 5, 9, 13, 17, 21, 25, 29), 32, 248077, 6, 4096),
    ("qwen3.5-9b", 1, 16, (1, 8, 15, 22, 29), 32, 248070, 5, None),
    ("qwen3.5-27b", 0, 16, (1, 10, 18, 27, 35, 44, 52, 61), 64, 248077, 6, 4096),
    ("qwen3.5-27b", 1, 16, None, 64, None, 5, None),
    ("qwen3.5-35b-a3b", 0, 16, (1, 6, 11, 16, 22, 27, 32, 37), 40, 248077, 6, 4096),
    ("qwen3.5-35b-a3b", 1, 16, (1, 10, 19, 28, 37), 40, None, 8, None),
    ("qwen3.5-122b-a10b", 0, 16, (1, 7, 14, 20, 26, 32, 39, 45), 48, 248077, 6, 4096),
    ("qwen3.5-122b-a10b", 1, 16, None, 48, None, 4, 2048),
    ("qwen3.6-27b", 0, 16, (1, 16, 31, 46, 61), 64, 248070, 5, 2048),
    ("qwen3.6-35b-a3b", 0, 16, (1, 6, 11, 16, 22, 27, 32, 37), 40, 248077, 6, 4096),
    ("gemma-4-31b", 0, 16, (1, 12, 23, 35, 46, 57), 60, 4, 5, 2048),
    ("gemma-4-26b-a4b", 0, 16, (1, 6, 11, 17, 22, 27), 30, 4, 5, 2048),
    ("kimi-k2.5", 0, 8, (1, 12, 24, 35, 47, 58), 61, 163838, 6, None),
    ("qwen3.8-27b-dflash2", 0, 8, (5, 19, 33, 47, 61), 64, 248070, 5, 2048),
    ("muse-glimmer-30b-dflash2", 0, 16, (1, 13, 25, 37, 49), 52, 201818, 5, 2048),
]


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row[0]}@{row[1]}")
def test_the_catalogue_repeats_the_published_configs(row):
    pair_id, revision, block, taps, depth, mask, layers, window = row
    facts = load_pair(pair_id).drafts[revision]
    assert facts.block_size == block
    assert facts.target_layer_ids == taps
    assert facts.num_target_layers == depth
    assert facts.mask_token_id == mask
    assert facts.num_layers == layers
    assert facts.sliding_window == window


def test_an_embedded_draft_has_the_block_its_preset_offers_before_it_is_opened():
    for pair_id in ("demo", "smollm2-135m"):
        draft = load_pair(pair_id).draft
        config = json.loads((PRESETS.parent / draft.path / "config.json").read_text())
        assert draft.block_size == config["block_size"]


def test_thinking_is_known_where_it_decides_acceptance():
    assert load_pair("qwen3-4b").draft.thinking is False
    assert load_pair("qwen3-8b").draft.thinking is False
    assert load_pair("qwen3.5-35b-a3b").earlier_drafts[0].thinking is True


def test_a_fully_published_pair_can_be_opened_and_an_unknown_one_says_why():
    pair = load_pair("qwen3-8b").model_pair()
    assert (pair.target_id, pair.draft_id) == ("Qwen/Qwen3-8B", "z-lab/Qwen3-8B-DFlash-b16")
    assert (pair.block_size, pair.mask_token_id) == (16, 151669)
    with pytest.raises(PairError, match="kimi-k2.6"):
        load_pair("kimi-k2.6").model_pair()


def test_the_paper_s_headline_is_in_the_catalogue():
    rows = [
        row
        for table in load_pair("qwen3-8b").published
        if table.where == "Table 1" and table.temperature == 0
        for row in table.rows
    ]
    best = max(rows, key=lambda row: row.speedup or 0)
    assert (best.benchmark, best.speedup, best.tau) == ("MATH-500", 6.08, 7.87)


@pytest.mark.parametrize("set_id", preset_ids("prompts"))
def test_every_prompt_set_has_a_dozen_different_prompts(set_id):
    prompts = load_prompt_set(set_id).prompts
    assert len({prompt.turns for prompt in prompts}) == len(prompts) >= 12
    assert all(turn.strip() for prompt in prompts for turn in prompt.turns)


def test_the_domains_of_the_advisor_have_prompts_and_so_have_other_languages():
    assert {"chat", "code", "math", "json", "translate", "edit"} <= set(preset_ids("prompts"))
    text = "".join(t for p in load_prompt_set("german").prompts for t in p.turns)
    assert "ä" in text and "ß" in text


def test_reading_pairs_imports_neither_torch_nor_a_web_library():
    code = (
        "import sys; from dflash.presets import load_pair; load_pair('qwen3-8b');"
        "sys.exit(bool({'torch', 'transformers', 'gradio', 'httpx'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_read_can_be_written_again_however_deep_it_is():
    def nested(depth: int) -> str:
        return "[" * depth + "1" + "]" * depth

    assert yaml.safe_dump(parse_yaml(nested(64), name="x"), default_flow_style=True)
    with pytest.raises(PresetError, match="nested more than 64 deep"):
        parse_yaml(nested(65), name="x")
