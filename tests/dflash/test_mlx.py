"""The MLX backend against the torch one: the same weights give the same tokens and cycles."""

from __future__ import annotations

import json

import pytest
import torch
from tiny_models import build_draft, build_target

from dflash.drafts import ModuleDraft
from dflash.errors import CheckpointError, PairError
from dflash.generate import decode as torch_decode
from dflash.schema import Cycle, SamplingParams
from dflash.targets import TransformersTarget

mx = pytest.importorskip("mlx.core")
from mlx_lm.utils import load_model  # noqa: E402

from dflash.generate_mlx import MlxTarget, decode, target_choice  # noqa: E402
from dflash.model_mlx import load_draft  # noqa: E402

SHORT, LONG = [5, 17, 3, 80], [(7 * i + 11) % 90 for i in range(41)]


@pytest.fixture(scope="module", params=["llama", "qwen3", "hybrid"])
def pair(request, tmp_path_factory):
    """The same tiny target in torch and in MLX, and a folder to save drafts to."""
    folder = tmp_path_factory.mktemp(request.param)
    torch_target = build_target(request.param)
    torch_target.save_pretrained(folder / "target")
    if request.param == "hybrid":
        _as_mlx_lm_expects_qwen35(folder / "target" / "config.json")
    mlx_target, _ = load_model(folder / "target")
    return torch_target, mlx_target, folder


def _as_mlx_lm_expects_qwen35(path):
    """The published wrapper form: mlx-lm has no name for a bare text config."""
    config = json.loads(path.read_text())
    config.update(model_type="qwen3_5", full_attention_interval=2)
    path.write_text(json.dumps(config))


def run(loop, target, draft, prompt, block_size, **extra):
    sampling = SamplingParams(max_new_tokens=24, **extra)
    return list(
        loop(target, draft, prompt, sampling=sampling, block_size=block_size,
             stop_ids=frozenset(), context_length=512)
    )  # fmt: skip


def emitted(events):
    cycles = [e for e in events if isinstance(e, Cycle)]
    return [events[0].token_id] + [i for c in cycles for i in c.emitted_ids]


@pytest.mark.parametrize("window", [None, 8], ids=["full", "windowed"])
def test_mlx_gives_torchs_tokens_and_acceptances_for_every_block_size(pair, window):
    torch_target, mlx_target, folder = pair
    torch_draft = build_draft(torch_target, window=window)
    torch_draft.save_pretrained(folder / f"draft-{window}")
    draft = load_draft(folder / f"draft-{window}")
    target = MlxTarget(mlx_target, draft.target_layer_ids)
    reference = TransformersTarget(torch_target, (0, 2))
    for prompt in (LONG, SHORT) if window else (SHORT,):
        plain = emitted(run(decode, target, None, prompt, 1))
        for block_size in range(2, 17):
            events = run(decode, target, draft, prompt, block_size)
            assert emitted(events) == plain, f"block {block_size}"
            if block_size in (3, 16):
                ours = run(torch_decode, reference, ModuleDraft(torch_draft, torch_target), prompt,
                           block_size)  # fmt: skip
                assert emitted(ours) == plain
                assert [e.num_accepted for e in events[1:-1]] == [
                    e.num_accepted for e in ours[1:-1]
                ]


def test_rolled_back_run_equals_one_that_never_saw_the_rejected_tokens(pair):
    _, mlx_target, _ = pair
    target = MlxTarget(mlx_target, [0, 2])
    for num_rejected in (1, 4, 7):
        tried, clean = target.start(tapped=True), target.start(tapped=True)
        tried.forward(LONG[:20], 1), clean.forward(LONG[:20], 1)
        tried.forward(LONG[20:22] + [1] * num_rejected, 1)
        tried.rollback(num_rejected)
        clean.forward(LONG[20:22], 1)
        after_tried, _ = tried.forward(LONG[22:30], 8)
        after_clean, _ = clean.forward(LONG[22:30], 8)
        assert mx.abs(after_tried - after_clean).max().item() < 5e-5


def test_a_window_override_is_for_full_attention_drafts_only(pair):
    torch_target, mlx_target, folder = pair
    build_draft(torch_target).save_pretrained(folder / "full")
    build_draft(torch_target, window=8).save_pretrained(folder / "trained")
    draft = load_draft(folder / "full", sliding_window_size=16)
    target = MlxTarget(mlx_target, draft.target_layer_ids)
    plain = emitted(run(decode, target, None, LONG, 1))
    assert emitted(run(decode, target, draft, LONG, 6)) == plain
    with pytest.raises(CheckpointError, match="trained with a window of 8"):
        load_draft(folder / "trained", sliding_window_size=16)


def test_taps_outside_the_target_are_refused_in_words(pair):
    with pytest.raises(PairError, match="reads target layer 9.*has 4 layers"):
        MlxTarget(pair[1], [0, 9])


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

    plain = emitted(run(decode, MlxTarget(mlx_target, []), None, SHORT, 1))
    out = list(stream_generate(mlx_target, draft, Tokenizer(), SHORT, block_size=4, max_tokens=24,
                               temperature=0.0))  # fmt: skip
    assert [i for r in out for i in r.tokens] == plain
    assert out[-1].finish_reason == "length"
