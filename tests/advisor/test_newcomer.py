"""Someone who has only a draft's config.json, in whatever dialect, gets a right answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import doctor_configs as configs
import pytest

from advisor.__main__ import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def nothing_measured(tmp_path, monkeypatch):
    """No measurement of this machine."""
    monkeypatch.setenv("DFLASH_MEASUREMENTS", str(tmp_path / "measurements"))


def recommend(capsys, *argv) -> dict:
    assert main(["recommend", "--json", *map(str, argv)]) == 0
    return json.loads(capsys.readouterr().out)


def notes(found: dict) -> dict[str, dict]:
    return {finding["id"]: finding for finding in found["findings"]}


@pytest.mark.parametrize(
    ("config", "block", "taps", "mask", "window", "whose"),
    [
        (configs.zlab_4b(), 16, [1, 9, 17, 25, 33], 151669, None, "z-lab/Qwen3-4B-DFlash-b16"),
        (configs.assistant(), 16, [1, 13, 25, 37, 49], 201818, 2048, "meta-models/"),
        (configs.gguf_metadata(), 16, [1, 9, 17, 25, 33], 151669, None, "z-lab/Qwen3-"),
    ],
)
def test_a_lone_config_gets_all_four_knobs_and_is_told_whose_it_looks_like(
    config, block, taps, mask, window, whose, tmp_path, capsys
):
    found = recommend(capsys, "--draft", configs.write_json(tmp_path / "d.json", config))
    knobs = found["knobs"]
    assert (knobs["block_size"]["value"], knobs["target_layer_ids"]["value"]) == (block, taps)
    assert (knobs["mask_token_id"]["value"], knobs["sliding_window_size"]["value"]) == (
        mask,
        window,
    )
    assert {knob["rung"] for knob in knobs.values()} == {"checkpoint"}
    assert whose in notes(found)["draft.resembles-published"]["message"]


def test_a_lone_config_is_no_model_that_an_engine_could_load(tmp_path, capsys):
    path = configs.write_json(tmp_path / "some-draft.json", configs.zlab_4b())
    found = recommend(capsys, "--draft", path)
    assert "some-draft" not in "".join(found["exports"].values())
    assert "DRAFT" in found["exports"]["vllm"]
    (tmp_path / "config.json").write_text(json.dumps(configs.zlab_4b()))
    found = recommend(capsys, "--draft", tmp_path / "config.json")
    assert str(tmp_path) in found["exports"]["vllm"]


def test_the_verifier_a_speculators_draft_names_lends_its_sizes_and_nothing_else(tmp_path, capsys):
    config = configs.speculators()
    config["speculators_config"]["verifier"]["name_or_path"] = "Qwen/Qwen3-8B"
    config["block_size"] = 8  # no published draft of that target has this block
    path = configs.write_json(tmp_path / "d.json", config)
    found = recommend(capsys, "--draft", path, "--hardware", "h200")
    assert found["estimate"]["memory_bytes"]["value"] > 16e9
    assert found["break_even_tau"]["value"] is not None
    assert found["estimate"]["tau"]["value"] is None


def test_the_embedded_pair_is_read_from_its_own_files_whichever_half_is_named(capsys):
    wanted = json.loads((ROOT / "presets/models/demo/draft/config.json").read_text("utf-8"))
    for given in (["--draft", "demo"], ["--target", "demo"]):
        found = recommend(capsys, *given)
        taps, mask = found["knobs"]["target_layer_ids"], found["knobs"]["mask_token_id"]
        assert taps["value"] == wanted["dflash_config"]["target_layer_ids"]
        assert mask["value"] == wanted["dflash_config"]["mask_token_id"]
        assert (taps["rung"], mask["rung"]) == ("checkpoint", "checkpoint")
        assert found["estimate"]["memory_bytes"]["value"] > 0
        assert str(ROOT) not in found["exports"]["vllm"]


def test_a_window_without_a_prompt_length_stays_as_trained(tmp_path, capsys):
    found = recommend(capsys, "--draft", "qwen3-8b")
    window = found["knobs"]["sliding_window_size"]
    assert (window["value"], window["rung"]) == (None, "published")
    assert "--prompt-tokens" in window["reason"]
    broken = configs.changed(
        configs.zlab_4b(), layer_types=["sliding_attention"] * 5, sliding_window=None
    )
    path = configs.write_json(tmp_path / "d.json", broken)
    assert main(["recommend", "--json", "--draft", path]) == 1
    found = json.loads(capsys.readouterr().out)
    assert "checkpoint" not in found["knobs"]["sliding_window_size"]["rungs"]


def test_the_text_ends_with_what_to_type_next(tmp_path, capsys):
    assert main(["recommend", "--draft", "qwen3-8b"]) == 0
    last = capsys.readouterr().out.strip().splitlines()
    assert last[-2].strip().startswith("vllm serve Qwen/Qwen3-8B")
    assert "python -m advisor export --from" in last[-1]


def test_the_first_recommendation_of_a_process_takes_under_fifty_milliseconds_of_cpu():
    code = (
        "import time\n"
        "from advisor.answer import recommend_for\n"
        "from advisor.gather import Request\n"
        "start = time.process_time()\n"
        "recommend_for(Request(draft='qwen3-8b', hardware='rtx-4090', task='code'))\n"
        "print(time.process_time() - start)"
    )
    spent = []
    for _ in range(3):  # the least of three: a busy machine only ever adds
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
        )
        spent.append(float(run.stdout))
    assert min(spent) < 0.05  # 0.026 s on a Xeon core
