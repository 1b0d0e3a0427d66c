"""Whatever a config or a measurement file holds, recommend answers or refuses in one line."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.__main__ import main
from advisor.exports import FORMATS

NUMBERS = st.one_of(
    st.integers(-5, 64),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from([0, 1, 16, 4096, 151669, 10**400]),
)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=8))
JUNK = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
KEYS = (
    "block_size", "num_target_layers", "num_hidden_layers", "hidden_size", "intermediate_size",
    "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "layer_types",
    "sliding_window", "mask_token_id", "target_layer_ids", "num_experts", "num_experts_per_tok",
    "max_position_embeddings", "rope_parameters", "rope_theta", "torch_dtype", "eos_token_id",
    "quantization_config", "text_config", "_name_or_path", "model_type", "architectures",
)  # fmt: skip
CONFIGS = st.fixed_dictionaries(
    {"dflash_config": st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=5)},
    optional=dict.fromkeys(KEYS, JUNK),
)
SETTINGS = settings(
    max_examples=int(os.environ.get("DFLASH_FUZZ_EXAMPLES", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def answer(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any] | None:
    """Run the command line as a user does; check what every outcome must look like."""
    try:
        code = main(["recommend", "--json", *argv])
    except SystemExit as stopped:
        code = stopped.code
    out, err = capsys.readouterr()
    if code == 2:
        assert out == ""
        assert len(err.strip().splitlines()) == 1
        return None
    assert code in (0, 1)
    assert err == ""

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is not JSON")

    return json.loads(out, parse_constant=refuse)


@SETTINGS
@given(config=CONFIGS, target=st.none() | CONFIGS, prompt=st.none() | st.integers(0, 10**9))
def test_any_config_gets_an_answer(tmp_path, capsys, config, target, prompt):
    draft_path, target_path = tmp_path / "draft.json", tmp_path / "target.json"
    draft_path.write_text(json.dumps(config))
    argv = ["--draft", str(draft_path), "--hardware", "h200", "--tau", "3@16"]
    if target is not None:
        target_path.write_text(json.dumps(target))
        argv += ["--target", str(target_path)]
    if prompt is not None:
        argv += ["--prompt-tokens", str(prompt)]
    found = answer(capsys, *argv)
    if found is not None:
        check_invariants(found)


@SETTINGS
@given(costs=JUNK | st.fixed_dictionaries({"ar_step_s": NUMBERS, "draft_s": st.dictionaries(st.sampled_from(["1", "2", "4", "8", "016", "x", "²"]), NUMBERS, max_size=4), "verify_s": st.dictionaries(st.sampled_from(["1", "2", "4", "8"]), NUMBERS, max_size=4)}), taus=JUNK | st.lists(NUMBERS, max_size=8))  # fmt: skip
def test_any_measurement_file_is_used_or_refused(tmp_path, capsys, costs, taus):
    costs_path, taus_path = tmp_path / "costs.json", tmp_path / "taus.json"
    costs_path.write_text(json.dumps(costs))
    taus_path.write_text(json.dumps(taus))
    found = answer(capsys, "--costs", str(costs_path), "--tau-per-position", str(taus_path))
    if found is not None:
        check_invariants(found)


@SETTINGS
@given(text=st.text(max_size=200) | st.binary(max_size=200), option=st.sampled_from(["--costs", "--tau-per-position", "--draft", "--target", "--tokenizer"]))  # fmt: skip
def test_any_bytes_as_a_file_never_trace_back(tmp_path, capsys, text, option):
    path = tmp_path / "file.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    answer(capsys, option, str(path))


@SETTINGS
@given(option=st.sampled_from(["--params", "--prompt-tokens", "--tau", "--temperature", "--concurrency", "--hardware", "--task", "--mode"]), value=st.text(max_size=20) | st.floats().map(str) | st.integers().map(str))  # fmt: skip
def test_any_option_value_is_used_or_refused_in_one_line(capsys, option, value):
    found = answer(capsys, f"{option}={value}")
    if found is not None:
        check_invariants(found)


@SETTINGS
@given(data=st.data(), place=st.sampled_from(["", "knobs", "estimate", "inputs", "knobs.block_size", "knobs.target_layer_ids"]), junk=JUNK)  # fmt: skip
def test_any_recommendation_file_is_exported_or_refused(tmp_path, capsys, data, place, junk):
    assert main(["recommend", "--json", "--draft", "qwen3-8b", "--prompt-tokens", "9000"]) == 0
    document = json.loads(capsys.readouterr().out)
    inner = document
    for step in filter(None, place.split(".")):
        inner = inner[step]
    inner[data.draw(st.sampled_from([*inner, "surprise"]))] = junk
    path = tmp_path / "rec.yaml"
    path.write_text(json.dumps(document))
    code = main(["export", "--from", str(path), "--to", data.draw(st.sampled_from(FORMATS))])
    out, err = capsys.readouterr()
    assert code in (0, 2)
    assert (out == "", len(err.strip().splitlines())) == (code == 2, 1 if code == 2 else 0)


def check_invariants(found: dict[str, Any]) -> None:
    """The contract's shape, and that every answer stands on a rung that is shown."""
    assert found["verdict"] in ("use", "try", "off")
    order = ["measured", "checkpoint", "published", "modelled", "guide"]
    assert set(found["knobs"]) == {
        "block_size", "target_layer_ids", "sliding_window_size", "mask_token_id",
    }  # fmt: skip
    for knob in found["knobs"].values():
        assert [rung for rung in order if rung in knob["rungs"]] == list(knob["rungs"])
        if knob["rung"] is None:
            assert knob["value"] is None
        else:
            assert knob["rung"] == next(iter(knob["rungs"]))
            assert knob["value"] == knob["rungs"][knob["rung"]] or "held to" in knob["reason"]
    for estimate in found["estimate"].values():
        assert set(estimate) == {"value", "low", "high", "unit", "source", "basis"}
        assert (estimate["value"] is None) == (estimate["source"] == "unknown")
        if estimate["value"] is not None:
            assert math.isfinite(estimate["value"])
            assert estimate["value"] >= 0
