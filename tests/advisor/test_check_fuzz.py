"""Whatever a file holds, ``check`` answers with findings or one clear error, never a traceback."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from doctor_configs import (
    HEALTHY,
    draft_shapes,
    gguf_metadata,
    target_8b,
    write_gguf,
    write_safetensors,
    zlab_4b,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.check import check_case
from advisor.checkpoint import read_draft, read_target
from advisor.cli_check import SettingError, parse_settings, report_text
from advisor.gguf_header import read_gguf
from advisor.rules import Case, Settings
from advisor.safetensors_header import read_weights_header
from advisor.schema import ENGINES
from advisor.tokenizer import read_tokenizer
from dflash.errors import CheckpointError, DFlashError

PARTS = range(10)  # of 1,000 each: hypothesis remembers every example of a run
SLOW = settings(
    max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def _all_keys(value: Any) -> set[str]:
    if not isinstance(value, dict):
        return set()
    return set(value) | {key for inner in value.values() for key in _all_keys(inner)}


KEYS = sorted(
    {key for pair in HEALTHY.values() for config in pair for key in _all_keys(config)}
    | {"text_config", "quantization_config", "rope_scaling", "rope_parameters", "causal", "factor",
       "tie_word_embeddings", "pad_token_id", "target_hidden_size", "sample_from_anchor", "type",
       "_name_or_path", "eos_token", "added_tokens_decoder", "chat_template", "add_bos_token",
       "dflash.mask_token_id", "dflash.attention.sliding_window_pattern", "full_attention",
       "original_max_position_embeddings", "final_logit_softcapping", "ignore", "lm_head"}
)  # fmt: skip
WORDS = st.sampled_from(
    ["full_attention", "sliding_attention", "yarn", "DFlashDraftModel", "dflash", "gpt_oss",
     "z-lab/Qwen3-4B-DFlash-b16", "Qwen/Qwen3-8B", "Qwen/Qwen3-8B-AWQ", "", "\ud800", "\x1b[2J", "🦙"]
)  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 300_000)
    | st.sampled_from([2**31, 2**63, -(2**70), 10**400, 0, 1])
    | st.floats(allow_nan=True, allow_infinity=True)
    | WORDS
    | st.text(max_size=8)
)


def nested(depth: int) -> Any:
    """Lists and objects inside one another, as deep as a JSON reader would still follow."""
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"text_config": value}
    return value


TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=6), inner, max_size=6)
    ),
    max_leaves=6,
) | st.integers(2, 300).map(nested)


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A healthy config with some values, at any depth, replaced by anything."""
    name = draw(st.sampled_from(sorted(HEALTHY)))
    config = copy.deepcopy(HEALTHY[name][draw(st.integers(0, 1))])
    for _ in range(draw(st.integers(0, 4))):
        place = config
        while True:
            key = draw(st.sampled_from(sorted(place) + KEYS))
            if not isinstance(place.get(key), dict) or not place[key] or draw(st.booleans()):
                break
            place = place[key]
        place[key] = draw(TREES)
    return config


CONFIGS = mutated() | st.dictionaries(st.sampled_from(KEYS), TREES, max_size=6)
SHAPES = st.none() | st.dictionaries(
    st.sampled_from(["fc.weight", "layers.0.self_attn.q_proj.weight", "lm_head.weight",
                     "model.embed_tokens.weight", "layers.99999.norm.weight", "x"]),
    st.lists(st.integers(0, 2**40), max_size=3).map(tuple),
    max_size=4,
)  # fmt: skip
SETTINGS = st.builds(
    Settings,
    block_size=st.none() | st.integers(-2, 2**53),
    sliding_window_size=st.none() | st.integers(-2, 2**53),
    mask_token_id=st.none() | st.integers(-2, 2**53),
    target_layer_ids=st.none() | st.lists(st.integers(-2, 80), max_size=9).map(tuple),
    enable_thinking=st.none() | st.booleans(),
    temperature=st.none() | st.floats(-1, 5),
    given=st.sets(st.sampled_from(["block_size", "sliding_window_size"])).map(frozenset),
)


