"""The command line's contract: JSON shape, exit codes, one line on stderr, files that reopen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.__main__ import main
from advisor.cli_recommend import params
from advisor.exports import yaml_file

ROOT = Path(__file__).resolve().parents[2]
COSTS = {
    "ar_step_s": 0.01,
    "draft_s": {"2": 0.002, "4": 0.002, "8": 0.0025, "16": 0.003},
    "verify_s": {"2": 0.0105, "4": 0.011, "8": 0.012, "16": 0.02},
}
RATES = [0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1]
QWEN3_8B_DRAFT = {
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
    "num_target_layers": 36, "num_hidden_layers": 5, "hidden_size": 4096,
    "intermediate_size": 12288, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 151936, "layer_types": ["full_attention"] * 5,
    "rope_theta": 1_000_000, "max_position_embeddings": 40960,
}  # fmt: skip


@pytest.fixture
def files(tmp_path):
    """Paths of a costs file, an acceptance file and a draft config."""
    content = {"costs.json": COSTS, "rates.json": RATES, "draft.json": QWEN3_8B_DRAFT}
    for name, value in content.items():
        (tmp_path / name).write_text(json.dumps(value))
    return tmp_path


def recommend(capsys, *argv) -> dict:
    assert main(["recommend", "--json", *map(str, argv)]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_json_has_the_contract_s_keys(capsys, files):
    found = recommend(
        capsys, "--costs", files / "costs.json", "--tau-per-position", files / "rates.json"
    )
    wanted = ("mode", "verdict", "knobs", "estimate", "alternatives", "findings", "exports")
    assert set(wanted) <= set(found)
    assert found["knobs"]["block_size"]["value"] == 8
    assert set(found["knobs"]["block_size"]) == {"value", "rung", "tunable", "reason", "rungs"}
    assert set(found["estimate"]) == {"tau", "speedup", "tpot_s", "memory_bytes"}
    engines = {"vllm", "sglang", "llamacpp", "mlx", "transformers", "tensorrt-llm"}
    assert set(found["exports"]) == engines


def test_a_draft_config_alone_is_answered_from_the_checkpoint(capsys, files):
    found = recommend(capsys, "--draft", files / "draft.json")
    values = {name: knob["value"] for name, knob in found["knobs"].items()}
    assert values == {
        "block_size": 16, "target_layer_ids": [1, 9, 17, 25, 33], "sliding_window_size": None,
        "mask_token_id": 151669,
    }  # fmt: skip
    assert found["mode"] == "serve"


def test_a_nameless_config_of_a_published_draft_is_recognised_but_nothing_is_assumed(capsys, files):
    found = recommend(capsys, "--draft", files / "draft.json")
    notes = {finding["id"]: finding for finding in found["findings"]}
    assert "z-lab/Qwen3-8B-DFlash-b16" in notes["draft.resembles-published"]["message"]
    assert found["estimate"]["tau"]["value"] is None
    named = recommend(capsys, "--draft", files / "draft.json", "--target", "Qwen/Qwen3-8B")
    assert named["estimate"]["tau"]["source"] == "published"
    assert not any(f["id"] == "draft.resembles-published" for f in named["findings"])


def test_costs_and_machines_that_say_too_little_are_named(capsys, files):
    found = recommend(capsys, "--costs", files / "costs.json", "--tau", "4@8", "--concurrency", "8")
    assert any(f["id"] == "costs.concurrency" for f in found["findings"])


def test_a_broken_pair_is_advised_against_with_exit_code_1(capsys, files):
    broken = json.loads(json.dumps(QWEN3_8B_DRAFT))
    del broken["dflash_config"]["mask_token_id"]
    (files / "draft.json").write_text(json.dumps(broken))
    assert main(["recommend", "--json", "--draft", str(files / "draft.json")]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "off"
    assert found["knobs"]["mask_token_id"]["value"] is None


def test_a_catalogue_pair_is_known_by_its_id_and_its_hub_id(capsys):
    for draft in ("qwen3-8b", "z-lab/Qwen3-8B-DFlash-b16"):
        found = recommend(capsys, "--draft", draft, "--task", "math", "--hardware", "h200")
        assert found["estimate"]["tau"]["source"] == "published"
        assert {knob["rung"] for knob in found["knobs"].values()} <= {"published", "guide"}
        assert 6 < found["estimate"]["tau"]["value"] < 8
        assert found["verdict"] == "use"


def test_the_text_of_a_draft_to_train_has_its_plan_with_a_source_for_every_figure(capsys):
    main(["recommend", "--target", "qwen3-8b", "--mode", "train"])
    plan = capsys.readouterr().out.split("The draft to train:\n")[1].split("\n\n")[0].splitlines()
    assert len(plan) == 5
    assert all("  [published] " in line or "  [modelled] " in line or "unknown: " in line
               for line in plan)  # fmt: skip
    assert any(line.split()[:3] == ["loss_decay_gamma", "7", "[published]"] for line in plan)


def test_a_saved_recommendation_reopens_to_the_same_state(capsys, tmp_path):
    path = tmp_path / "rec.yaml"
    recommend(capsys, "--target", "qwen3.5-27b", "--prompt-tokens", "9000", "--output", path)
    reopened = yaml_file.load(path)
    assert yaml_file.parse(yaml_file.dump(reopened), name="again") == reopened
    assert reopened.inputs["prompt_tokens"] == 9000
    assert main(["export", "--from", str(path), "--to", "yaml"]) == 0
    assert capsys.readouterr().out == path.read_text()


def test_the_printed_json_is_exported_as_well(capsys, tmp_path):
    found = recommend(capsys, "--draft", "qwen3-8b")
    contract = ("mode", "verdict", "knobs", "estimate", "alternatives", "findings", "exports")
    for kept in (found, {key: found[key] for key in contract}):
        (tmp_path / "rec.json").write_text(json.dumps(kept))
        assert main(["export", "--from", str(tmp_path / "rec.json"), "--to", "vllm"]) == 0
        assert '"num_speculative_tokens": 15' in capsys.readouterr().out


def test_export_prints_the_command_and_json_on_request(capsys, tmp_path):
    path = tmp_path / "rec.yaml"
    recommend(capsys, "--draft", "qwen3-8b", "--output", path)
    assert main(["export", "--from", str(path), "--to", "sglang"]) == 0
    assert "--speculative-num-draft-tokens 16" in capsys.readouterr().out
    assert main(["export", "--from", str(path), "--to", "vllm", "--json"]) == 0
    assert '"num_speculative_tokens": 15' in json.loads(capsys.readouterr().out)["command"]


@pytest.mark.parametrize(
    ("text", "count"),
    [("4e9", 4 * 10**9), ("4B", 4 * 10**9), ("135M", 135 * 10**6), ("0.5b", 5 * 10**8), ("1.5T", 15 * 10**11)],
)  # fmt: skip
def test_parameter_counts_are_read_in_every_spelling(text, count):
    assert params(text) == count


@pytest.mark.parametrize(
    "argv",
    [
        ["recommend", "--params", "nan"],
        ["recommend", "--params", "-4B"],
        ["recommend", "--params", "many"],
        ["recommend", "--prompt-tokens", "-1"],
        ["recommend", "--concurrency", "0"],
        ["recommend", "--temperature", "inf"],
        ["recommend", "--tau", "0.9"],
        ["recommend", "--tau", "17@16"],
        ["recommend", "--tau", "17"],
        ["recommend", "--task", "poetry"],
        ["recommend", "--hardware", "h2000"],
        ["recommend", "--draft", "/nowhere/config.json"],
        ["recommend", "--costs", "/nowhere.json"],
        ["recommend", "--bogus"],
        ["recommend", "--output", "/nowhere/at/all.yaml"],
        ["export", "--from", "/nowhere.yaml", "--to", "vllm"],
        ["export", "--to", "vllm"],
        ["export", "--from", "x.yaml", "--to", "ollama"],
        [],
    ],
)
def test_unusable_input_exits_2_with_one_line(capsys, argv):
    try:
        code = main(argv)
    except SystemExit as stopped:
        code = stopped.code
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "schema: other",
        "schema: dflash-playground/recommendation\nschema_version: 99",
        "schema: dflash-playground/recommendation\nschema_version: 1\nrecommendation: {mode: fly}",
        "schema: dflash-playground/recommendation\nschema_version: 1",
        "a: &a [*a]",
        "[" * 5000,
    ],
)
def test_a_foreign_or_broken_file_is_refused_in_one_line(capsys, tmp_path, text):
    path = tmp_path / "rec.yaml"
    path.write_text(text)
    assert main(["export", "--from", str(path), "--to", "vllm"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_terminal_that_cannot_show_a_name_gets_it_escaped(files, tmp_path):
    named = {**QWEN3_8B_DRAFT, "_name_or_path": "mine/caf\u00e9"}
    (files / "draft.json").write_text(json.dumps(named))
    command = [sys.executable, "-m", "advisor", "recommend", "--draft", str(files / "draft.json")]
    command += ["--prompt-tokens", "9000", "--output", str(tmp_path / "rec.yaml")]
    env = {"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    assert subprocess.run(command, cwd=ROOT, env=env, capture_output=True).returncode == 0
    export = [sys.executable, "-m", "advisor", "export", "--from", str(tmp_path / "rec.yaml")]
    done = subprocess.run([*export, "--to", "sglang"], cwd=ROOT, env=env, capture_output=True)
    assert (done.returncode, b"caf\\xe9" in done.stdout) == (0, True)


def test_the_module_runs_without_torch_or_gradio():
    code = (
        "import sys; from advisor.__main__ import main\n"
        "main(['recommend', '--params', '4B', '--prompt-tokens', '200', '--json'])\n"
        "assert not {'torch', 'gradio', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["knobs"]["block_size"]["rungs"]["guide"] == 2
