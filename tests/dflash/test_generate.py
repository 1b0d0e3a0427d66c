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


@pytest.mark.parametrize(("num_prompt", "num_output"), [(20, 12), (33, 30)])
def test_a_longrope_target_answers_on_its_prompts_side_of_the_original_length(
    num_prompt, num_output
):
    """Past 32 tokens this one turns every position by other angles, cached keys included."""
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * 8,
        "long_factor": [1.0 + 3 * i for i in range(8)],
        "original_max_position_embeddings": 32,
    }
    target = build_target("llama", rope_parameters=rope)
    prompt = LONG[:num_prompt]
    own = own_answer(target, prompt, 30)[:num_output]
    for block_size in (1, 2, 7, 16):
        output = dflash_generate(
            build_draft(target), target, torch.tensor([prompt]),
            max_new_tokens=30, block_size=block_size,
        )  # fmt: skip
        assert output[0, num_prompt:].tolist() == own, f"block {block_size}"


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


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"input_ids": torch.tensor([[1.0]])}, TypeError, "whole numbers.*got torch.float32"),
        ({"input_ids": torch.tensor([[True]])}, TypeError, "whole numbers.*got torch.bool"),
        ({"input_ids": [[1]]}, TypeError, "whole numbers.*got list"),
        ({"input_ids": torch.tensor([[1, 96]])}, ValueError, "0 to 95 for this target, got 96"),
        ({"input_ids": torch.tensor([[-1]])}, ValueError, "0 to 95 for this target, got -1"),
        ({"block_size": 2.5}, ValueError, "block_size must be a whole number, got 2.5"),
        ({"block_size": "8"}, ValueError, "block_size must be a whole number, got '8'"),
        ({"block_size": float("nan")}, ValueError, "block_size must be a whole number, got nan"),
        ({"stop_token_ids": 5}, TypeError, "stop_token_ids must be a list of token ids, got 5"),
        ({"stop_token_ids": ["a"]}, TypeError, r"list of token ids, got \['a'\]"),
        ({"temperature": 1e-45}, ValueError, "temperature must be 0 .greedy. or at least 1e-05"),
        ({"seed": 2**70}, ValueError, "seed must fit in 64 bits"),
    ],
)
def test_a_wrong_call_is_refused_in_one_sentence(changes, error, words):
    target = build_target("llama")
    call = {"input_ids": torch.tensor([SHORT]), "max_new_tokens": 4} | changes
    with pytest.raises(error, match=words):
        dflash_generate(build_draft(target), target, **call)


@pytest.mark.parametrize("kind", ["llama", "gpt_oss"])  # the lean forward, and the module's own
def test_a_draft_in_another_dtype_than_the_targets_stays_as_it_was(kind):
    target = build_target(kind).bfloat16()
    draft = build_draft(target)
    before = {name: tensor.clone() for name, tensor in draft.state_dict().items()}
    dflash_generate(draft, target, torch.tensor([SHORT]), max_new_tokens=4)
    for name, tensor in draft.state_dict().items():
        assert tensor.dtype == torch.float32 and torch.equal(tensor, before[name]), name


def test_rotary_frequencies_are_never_rounded_to_the_targets_dtype():
    target = build_target("llama").bfloat16()
    same = build_draft(target)
    for parameter in same.parameters():  # as from_pretrained leaves it: buffers stay float32
        parameter.data = parameter.data.bfloat16()
    exact = same.rotary_emb.inv_freq.clone()
    for given in (build_draft(target), same):
        used = ModuleDraft(given, target).model
        assert {p.dtype for p in used.parameters()} == {torch.bfloat16}
        assert torch.equal(used.rotary_emb.inv_freq, exact)
