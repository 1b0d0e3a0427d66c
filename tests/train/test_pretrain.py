"""Training the target, on a very small model: it learns, resumes, and writes a plain folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from dflash.train.corpus import KINDS
from dflash.train.pretrain import matmul_dtype, pretrain
from dflash.train.target_recipe import TargetRecipe

SMALL = TargetRecipe(
    vocab_size=512,
    hidden_size=32,
    intermediate_size=64,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=32,
    num_steps=2,
    tokens_per_step=1200,
    eval_num=1,
    max_answer_tokens=8,
    tokenizer_tasks=60,
    share_tasks=20,
    compiled=False,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("target")
    results = pretrain(folder, recipe=SMALL)
    assert [result.kind for result in results] == list(KINDS)
    assert all(result.num == 1 for result in results)
    return folder


def _report(folder: Path) -> dict[str, object]:
    report: dict[str, object] = json.loads((folder / "training_report.json").read_text())
    return report


def test_the_folder_loads_as_an_ordinary_model_in_bf16(trained: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(trained)
    tokenizer = AutoTokenizer.from_pretrained(trained)
    assert model.dtype == torch.bfloat16
    assert model.config.tie_word_embeddings
    assert model.config.vocab_size == len(tokenizer) == SMALL.vocab_size
    assert model.generation_config.eos_token_id == [tokenizer.eos_token_id]
    assert (
        model.generation_config.pad_token_id == tokenizer.pad_token_id == model.config.pad_token_id
    )
    assert model.config.bos_token_id == tokenizer.bos_token_id
    out = model.generate(torch.tensor([[0, 2, 9, 1, 3]]), max_new_tokens=3)
    assert out.shape[1] <= 8


def test_a_killed_training_goes_on_where_it_stopped(trained: Path) -> None:
    before = _report(trained)
    pretrain(trained, recipe=replace(SMALL, num_steps=3))
    after = _report(trained)
    tokens = int(str(before["training_tokens"]))
    assert tokens < int(str(after["training_tokens"])) < 2 * tokens


def test_training_lowers_the_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        pretrain(tmp_path, recipe=replace(SMALL, num_steps=40, warmup_steps=5, drill_steps=0))
    losses = [float(r.args[1]) for r in caplog.records if r.msg.startswith("step %d loss")]  # type: ignore[index, arg-type]
    assert len(losses) == 2
    assert losses[-1] < losses[0] - 0.3


def test_a_time_limit_ends_the_training_early(tmp_path: Path) -> None:
    pretrain(tmp_path, recipe=replace(SMALL, num_steps=10_000, minutes=1e-6))
    assert int(str(_report(tmp_path)["training_tokens"])) <= SMALL.tokens_per_step


def test_the_matmul_dtype_is_one_of_the_two() -> None:
    assert matmul_dtype() in (torch.float32, torch.bfloat16)
