"""gpt-oss-style drafts: eight layers, attention bias, yarn, six to eight taps."""

from __future__ import annotations

import json

import pytest
import torch
from backends import LONG, emitted, own_answer
from tiny_models import build_draft, build_target

from dflash import load_draft
from dflash.drafts import ModuleDraft, open_draft
from dflash.generate import decode
from dflash.schema import Cycle, SamplingParams
from dflash.targets import TransformersTarget, open_target

TAPS = (1, 2, 4, 5, 7, 8, 9, 10)
YARN = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}


def gpt_oss_draft(target, num_taps: int):
    """A random draft in the shape of z-lab's for gpt-oss, whose biases and yarn can be seen."""
    draft = build_draft(
        target, layers=8, block_size=8, taps=TAPS[:num_taps], attention_bias=True,
        rope_parameters=YARN, max_position_embeddings=131072,
    )  # fmt: skip
    torch.manual_seed(1)
    for name, parameter in draft.named_parameters():
        if name.endswith("proj.bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    return draft


@pytest.fixture(scope="module", params=["gpt_oss", "qwen3"])
def target(request):
    """Twelve layers, so that eight taps are eight layers."""
    return build_target(request.param, num_hidden_layers=12)


def run(target, draft, block_size: int) -> list:
    return list(
        decode(target, draft, LONG, sampling=SamplingParams(max_new_tokens=20),
               block_size=block_size, stop_ids=frozenset(), context_length=512)
    )  # fmt: skip


def cycles(events) -> list:
    return [(e.draft_ids, e.num_accepted) for e in events if isinstance(e, Cycle)]


@pytest.mark.parametrize("num_taps", [6, 8])
def test_the_answer_is_the_targets_own_and_both_paths_draft_the_same(target, num_taps):
    answer = own_answer(target, LONG, 20)
    draft = gpt_oss_draft(target, num_taps)
    taps = TAPS[:num_taps]
    for block_size in (2, 5, 8):
        fast = run(open_target(target, taps), open_draft(draft, target), block_size)
        plain = run(TransformersTarget(target, taps), ModuleDraft(draft, target), block_size)
        assert emitted(fast) == emitted(plain) == answer
        assert cycles(fast) == cycles(plain)


def test_a_published_folder_loads_with_its_biases_and_its_yarn(target, tmp_path):
    draft = gpt_oss_draft(target, 6)
    draft.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "gpt_oss"}))
    again = load_draft(tmp_path)
    assert len(again.layers) == 8 and again.fc.in_features == 6 * 64
    assert again.layers[7].self_attn.k_proj.bias.abs().sum() > 0
    torch.testing.assert_close(again.rotary_emb.inv_freq, draft.rotary_emb.inv_freq)
    assert again.rotary_emb.attention_scaling == pytest.approx(1 + 0.1 * torch.tensor(32.0).log())
    assert cycles(run(open_target(target, TAPS[:6]), open_draft(again, target), 5)) == cycles(
        run(open_target(target, TAPS[:6]), open_draft(draft, target), 5)
    )


def test_mlx_drafts_what_torch_drafts(tmp_path):
    pytest.importorskip("mlx.core")
    from mlx_lm.utils import load_model

    from dflash import generate_mlx, model_mlx

    target = build_target("qwen3", num_hidden_layers=12)
    target.save_pretrained(tmp_path / "target")
    config = tmp_path / "target/config.json"
    # Published configs have it; transformers 5 writes it one level down, which mlx-lm 0.31 ignores.
    config.write_text(json.dumps(json.loads(config.read_text()) | {"rope_theta": 1e4}))
    draft = gpt_oss_draft(target, 6)
    draft.save_pretrained(tmp_path / "draft")
    model, _ = load_model(tmp_path / "target")
    sampling = SamplingParams(max_new_tokens=20)
    events = generate_mlx.decode(
        generate_mlx.MlxTarget(model, list(TAPS[:6])), model_mlx.load_draft(tmp_path / "draft"),
        LONG, sampling=sampling, block_size=8, stop_ids=frozenset(), context_length=512,
    )  # fmt: skip
    theirs = run(TransformersTarget(target, TAPS[:6]), ModuleDraft(draft, target), 8)
    assert cycles(list(events)) == cycles(theirs)
