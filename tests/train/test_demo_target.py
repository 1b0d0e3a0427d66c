"""The committed demo target: small, plain, and right about prompts it never saw."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from dflash.train.corpus import KINDS, draw_tasks
from dflash.train.exactness import measure_exactness
from dflash.train.target_recipe import TargetRecipe
from dflash.train.tokenizer import MASK

FOLDER = Path(__file__).parents[2] / "presets" / "models" / "demo" / "target"
FRESH_SEED = 4321  # not the seed of the figures in the documentation


def test_the_folder_is_small_and_holds_data_only() -> None:
    files = [path for path in FOLDER.iterdir() if path.is_file()]
    assert {path.suffix for path in files} <= {".json", ".safetensors", ".jinja"}
    assert sum(path.stat().st_size for path in files) < 15.5e6


def test_the_mask_is_one_id_that_no_prompt_holds() -> None:
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    mask_id = tokenizer.convert_tokens_to_ids(MASK)
    assert mask_id not in tokenizer.all_special_ids
    for kind in KINDS:
        for task in draw_tasks(kind, 20, FRESH_SEED):
            assert mask_id not in tokenizer.encode(task.prompt + task.answer + MASK)


def test_the_documented_exactness_is_the_one_the_training_measured() -> None:
    report = json.loads((FOLDER / "training_report.json").read_text())
    for result in report["exactness"]:
        assert result["num"] >= 100
    page = (FOLDER.parents[3] / "docs" / "embedded-pair.md").read_text()
    for result in report["exactness"]:
        assert f"| {result['kind']} | {result['num_right']} / {result['num']} |" in page


@pytest.mark.slow
def test_it_answers_fresh_prompts_rightly() -> None:
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    model = LlamaForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    recipe = replace(TargetRecipe(), eval_num=50, eval_seed=FRESH_SEED)
    for result in measure_exactness(model, tokenizer, recipe):
        assert result.num_right >= 0.85 * result.num, result


def test_it_answers_a_few_fresh_prompts_rightly() -> None:
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    model = LlamaForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    recipe = replace(TargetRecipe(), eval_num=3, eval_seed=FRESH_SEED)
    results = measure_exactness(model, tokenizer, recipe)
    assert sum(result.num_right for result in results) >= 15  # of 18
