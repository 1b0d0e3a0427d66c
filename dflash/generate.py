"""The decode loop: prefill, draft one block, verify, commit, roll back both caches.

Knows token ids and the target and draft it is given. Knows no tokenizer, no text and no
checkpoint. ``block_size == 1`` drafts nothing and is the autoregressive baseline.
Every time stamp is the lane's own compute (dflash.clock).
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from transformers import PreTrainedModel

from dflash.budget import check_block_size, cut_at_stop, token_budget
from dflash.clock import LaneClock
from dflash.drafts import Draft, open_draft
from dflash.metrics import spec_stats
from dflash.model import DFlashDraftModel
from dflash.schema import Cycle, Event, Finished, FinishReason, Prefilled, SamplingParams
from dflash.stops import stop_token_ids as stop_ids_of
from dflash.targets import Target, context_length, open_target
from dflash.verify import Proposal, target_choice, verify

NONE = Proposal()  # what an autoregressive step drafts


@torch.inference_mode()
def decode(
    target: Target,
    draft: Draft | None,  # None only when block_size is 1
    prompt_ids: list[int],
    *,
    sampling: SamplingParams,
    block_size: int,
    stop_ids: frozenset[int],
    context_length: int,
) -> Generator[Event, None, None]:
    """Yield Prefilled, one Cycle per round, Finished. Safe to abandon at any yield.

    At temperature 0 the output is the target's own greedy output; above 0 every token is the
    target's own draw (dflash.verify). Raises ``EngineError`` for a prompt that leaves no room.
    """
    budget = token_budget(len(prompt_ids), sampling.max_new_tokens, context_length)
    clock = LaneClock(target.device)
    generator = _generator(sampling, target.device)
    run = target.start(len(prompt_ids) + budget, tapped=block_size > 1)
    draft_run = (
        draft.start(len(prompt_ids) + budget, sampling, generator)
        if draft and block_size > 1
        else None
    )
    logits, hidden = run.forward(prompt_ids, 1)
    run.rollback(0)
    anchor = target_choice(logits, sampling, generator)[0]
    clock.lap()
    cycles: list[Cycle] = []
    num_output = 1
    yield Prefilled(clock.elapsed_s, len(prompt_ids), anchor)
    reason: FinishReason = "stop" if anchor in stop_ids else "length"
    while anchor not in stop_ids and num_output < budget:
        clock.resume()
        # A block of B slots can emit B tokens, so it never needs to be wider than the room.
        width = min(block_size, budget - num_output)
        proposal = draft_run.propose(hidden, anchor, width) if draft_run and width > 1 else NONE
        draft_s = clock.lap()
        logits, hidden = run.forward([anchor, *proposal.ids], width)
        verdict = verify(logits, proposal, sampling, generator)
        run.rollback(len(proposal.ids) - verdict.num_accepted)
        if hidden is not None:
            hidden = hidden[:, : verdict.num_accepted + 1]
        emitted = cut_at_stop(verdict.target_ids[: verdict.num_accepted + 1], stop_ids)
        verify_s = clock.lap()
        anchor = emitted[-1]
        num_output += len(emitted)
        reason = "stop" if anchor in stop_ids else "length"
        cycle = Cycle(
            clock.elapsed_s, proposal.ids, verdict.num_accepted, verdict.bonus_id,
            emitted, draft_s, verify_s, target_ids=verdict.target_ids,
        )  # fmt: skip
        cycles.append(cycle)
        yield cycle
    spec = spec_stats(cycles, block_size) if block_size > 1 else None
    yield Finished(clock.elapsed_s, reason, num_output, spec, _peak_memory(target.device))


def _generator(sampling: SamplingParams, device: torch.device) -> torch.Generator | None:
    """The run's own randomness; greedy decoding needs none."""
    if sampling.temperature == 0:
        return None
    return torch.Generator(device=device).manual_seed(sampling.seed)


