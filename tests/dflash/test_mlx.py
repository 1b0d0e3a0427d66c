"""The MLX backend beyond losslessness (test_losslessness.py): refusals, sampling, the guide."""

from __future__ import annotations

import importlib

import pytest
import torch
from backends import LONG, SHORT, Mlx, emitted
from tiny_models import build_draft

from dflash.errors import CheckpointError, PairError
from dflash.schema import SamplingParams

mx = pytest.importorskip("mlx.core")
from dflash.generate_mlx import MlxTarget, decode, target_choice  # noqa: E402
from dflash.model_mlx import load_draft  # noqa: E402


@pytest.fixture(scope="module", params=["llama", "qwen3", "hybrid"])
def pair(request, tmp_path_factory):
    """The same tiny target in torch and in MLX, and a folder to save drafts to."""
    folder = tmp_path_factory.mktemp(request.param)
    mlx = Mlx(request.param, folder)
    return mlx.reference, mlx.model, folder


def run(target, draft, prompt, block_size, **sampling):
    return list(
        decode(target, draft, prompt, sampling=SamplingParams(max_new_tokens=24, **sampling),
               block_size=block_size, stop_ids=frozenset(), context_length=512)
    )  # fmt: skip


def test_a_window_override_is_for_full_attention_drafts_only(pair):
    torch_target, mlx_target, folder = pair
    build_draft(torch_target).save_pretrained(folder / "full")
    build_draft(torch_target, window=8).save_pretrained(folder / "trained")
    draft = load_draft(folder / "full", sliding_window_size=16)
    target = MlxTarget(mlx_target, draft.target_layer_ids)
    plain = emitted(run(target, None, LONG, 1))
    assert emitted(run(target, draft, LONG, 6)) == plain
    with pytest.raises(CheckpointError, match="trained with a window of 8"):
        load_draft(folder / "trained", sliding_window_size=16)


def test_taps_outside_the_target_are_refused_in_words(pair):
    with pytest.raises(PairError, match="reads target layer 9.*has 4 layers"):
        MlxTarget(pair[1], [0, 9])


SMALL = {
    "vocab_size": 96,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
}
GRANITE = SMALL | {
    "logits_scaling": 1.0,
    "attention_multiplier": 1.0,
    "embedding_multiplier": 12.0,
    "residual_multiplier": 1.0,
    "max_position_embeddings": 512,
    "attention_bias": False,
    "mlp_bias": False,
    "rope_theta": 1e4,
}
GPT2 = {
    "n_ctx": 512,
    "n_embd": 64,
    "n_head": 4,
    "n_layer": 4,
    "n_positions": 512,
    "layer_norm_epsilon": 1e-5,
    "vocab_size": 96,
}
LFM2 = SMALL | {
    "norm_eps": 1e-6,
    "max_position_embeddings": 512,
    "conv_bias": False,
    "conv_L_cache": 3,
    "block_dim": 64,
    "block_ff_dim": 96,
    "block_multiple_of": 8,
    "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": False,
    "full_attn_idxs": [1, 3],
    "rope_theta": 1e4,
}


@pytest.mark.parametrize(
    ("family", "shape", "reason"),
    [
        ("granite", GRANITE, "a granite target changes its embeddings before the first layer"),
        ("gpt2", GPT2, "a gpt2 target has no list of decoder layers"),
        ("lfm2", LFM2, "layer 0 of this target keeps a running state"),
    ],
)
def test_a_family_that_would_be_a_guess_is_refused_with_the_reason(family, shape, reason):
    module = importlib.import_module(f"mlx_lm.models.{family}")
    model = module.Model(module.ModelArgs.from_dict({"model_type": family} | shape))
    with pytest.raises(PairError, match=reason) as caught:
        MlxTarget(model, [0, 2])
    assert caught.value.hint


def test_sampling_follows_the_tempered_filtered_distribution():
    logits = mx.array([[2.0, 1.5, 1.0, 0.5]])
    sampling = SamplingParams(temperature=0.7, top_k=3, top_p=0.9)
    counts = torch.zeros(4)
    for seed in range(4000):
        counts[target_choice(logits, sampling, mx.random.key(seed))[0]] += 1
    from dflash.verify import filtered_probabilities

    expected = filtered_probabilities(torch.tensor([2.0, 1.5, 1.0, 0.5]), sampling)
    assert (counts / 4000 - expected).abs().max() < 0.03
    assert counts[3] == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_seed_that_may_be_asked_for_runs_and_repeats(pair, temperature):
    target = MlxTarget(pair[1], [])
    asked = {"seed": -(2**63), "temperature": temperature}
    first = emitted(run(target, None, SHORT, 1, **asked))
    assert len(first) == 24
    assert emitted(run(target, None, SHORT, 1, **asked)) == first


def test_the_guides_mlx_calls_run_as_written(pair, tmp_path):
    """load_draft(..., sliding_window_size=4096) and stream_generate fold to the plain output."""
    from dflash.generate_mlx import stream_generate

    torch_target, mlx_target, _ = pair
    build_draft(torch_target).save_pretrained(tmp_path / "draft")
    draft = load_draft(
        str(tmp_path / "draft"),
        sliding_window_size=4096,  # Retain only recent 4K tokens
    )

    class Tokenizer:
        eos_token_ids = ()

        def decode(self, ids, **_):
            return "".join(chr(97 + i % 26) for i in ids)

    plain = emitted(run(MlxTarget(mlx_target, []), None, SHORT, 1))
    out = list(stream_generate(mlx_target, draft, Tokenizer(), SHORT, block_size=4, max_tokens=24,
                               temperature=0.0))  # fmt: skip
    assert [i for r in out for i in r.tokens] == plain
    assert out[-1].finish_reason == "length"
