"""Checkpoints: what loads, what is refused, and that DFlash 2 keeps its promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny_models import build_draft, build_target

from dflash import load_draft
from dflash.errors import CheckpointError
from dflash.model import DFlashConfig, DraftCache
from dflash.model2 import CandidateSelector, DFlash2DraftModel, DynamicConv
from dflash.schema import SamplingParams
from dflash.verify import Proposal, verify


@pytest.fixture
def saved(tmp_path):
    """A saved tiny draft and a way to edit its config."""
    draft = build_draft(build_target("qwen3"), window=8)
    draft.save_pretrained(tmp_path)

    def edit(change) -> str:
        path = tmp_path / "config.json"
        config = json.loads(path.read_text())
        change(config)
        path.write_text(json.dumps(config))
        return str(tmp_path)

    return draft, edit


def test_a_saved_draft_loads_with_the_same_weights(saved):
    draft, edit = saved
    again = load_draft(edit(lambda c: None))
    for name, tensor in draft.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    assert again.block_size == 16


def test_unset_draft_settings_are_not_written_as_null(saved):
    draft, edit = saved
    written = json.loads((Path(edit(lambda c: None)) / "config.json").read_text())
    for name in ("output_multiplier", "final_logit_softcapping", "is_causal", "mask_token_id"):
        assert getattr(draft.config, name) is None
        assert name not in written
    assert written["num_target_layers"] == 4
    assert written["block_size"] == 16


def test_block_size_and_taps_load_from_either_place(saved):
    _, edit = saved

    def swap(config):
        config["dflash_config"]["block_size"] = config.pop("block_size")
        config["target_layer_ids"] = config["dflash_config"].pop("target_layer_ids")

    again = load_draft(edit(swap))
    assert (again.block_size, again.target_layer_ids) == (16, [0, 2])


def test_a_window_is_kept_without_the_use_sliding_window_flag(saved):
    _, edit = saved
    again = load_draft(edit(lambda c: c.pop("use_sliding_window", None)))
    assert [again.config.layer_window(i) for i in range(2)] == [8, None]
    assert [again.config.layer_is_causal(i) for i in range(2)] == [True, False]
    causal = load_draft(edit(lambda c: c.update(is_causal=False)))
    assert [causal.config.layer_is_causal(i) for i in range(2)] == [False, False]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c["dflash_config"].pop("mask_token_id"), "no mask_token_id"),
        (lambda c: c["dflash_config"].pop("target_layer_ids"), "no target_layer_ids"),
        (lambda c: (c.pop("rope_parameters", None), c.pop("rope_theta", None)), "no rope_theta"),
        (lambda c: c.update(architectures=["DSparkDraftModel"]), "DSparkDraftModel, not a DFlash"),
        (lambda c: c["dflash_config"].update(target_layer_ids=[0, 1, 2]), "fc.weight"),
        (lambda c: c.update(num_hidden_layers=3, layer_types=["full_attention"] * 3), "layers.2"),
    ],
)
def test_a_draft_that_would_only_load_by_guessing_is_refused(saved, change, words):
    _, edit = saved
    with pytest.raises(CheckpointError, match=words):
        load_draft(edit(change))


def test_rope_is_read_nested_or_top_level_and_yarn_survives(saved):
    draft, edit = saved

    def flatten(config):
        config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]

    flat = load_draft(edit(flatten))
    torch.testing.assert_close(flat.rotary_emb.inv_freq, draft.rotary_emb.inv_freq)
    yarn = {
        "rope_type": "yarn",
        "factor": 4.0,
        "rope_theta": 10000.0,
        "original_max_position_embeddings": 128,
    }
    stretched = load_draft(edit(lambda c: c.update(rope_parameters=yarn)))
    assert stretched.rotary_emb.rope_type == "yarn"
    assert not torch.allclose(stretched.rotary_emb.inv_freq, draft.rotary_emb.inv_freq)


def test_cached_context_gives_what_the_whole_context_gives():
    """Three arrivals of context through the cache against one forward with an explicit mask."""
    target = build_target("qwen3")
    for window in (None, 6):
        draft = build_draft(target, window=window, layers=1)
        taps, block = torch.randn(1, 20, 128), torch.randn(1, 4, 64)
        if window:
            draft = build_draft(target, window=window, layers=2)
        with torch.inference_mode():
            cache = DraftCache(draft.config)
            for start, end in ((0, 9), (9, 10), (10, 20)):
                positions = torch.cat((torch.arange(start, end), torch.arange(end, end + 4)))
                cached = draft(block, taps[:, start:end], positions[None], cache)
            whole = draft(block, taps, torch.arange(24)[None])
        torch.testing.assert_close(cached, whole, rtol=1e-5, atol=1e-5)


def dflash2_draft(target, **extra):
    """A random DFlash 2 draft whose selector and convolutions really act."""
    torch.manual_seed(9)
    base = build_draft(target).config.to_dict()
    base.update(architectures=["DFlash2DraftModel"], is_causal=False, **extra)
    base["dflash_config"].update(
        block_size=8, conv_kernel_size=2, conv_group_size=16, selector_rank=8, selector_top_k=4
    )
    draft = DFlash2DraftModel(DFlashConfig(**base)).eval()
    for name, parameter in draft.named_parameters():
        if "kernel" in name or "codebook" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return draft


def test_dflash2_greedy_output_is_the_targets_own(tmp_path):
    for kind in ("qwen3", "hybrid"):
        target = build_target(kind)
        dflash2_draft(target, final_logit_softcapping=20.0, output_multiplier=0.2).save_pretrained(
            tmp_path
        )
        draft = load_draft(tmp_path)
        assert type(draft).__name__ == "DFlash2DraftModel"
        ids = torch.tensor([[5, 17, 3, 80]])
        plain = draft.spec_generate(target, ids, max_new_tokens=20, block_size=1)
        for block_size in range(2, 9):
            out = draft.spec_generate(target, ids, max_new_tokens=20, block_size=block_size)
            assert torch.equal(out, plain), block_size


def test_dynamic_convolution_equals_the_sum_written_out():
    torch.manual_seed(0)
    conv = DynamicConv(hidden_size=8, num_taps=2, group_size=4)
    torch.nn.init.normal_(conv.base_kernel)
    x = torch.randn(1, 5, 8)
    kernel = conv.kernels(x)[:, :, 0]  # [1, 5, 2, 8]
    expected = torch.zeros(1, 5, 8)
    for slot in range(5):
        for back in range(2):
            if slot - back >= 0:
                expected[0, slot] += kernel[0, slot, back] * x[0, slot - back]
    torch.testing.assert_close(DynamicConv.convolve(x, kernel), expected)


def test_the_selector_is_the_best_next_candidate_given_the_last_choice():
    torch.manual_seed(1)
    config = dflash2_draft(build_target("qwen3")).config
    selector = CandidateSelector(config)
    for p in selector.parameters():
        torch.nn.init.normal_(p)
    hidden, logits = torch.randn(3, 64), torch.randn(3, 96)
    chosen = selector(hidden, logits, 7, 0.0, None).ids
    previous = 7
    for slot in range(3):
        scores = {
            int(c): float(
                logits[slot, c]
                + (
                    selector.predecessor_codebook[previous]
                    * selector.hidden_projection(hidden[slot])
                    * selector.successor_codebook[c]
                ).sum()
            )
            for c in logits[slot].topk(4).indices
        }
        previous = max(scores, key=scores.get)
        assert chosen[slot] == previous


def test_rejection_sampling_emits_the_targets_distribution():
    """One drafted slot, 20,000 draws: the first emitted token follows p, not q."""
    torch.manual_seed(0)
    logits = torch.tensor([[2.0, 1.5, 1.0, 0.5], [0.0, 0.0, 0.0, 0.0]])
    odds = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    sampling, generator = SamplingParams(temperature=1.0), torch.Generator().manual_seed(4)
    counts = torch.zeros(4)
    for _ in range(20_000):
        drafted = int(torch.multinomial(odds[0], 1, generator=generator))
        counts[verify(logits, Proposal((drafted,), odds), sampling, generator).target_ids[0]] += 1
    expected = logits[0].softmax(-1)
    assert (counts / 20_000 - expected).abs().max() < 0.012