def _peak_memory(device: torch.device) -> int | None:
    """Peak allocated bytes where the device keeps count."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


@dataclass(frozen=True, slots=True)
class GenerationStats:
    """What ``dflash_generate(return_stats=True)`` returns. ``acceptance_lengths`` are tokens per
    cycle with the bonus, as the reference counts them."""

    output_ids: torch.Tensor  # [1, S + n]
    num_input_tokens: int
    num_output_tokens: int
    time_to_first_token: float  # seconds
    time_per_output_token: float | None  # seconds; None below two tokens
    acceptance_lengths: list[int]


def dflash_generate(
    draft: DFlashDraftModel,
    target: PreTrainedModel,
    input_ids: torch.Tensor,  # int64 [1, S]
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    block_size: int | None = None,
    stop_token_ids: list[int] | None = None,
    top_p: float = 1.0,
    top_k: int = 0,
    seed: int = 0,
    return_stats: bool = False,
) -> Any:
    """Generate with a draft and a target; ``block_size`` defaults to the trained one and 1 is
    plain autoregressive decoding. Stop ids default to the target's generation config.

    Returns ids [1, S + n], or ``GenerationStats``. Raises ``ValueError`` for a batch, an id
    outside the vocabulary or a block size outside 1 to trained, ``TypeError`` for ids that are no
    whole numbers, ``PairError`` for a draft that does not fit the target. The draft keeps its
    dtype and device; where the target's differ, every call works on a copy.
    """
    prompt_ids = _prompt_ids(input_ids, target)
    size = check_block_size(
        draft.block_size if block_size is None else block_size, draft.block_size
    )
    stops = stop_ids_of(target) if stop_token_ids is None else _stop_ids(stop_token_ids)
    events = list(
        decode(
            open_target(target, draft.target_layer_ids if size > 1 else ()),
            open_draft(draft, target) if size > 1 else None,
            prompt_ids,
            sampling=SamplingParams(temperature, top_p, top_k, seed, max_new_tokens),
            block_size=size,
            stop_ids=stops,
            context_length=context_length(target, len(prompt_ids)),
        )
    )
    return _stats(events, input_ids) if return_stats else _stats(events, input_ids).output_ids


def _prompt_ids(input_ids: torch.Tensor, target: PreTrainedModel) -> list[int]:
    """The one prompt of the batch, refused in a sentence where the target could not read it."""
    dtype = getattr(input_ids, "dtype", type(input_ids).__name__)
    if dtype not in (torch.int64, torch.int32):
        raise TypeError(f"input_ids must be a tensor of whole numbers (int64), got {dtype}")
    if input_ids.dim() != 2 or input_ids.shape[0] != 1:
        raise ValueError(f"input_ids must have shape [1, S], got {list(input_ids.shape)}")
    embedding: Any = target.get_input_embeddings()
    ids: list[int] = input_ids[0].tolist()
    for i in ids:
        if not 0 <= i < embedding.weight.shape[0]:
            raise ValueError(
                f"input_ids must be 0 to {embedding.weight.shape[0] - 1} for this target, got {i}"
            )
    return ids


def _stop_ids(given: object) -> frozenset[int]:
    if not isinstance(given, Collection) or not all(isinstance(i, Integral) for i in given):
        raise TypeError(f"stop_token_ids must be a list of token ids, got {given!r}")
    return frozenset(given)


def _stats(events: list[Event], input_ids: torch.Tensor) -> GenerationStats:
    """Fold a run's events into the reference's result fields."""
    first = events[0]
    assert isinstance(first, Prefilled)
    cycles = [e for e in events if isinstance(e, Cycle)]
    new_ids = [first.token_id] + [i for c in cycles for i in c.emitted_ids]
    decode_s = events[-1].t_s - first.t_s
    return GenerationStats(
        output_ids=torch.cat((input_ids, torch.tensor([new_ids], device=input_ids.device)), dim=1),
        num_input_tokens=input_ids.shape[1],
        num_output_tokens=len(new_ids),
        time_to_first_token=first.t_s,
        time_per_output_token=decode_s / (len(new_ids) - 1) if len(new_ids) > 1 else None,
        acceptance_lengths=[c.num_accepted + 1 for c in cycles],
    )
