"""The torch loop beyond losslessness (test_losslessness.py): taps, limits, sampling, calls."""

from __future__ import annotations

import pytest
import torch
from backends import LONG, SHORT, emitted, own_answer
from tiny_models import build_draft, build_target

from dflash import dflash_generate
from dflash.drafts import ModuleDraft
from dflash.errors import EngineError, PairError
from dflash.generate import decode
from dflash.schema import SamplingParams
from dflash.targets import TransformersTarget


def run(target, draft, prompt, *, block_size, max_new_tokens=24, stop_ids=(), **sampling):
    """All events of one decode on the plain transformers path."""
    return list(
        decode(
            TransformersTarget(target, (0, 2)),
            draft,
            prompt,
            sampling=SamplingParams(max_new_tokens=max_new_tokens, **sampling),
            block_size=block_size,
            stop_ids=frozenset(stop_ids),
            context_length=512,
        )
    )


def test_taps_are_layer_outputs_not_inputs():
    target = build_target("qwen3")
    tapped = TransformersTarget(target, (0, 2))
    with torch.inference_mode():
        _, hidden = tapped.start(16, tapped=True).forward(SHORT, 1)
        states = target(torch.tensor([SHORT]), output_hidden_states=True).hidden_states
    torch.testing.assert_close(hidden, torch.cat((states[1], states[3]), dim=-1))


def test_prompt_and_output_together_never_pass_the_context_length():
    target = build_target("llama")
    lanes = decode(
        TransformersTarget(target, (0, 2)), ModuleDraft(build_draft(target), target), LONG,
        sampling=SamplingParams(max_new_tokens=100), block_size=16, stop_ids=frozenset(),
        context_length=50,
    )  # fmt: skip
    assert len(emitted(list(lanes))) == 9
    with pytest.raises(EngineError, match="41 tokens and this model's context is 41"):
        next(decode(TransformersTarget(target, ()), None, LONG, sampling=SamplingParams(),
                    block_size=1, stop_ids=frozenset(), context_length=41))  # fmt: skip


def test_sampled_output_has_the_targets_own_distribution():
    """The second token's histogram over 1,200 seeds, with and without a draft."""
    target = build_target("llama")
    draft = ModuleDraft(build_draft(target), target)
    counts = {}
    for block_size in (1, 4):
        histogram = torch.zeros(96)
        for seed in range(1200):
            events = run(target, draft, SHORT, block_size=block_size, max_new_tokens=2,
                         temperature=1.5, top_k=6, seed=seed)  # fmt: skip
            histogram[emitted(events)[1]] += 1
        counts[block_size] = histogram / 1200
    distance = 0.5 * (counts[1] - counts[4]).abs().sum()
    assert distance < 0.09, f"total variation {distance:.3f}"


def test_sampling_repeats_with_its_seed_and_changes_with_it():
    target = build_target("qwen3")
    draft = ModuleDraft(build_draft(target), target)
    texts = [
        emitted(run(target, draft, SHORT, block_size=4, temperature=1.0, seed=s)) for s in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_the_guides_calls_run_as_written(caplog):
    from transformers import AutoModel

    target = build_target("qwen3")
    draft = build_draft(target)
    input_ids = torch.tensor([SHORT])
    output = draft.spec_generate(
        input_ids=input_ids,
        max_new_tokens=12,
        temperature=0.0,
        target=target,
        block_size=2,
    )
    assert output[0, 4:].tolist() == own_answer(target, SHORT, 12)
    stats = dflash_generate(draft, target, input_ids, max_new_tokens=12, return_stats=True)
    assert sum(stats.acceptance_lengths) >= 11
    assert stats.time_per_output_token > 0
    draft.mask_token_id = 0
    draft.spec_generate(input_ids=input_ids, max_new_tokens=4, temperature=0.0, target=target)
    cfg = draft.config
    cfg.dflash_config["target_layer_ids"] = [0, 1, 2]
    fresh = AutoModel.from_config(cfg).eval()
    assert fresh.fc.in_features == 3 * 64
    assert caplog.text.count("random weights") == 1


def test_a_block_size_above_the_trained_one_is_refused_with_the_range():
    target = build_target("llama")
    draft = build_draft(target, block_size=8)
    with pytest.raises(ValueError, match="1 to 8.*got 9"):
        draft.spec_generate(target, torch.tensor([SHORT]), max_new_tokens=4, block_size=9)


def test_a_draft_for_another_target_is_refused_in_words():
    target = build_target("llama")
    draft = build_draft(target)
    draft.config.num_target_layers = 36
    with pytest.raises(PairError, match="36-layer target; the one you chose has 4"):
        draft.spec_generate(target, torch.tensor([SHORT]), max_new_tokens=4)
