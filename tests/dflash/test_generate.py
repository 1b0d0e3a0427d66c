"""Losslessness: DFlash's greedy output is the target's own, whatever the draft and block."""

from __future__ import annotations

import pytest
import torch
from tiny_models import build_draft, build_target

from dflash import dflash_generate
from dflash.drafts import ModuleDraft
from dflash.errors import EngineError, PairError
from dflash.generate import decode
from dflash.schema import Cycle, Finished, Prefilled, SamplingParams
from dflash.targets import TransformersTarget
from dflash.verify import Proposal

KINDS = ("llama", "qwen3", "sliding", "hybrid")
SHORT, LONG = [5, 17, 3, 80], [(7 * i + 11) % 90 for i in range(41)]


class OracleDraft:
    """A draft that knows the answer and errs at every fifth token: a mix of long and short
    acceptances that no random draft produces."""

    def __init__(self, answer: list[int]) -> None:
        self.answer = answer

    def start(self, capacity, sampling, generator) -> OracleDraft:
        self.position = 0
        return self

    def propose(self, target_hidden, anchor_id: int, block_size: int) -> Proposal:
        self.position += target_hidden.shape[1] if self.position else 1
        ahead = self.answer[self.position : self.position + block_size - 1]
        ahead += [0] * (block_size - 1 - len(ahead))
        wrong = [(self.position + i) % 5 == 0 for i in range(len(ahead))]
        return Proposal(tuple((t + w) % 90 for t, w in zip(ahead, wrong, strict=True)))


def own_answer(target, prompt: list[int], max_new_tokens: int) -> list[int]:
    """The target's own greedy output through transformers' generate."""
    ids = target.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=max_new_tokens,
        do_sample=False,
        pad_token_id=0,
    )
    return ids[0, len(prompt) :].tolist()


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


def emitted(events) -> list[int]:
    """The output ids of a run."""
    cycles = [e for e in events if isinstance(e, Cycle)]
    return [events[0].token_id] + [i for c in cycles for i in c.emitted_ids]


@pytest.fixture(scope="module", params=KINDS)
def target(request):
    return build_target(request.param)


@pytest.mark.parametrize("prompt", [SHORT, LONG], ids=["short", "past-the-window"])
def test_greedy_output_is_the_targets_own_for_every_block_size_with_a_random_draft(target, prompt):
    answer = own_answer(target, prompt, 24)
    for window in (None, 8):
        draft = ModuleDraft(build_draft(target, window=window), target)
        for block_size in range(1, 17):
            events = run(target, draft, prompt, block_size=block_size)
            assert emitted(events) == answer, f"block {block_size}, draft window {window}"


@pytest.mark.parametrize("prompt", [SHORT, LONG], ids=["short", "past-the-window"])
def test_greedy_output_is_the_targets_own_for_every_block_size_with_a_good_draft(target, prompt):
    answer = own_answer(target, prompt, 40)
    for block_size in range(2, 17):
        events = run(target, OracleDraft(answer), prompt, block_size=block_size, max_new_tokens=40)
        assert emitted(events) == answer, f"block {block_size}"
        accepted = [e.num_accepted for e in events if isinstance(e, Cycle)]
        assert max(accepted) >= min(block_size - 1, 3), "the oracle should be accepted in runs"


def test_rolled_back_target_equals_one_that_never_saw_the_rejected_tokens(target):
    for num_rejected in range(1, 8):
        tapped = TransformersTarget(target, (0, 2))
        with torch.inference_mode():
            tried, clean = (tapped.start(64, tapped=True) for _ in range(2))
            for one in (tried, clean):
                one.forward(LONG[:20], 1)
                one.rollback(0)
            tried.forward(LONG[20:22] + [1] * num_rejected, 1)
            tried.rollback(num_rejected)
            clean.forward(LONG[20:22], 1)
            clean.rollback(0)
            after_tried, _ = tried.forward(LONG[22:30], 8)
            after_clean, _ = clean.forward(LONG[22:30], 8)
        torch.testing.assert_close(after_tried, after_clean, rtol=1e-5, atol=2e-5)
        assert tried.length == clean.length == 30


def test_two_interleaved_runs_do_not_disturb_each_other(target):
    draft = ModuleDraft(build_draft(target), target)
    alone = [emitted(run(target, draft, p, block_size=5)) for p in (SHORT, LONG)]
    shared = TransformersTarget(target, (0, 2))
    lanes = [
        decode(shared, draft, p, sampling=SamplingParams(max_new_tokens=24), block_size=5,
               stop_ids=frozenset(), context_length=512)
        for p in (SHORT, LONG)
    ]  # fmt: skip
    events: list[list] = [[], []]
    live = [0, 1]
    while live:
        for i in list(live):
            event = next(lanes[i], None)
            if event is None:
                live.remove(i)
            else:
                events[i].append(event)
    assert [emitted(e) for e in events] == alone


def test_taps_are_layer_outputs_not_inputs():
    target = build_target("qwen3")
    tapped = TransformersTarget(target, (0, 2))
    with torch.inference_mode():
        _, hidden = tapped.start(16, tapped=True).forward(SHORT, 1)
        states = target(torch.tensor([SHORT]), output_hidden_states=True).hidden_states
    torch.testing.assert_close(hidden, torch.cat((states[1], states[3]), dim=-1))


def test_a_stop_token_inside_a_block_ends_the_answer_there():
    target = build_target("llama")
    answer = own_answer(target, SHORT, 40)
    stop = answer[9]
    expected = answer[: answer.index(stop) + 1]
    for block_size in (1, 4, 16):
        events = run(target, OracleDraft(answer), SHORT, block_size=block_size, max_new_tokens=40,
                     stop_ids=[stop])  # fmt: skip
        assert emitted(events) == expected
        assert events[-1].finish_reason == "stop"
        assert events[-1].num_output_tokens == len(expected)


def test_a_stop_token_as_the_first_token_means_one_token_and_no_draft():
    target = build_target("llama")
    first = own_answer(target, SHORT, 1)[0]
    events = run(target, OracleDraft([first]), SHORT, block_size=8, stop_ids=[first])
    assert [type(e) for e in events] == [Prefilled, Finished]
    assert events[-1].num_output_tokens == 1


@pytest.mark.parametrize("max_new_tokens", [1, 2, 3, 7, 16])
def test_max_new_tokens_is_reached_and_never_overshot(max_new_tokens):
    target = build_target("llama")
    answer = own_answer(target, SHORT, 40)
    for block_size in (1, 2, 8, 16):
        events = run(target, OracleDraft(answer), SHORT, block_size=block_size,
                     max_new_tokens=max_new_tokens)  # fmt: skip
        assert emitted(events) == answer[:max_new_tokens]
        assert events[-1].finish_reason == "length"


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


def test_a_cancelled_run_leaves_the_target_usable():
    target = build_target("hybrid")
    draft = ModuleDraft(build_draft(target), target)
    before = emitted(run(target, draft, LONG, block_size=6))
    abandoned = decode(
        TransformersTarget(target, (0, 2)), draft, LONG, sampling=SamplingParams(), block_size=6,
        stop_ids=frozenset(), context_length=512,
    )  # fmt: skip
    next(abandoned), next(abandoned)
    abandoned.close()
    assert emitted(run(target, draft, LONG, block_size=6)) == before


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