def judge(draft, target, tokenizer, chosen, engine, prompt, new, shapes):
    """What the command does once the files are read, up to the last printed character."""
    reading = read_draft(draft, tensor_shapes=shapes)
    target_reading = read_target(target, tensor_shapes=shapes) if target is not None else None
    tokens = read_tokenizer(tokenizer) if tokenizer is not None else None
    case = Case(
        draft=reading.spec,
        target=target_reading.spec if target_reading else None,
        tokenizer=tokens.spec if tokens else None,
        settings=chosen,
        engine=engine,
        prompt_tokens=prompt,
        max_new_tokens=new,
    )
    report = check_case(case, reading.findings)
    text = json.dumps(report.as_json(), ensure_ascii=True, allow_nan=False)
    assert set(json.loads(text)) == {"draft", "target", "findings"}
    assert report_text(report).isprintable() or "\n" in report_text(report)
    for finding in report.findings:
        assert finding.severity in ("error", "warning", "note")
        assert finding.message and finding.field and len(finding.message) < 1000


ANY_CASE = given(
    draft=CONFIGS,
    target=st.none() | CONFIGS,
    tokenizer=st.none() | CONFIGS,
    chosen=SETTINGS,
    engine=st.sampled_from([None, *ENGINES]),
    prompt=st.none() | st.integers(1, 2**53),
    new=st.none() | st.integers(1, 2**53),
    shapes=SHAPES,
)


@QUICK
@ANY_CASE
def test_no_config_brings_a_traceback(
    draft, target, tokenizer, chosen, engine, prompt, new, shapes
):
    judge(draft, target, tokenizer, chosen, engine, prompt, new, shapes)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
@SLOW
@ANY_CASE
def test_ten_thousand_configs_bring_no_traceback(
    part, draft, target, tokenizer, chosen, engine, prompt, new, shapes
):
    judge(draft, target, tokenizer, chosen, engine, prompt, new, shapes)


@QUICK
@given(st.lists(st.text(max_size=30) | st.sampled_from(["block_size=", "target_layer_ids=[1,"])))
def test_no_setting_brings_a_traceback(pairs):
    try:
        parse_settings(pairs)
    except SettingError as error:
        assert "\n" not in str(error)


def _damaged(data: bytes, edits: list[tuple[int, int]], keep: int) -> bytes:
    damaged = bytearray(data)
    for where, byte in edits:
        damaged[where % len(damaged)] = byte
    return bytes(damaged[: keep % (len(damaged) + 1)])


EDITS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=6)
DAMAGE = given(edits=EDITS, keep=st.just(-1) | st.integers(0, 10**6), noise=st.binary(max_size=40))


def read_damaged(folder, edits, keep, noise):
    """Damage good GGUF and safetensors files and read them: a result or a ``DFlashError``."""
    good = folder / "good.gguf"
    write_gguf(good, gguf_metadata() | {"general.name": "x", "tokenizer.ggml.tokens": ["a", "b"]},
               {"fc.weight": [20480, 4096]})  # fmt: skip
    bad = folder / "bad.gguf"
    bad.write_bytes(_damaged(good.read_bytes(), edits, keep) + noise)
    try:
        raw, shapes = read_gguf(bad)
    except CheckpointError as error:
        assert "\n" not in str(error)
    else:
        judge(raw, target_8b(), None, Settings(), "llamacpp", None, None, shapes)
    weights = folder / "w" / "model.safetensors"
    write_safetensors(weights, draft_shapes(zlab_4b()))
    weights.write_bytes(_damaged(weights.read_bytes(), edits, keep) + noise)
    try:
        header = read_weights_header(weights.parent)
    except DFlashError as error:
        assert "\n" not in str(error)
    else:
        assert header is not None
        judge(zlab_4b(), target_8b(), None, Settings(), None, None, None, header.shapes)


@QUICK
@DAMAGE
def test_no_damaged_weights_file_brings_a_traceback(tmp_path, edits, keep, noise):
    read_damaged(tmp_path, edits, keep, noise)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
@SLOW
@DAMAGE
def test_ten_thousand_damaged_weights_files_bring_no_traceback(part, tmp_path, edits, keep, noise):
    read_damaged(tmp_path, edits, keep, noise)
