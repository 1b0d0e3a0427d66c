"""The one losslessness suite: whatever the backend, the family, the draft and the block, the
greedy answer is the target's own, token for token."""

from __future__ import annotations

import pytest
import torch
from backends import (
    EVERY_BLOCK,
    LONG,
    SHORT,
    SOME_BLOCKS,
    Mlx,
    TorchModules,
    emitted,
    own_answer,
)

from dflash.schema import Cycle, Finished, Prefilled


@pytest.fixture(
    scope="module",
    params=[*EVERY_BLOCK, *SOME_BLOCKS],
    ids=lambda pair: f"{pair[0].__name__}-{pair[1]}",
)
def backend(request, tmp_path_factory):
    """One backend on one family, and the block sizes to try on it."""
    opened = request.param[0](request.param[1], tmp_path_factory.mktemp("pair"))
    opened.block_sizes = range(2, 17) if request.param in EVERY_BLOCK else (2, 5, 16)
    return opened


@pytest.mark.parametrize(
    ("prompt", "window"), [(SHORT, None), (LONG, 8)], ids=["full", "past-the-draft's-window"]
)
def test_greedy_output_is_the_targets_own_for_every_block_size_with_a_random_draft(
    backend, prompt, window
):
    answer = own_answer(backend.reference, prompt, 24)
    assert len(set(answer)) > 5, "an answer that repeats itself tests nothing"
    draft = backend.draft(window=window)
    for block_size in (1, *backend.block_sizes):
        assert emitted(list(backend.run(draft, prompt, block_size))) == answer, block_size


def test_greedy_output_is_the_targets_own_for_every_block_size_with_a_good_draft(backend):
    answer = own_answer(backend.reference, LONG, 40)
    for block_size in backend.block_sizes:
        draft = backend.oracle(answer)
        events = list(backend.run(draft, LONG, block_size, max_new_tokens=40))
        assert emitted(events) == answer, f"block {block_size}"
        accepted = [e.num_accepted for e in events if isinstance(e, Cycle)]
        assert max(accepted) >= min(block_size - 1, 3), "the oracle should be accepted in runs"


def test_rolled_back_target_equals_one_that_never_saw_the_rejected_tokens(backend):
    for num_rejected in (1, 2, 4, 7):
        target = backend.target()
        with torch.inference_mode():
            tried, clean = (backend.begin(target) for _ in range(2))
            for one in (tried, clean):
                one.forward(LONG[:20], 1)
                one.rollback(0)
            tried.forward(LONG[20:22] + [1] * num_rejected, 1)
            tried.rollback(num_rejected)
            clean.forward(LONG[20:22], 1)
            clean.rollback(0)
            after = [
                torch.tensor(one.forward(LONG[22:30], 8)[0].tolist()) for one in (tried, clean)
            ]
        torch.testing.assert_close(*after, rtol=1e-5, atol=5e-5)


def test_two_interleaved_runs_do_not_disturb_each_other(backend):
    draft = backend.draft()
    alone = [emitted(list(backend.run(draft, p, 5))) for p in (SHORT, LONG)]
    shared = backend.target()
    lanes = [backend.run(draft, p, 5, target=shared) for p in (SHORT, LONG)]
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


def test_a_cancelled_run_leaves_the_target_usable(backend):
    draft, target = backend.draft(), backend.target()
    before = emitted(list(backend.run(draft, LONG, 6, target=target)))
    abandoned = backend.run(draft, LONG, 6, target=target)
    next(abandoned), next(abandoned)
    abandoned.close()
    assert emitted(list(backend.run(draft, LONG, 6, target=target))) == before


def test_a_stop_token_inside_a_block_ends_the_answer_there(backend):
    answer = own_answer(backend.reference, SHORT, 40)
    stop = answer[9]
    expected = answer[: answer.index(stop) + 1]
    for block_size in (1, 4, 16):
        events = list(
            backend.run(backend.oracle(answer), SHORT, block_size, max_new_tokens=40,
                        stop_ids=[stop])
        )  # fmt: skip
        assert emitted(events) == expected
        assert events[-1].finish_reason == "stop"
        assert events[-1].num_output_tokens == len(expected)


def test_a_stop_token_as_the_first_token_means_one_token_and_no_draft(backend):
    first = own_answer(backend.reference, SHORT, 1)[0]
    events = list(backend.run(backend.oracle([first]), SHORT, 8, stop_ids=[first]))
    assert [type(e) for e in events] == [Prefilled, Finished]
    assert events[-1].num_output_tokens == 1


def test_max_new_tokens_is_reached_and_never_overshot(backend):
    answer = own_answer(backend.reference, SHORT, 40)
    for max_new_tokens in (1, 2, 3, 7, 16):
        for block_size in (1, 2, 8, 16):
            draft = backend.oracle(answer)
            events = list(backend.run(draft, SHORT, block_size, max_new_tokens=max_new_tokens))
            assert emitted(events) == answer[:max_new_tokens]
            assert events[-1].finish_reason == "length"


@pytest.mark.parametrize("kind", [kind for cls, kind in [*EVERY_BLOCK, *SOME_BLOCKS] if cls is Mlx])
@pytest.mark.parametrize("shape", [{"window": 8}, {"input_embedding_scale": 0.5}], ids=str)
def test_mlx_drafts_and_accepts_what_torch_does(kind, shape, tmp_path):
    """The same draft on the same weights: not only the answer, every cycle is the same."""
    mlx, modules = Mlx(kind, tmp_path), TorchModules(kind, tmp_path)
    for block_size in (3, 16):
        ours, theirs = (
            [
                (e.draft_ids, e.num_accepted)
                for e in backend.run(backend.draft(**shape), LONG, block_size)
                if isinstance(e, Cycle)
            ]
            for backend in (mlx, modules)
        )
        assert ours == theirs, f"block {block_size}"
