"""The second look agrees with the run it looks at."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from tiny_models import build_draft, build_target

from dflash.drafts import open_draft
from dflash.errors import EngineError
from dflash.generate import decode
from dflash.microscope import divergence, slot_odds
from dflash.schema import Cycle, EngineInfo, Message, Request, SamplingParams, Trace
from dflash.targets import open_target

INFO = EngineInfo("torch", "1", "t", "d", "cpu", "float32", "cycles")
PROMPT = list(range(1, 40))


@pytest.fixture(scope="module", params=["llama", "qwen3", "hybrid"])
def pair(request):
    model = build_target(request.param)
    draft_model = build_draft(model, block_size=8)
    target = open_target(model, draft_model.target_layer_ids)
    return model, draft_model, target, open_draft(draft_model, model)


def run(pair, block_size: int) -> Trace:
    _, _, target, draft = pair
    sampling = SamplingParams(max_new_tokens=40)
    events = decode(
        target, draft, PROMPT, sampling=sampling, block_size=block_size,
        stop_ids=frozenset(), context_length=512,
    )  # fmt: skip
    return Trace(Request((Message("user", "x"),), sampling, block_size), INFO, tuple(events))


def test_the_drafts_own_choice_has_its_highest_probability_and_accepted_ones_rank_first(pair):
    model, draft_model, target, _ = pair
    trace = run(pair, 8)
    odds = list(
        slot_odds(target, draft_model, model, PROMPT, trace.cycles, trace.prefilled.token_id)
    )
    drafted = [c for c in trace.cycles if c.draft_ids]
    assert len(odds) == len(drafted)
    for cycle, slots in zip(drafted, odds, strict=True):
        assert len(slots) == len(cycle.draft_ids)
        for k, slot in enumerate(slots):
            assert 0 < slot.draft_probability <= 1
            if k < cycle.num_accepted:
                assert slot.target_rank_in_draft == 1
            if k == cycle.num_accepted:
                assert slot.target_rank_in_draft > 1
            assert (slot.target_probability is None) == (k > cycle.num_accepted)


def test_target_probabilities_are_those_of_one_plain_forward(pair):
    model, draft_model, target, _ = pair
    trace = run(pair, 8)
    odds = list(
        slot_odds(target, draft_model, model, PROMPT, trace.cycles, trace.prefilled.token_id)
    )
    ids = torch.tensor([PROMPT + list(trace.output_ids)])
    with torch.inference_mode():
        plain = model(ids).logits[0].softmax(-1)
    at = len(PROMPT)
    for cycle, slots in zip(trace.cycles, odds, strict=False):
        judged = slots[: cycle.num_accepted + 1]
        for k, slot in enumerate(judged):
            expected = float(plain[at + k, cycle.draft_ids[k]])
            assert slot.target_probability == pytest.approx(expected, abs=1e-4)
        at += len(cycle.emitted_ids)


@pytest.mark.parametrize("index", [0, 1, 7, 39])
def test_both_paths_lead_to_the_same_candidates_where_the_texts_agree(pair, index):
    _, _, target, _ = pair
    plain, fast = run(pair, 1), run(pair, 8)
    look = divergence(target, PROMPT, plain, fast, index)
    assert look.baseline[0].token_id == look.baseline_id == plain.output_ids[index]
    assert [c.token_id for c in look.baseline] == [c.token_id for c in look.dflash]
    assert look.dflash[0].logit == pytest.approx(look.baseline[0].logit, abs=1e-4)


def test_a_token_the_target_did_not_want_is_a_fault_and_a_swapped_near_tie_is_none(pair):
    _, _, target, _ = pair
    plain, fast = run(pair, 1), run(pair, 8)
    look = divergence(target, PROMPT, plain, fast, 7)
    apart = dataclasses.replace(look.dflash[0], logit=look.dflash[1].logit + 3)
    assert dataclasses.replace(look, dflash=(apart, *look.dflash[1:])).verdict == "fault"
    near = dataclasses.replace(look.baseline[1], logit=look.baseline[0].logit - 0.01)
    tied = (look.baseline[0], near, *look.baseline[2:])
    swapped = (near, look.baseline[0], *look.baseline[2:])
    assert dataclasses.replace(look, baseline=tied, dflash=swapped).verdict == "tie"


def test_an_index_past_the_end_is_refused(pair):
    _, _, target, _ = pair
    with pytest.raises(EngineError, match="no output token 41"):
        divergence(target, PROMPT, run(pair, 1), run(pair, 8), 40)


def test_a_run_that_was_cut_can_be_looked_at(pair):
    model, draft_model, target, _ = pair
    trace = run(pair, 8)
    cut = [e for e in trace.events[:4] if isinstance(e, Cycle)]
    assert len(list(slot_odds(target, draft_model, model, PROMPT, cut, trace.output_ids[0]))) == 3
