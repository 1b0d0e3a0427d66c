"""Target families: what a draft gets from each, and which are refused, with the reason."""

from __future__ import annotations

import math

import pytest
import torch
import transformers
from tiny_models import SHAPE, build_draft, build_target

from dflash.borrowed import borrow
from dflash.drafts import open_draft
from dflash.errors import PairError
from dflash.generate import decode
from dflash.schema import SamplingParams
from dflash.targets import TransformersTarget, open_target

IDS = torch.tensor([[5, 17, 3]])
PLAIN = ("llama", "sliding", "qwen3", "qwen3_moe", "qwen3_next", "hybrid", "gpt_oss")


@pytest.mark.parametrize("kind", PLAIN)
def test_a_draft_gets_the_rows_of_a_family_that_uses_them_as_they_are(kind):
    target = build_target(kind)
    rows = target.get_input_embeddings().weight[IDS]
    assert borrow(target).is_plain
    torch.testing.assert_close(borrow(target).embed(IDS), rows)
    torch.testing.assert_close(borrow(target, scale=0.5).embed(IDS), rows * 0.5)


@pytest.mark.parametrize("kind", ["gemma3", "gemma4"])
def test_a_draft_of_a_gemma_gets_embeddings_scaled_as_the_target_scales_them(kind):
    target = build_target(kind)
    rows = target.get_input_embeddings().weight[IDS]
    torch.testing.assert_close(borrow(target).embed(IDS), rows * math.sqrt(64))
    torch.testing.assert_close(borrow(target, scale=0.5).embed(IDS), rows * math.sqrt(64) / 2)
    assert not borrow(target).is_plain


def test_the_targets_own_soft_cap_stays_out_of_the_drafts_logits():
    """Gemma 4 caps its logits at 30; a draft is capped by what its own config says."""
    target = build_target("gemma4")
    hidden = 50 * torch.randn(3, 64)
    raw = borrow(target).logits(hidden)
    assert raw.abs().max() > 30
    torch.testing.assert_close(raw, target.lm_head(hidden))
    torch.testing.assert_close(build_draft(target).shape_logits(raw), raw)
    capped = build_draft(target, final_logit_softcapping=30.0, output_multiplier=0.5)
    torch.testing.assert_close(capped.shape_logits(raw), 30 * torch.tanh(raw * 0.5 / 30))


def lfm2():
    config = SHAPE | {"pad_token_id": 0, "layer_types": ["conv", "full_attention"] * 2}
    return transformers.Lfm2ForCausalLM(transformers.Lfm2Config(**config))


def mamba():
    config = transformers.MambaConfig(
        vocab_size=96, hidden_size=64, num_hidden_layers=4, state_size=8
    )
    return transformers.MambaForCausalLM(config)


def minimax():
    config = SHAPE | {
        "pad_token_id": 0,
        "num_local_experts": 2,
        "head_dim": 16,
        "layer_types": ["linear_attention", "full_attention"] * 2,
    }
    return transformers.MiniMaxForCausalLM(transformers.MiniMaxConfig(**config))


def granite():
    return transformers.GraniteForCausalLM(
        transformers.GraniteConfig(**SHAPE, embedding_multiplier=12.0)
    )


def gpt2():
    shape = {"vocab_size": 96, "n_embd": 64, "n_layer": 4, "n_head": 4}
    special = {"bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, **special))


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lfm2, "layer 0 of Lfm2ForCausalLM keeps a running state that cannot be rolled back"),
        (mamba, "layer 0 of MambaForCausalLM keeps a running state"),
        (minimax, "MiniMaxForCausalLM keeps a cache of its own kind"),
        (granite, "a granite target changes its embeddings before the first layer"),
        (gpt2, "GPT2LMHeadModel has no list of decoder layers"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_family_that_would_be_a_guess_is_refused_before_anything_runs(build, reason):
    target = build().eval()
    with pytest.raises(PairError, match=reason) as caught:
        open_target(target, (0, 2))
        open_draft(build_draft(target), target)
    assert caught.value.hint


def test_the_baseline_of_a_refused_family_still_runs():
    target = mamba().eval()
    events = list(
        decode(
            TransformersTarget(target, ()), None, [5, 17, 3], block_size=1,
            sampling=SamplingParams(max_new_tokens=4), stop_ids=frozenset(), context_length=64,
        )
    )  # fmt: skip
    assert events[-1].num_output_tokens == 4
