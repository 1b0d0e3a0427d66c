"""How a draft is run: its context cache fed, one block proposed at a time.

Knows the draft model and the embedding and head it borrows from the target. What a proposal is
worth is decided in dflash.verify.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol, cast

import torch
from torch import nn
from transformers import PreTrainedModel

from dflash.borrowed import borrow
from dflash.fit import check_fit
from dflash.lean import LeanDraft
from dflash.model import DFlashDraftModel, DraftCache
from dflash.schema import SamplingParams
from dflash.verify import Proposal


class DraftRun(Protocol):
    """One sequence in progress on a draft."""

    def propose(
        self,
        target_hidden: torch.Tensor | None,  # [1, n, K*D], positions not yet in the cache
        anchor_id: int,
        block_size: int,
    ) -> Proposal:
        """Take in the new context and propose block_size - 1 tokens after the anchor."""
        ...


class Draft(Protocol):
    """A draft ready to start runs."""

    def start(
        self, capacity: int, sampling: SamplingParams, generator: torch.Generator | None
    ) -> DraftRun:
        """Begin an empty run of at most ``capacity`` context positions."""
        ...


def open_draft(model: DFlashDraftModel, target: PreTrainedModel) -> Draft:
    """Pair a draft with a target: the lean CPU forward where it is exact, else the module.

    A draft on another device or in another dtype is copied to the target's. Raises ``PairError``
    when they do not fit.
    """
    check_pair(model, target)
    draft = ModuleDraft(model, target)
    if (
        draft.device.type == "cpu"
        and draft.borrowed.is_plain
        and LeanDraft.supports(draft.model, target)
    ):
        return LeanDraftRunner(LeanDraft(draft.model, target))
    return draft


def check_pair(model: DFlashDraftModel, target: PreTrainedModel) -> None:
    """Refuse a draft that cannot work with this target. Raises ``PairError``."""
    config = target.config.get_text_config(decoder=True)
    check_fit(
        wanted_layers=model.config.num_target_layers,
        target_layers=config.num_hidden_layers,
        draft_hidden=model.config.hidden_size,
        target_hidden=config.hidden_size,
        mask_token_id=model.mask_token_id,
        embedding_rows=cast(Any, target.get_input_embeddings()).weight.shape[0],
    )


def _beside(weight: torch.Tensor, model: DFlashDraftModel) -> DFlashDraftModel:
    """The draft itself where it is on the weight's device and in its dtype already, else a copy:
    the caller's stays as it was. Buffers keep their dtype: rotary frequencies must not round."""
    if all(p.device == weight.device and p.dtype == weight.dtype for p in model.parameters()):
        return model
    moved = cast(DFlashDraftModel, cast(nn.Module, copy.deepcopy(model)).to(weight.device))
    for parameter in moved.parameters():
        parameter.data = parameter.data.to(weight.dtype)
    return moved


class LeanDraftRunner:
    """A draft on the lean CPU forward."""

    def __init__(self, lean: LeanDraft) -> None:
        self._lean = lean

    def start(
        self, capacity: int, sampling: SamplingParams, generator: torch.Generator | None
    ) -> DraftRun:
        """Begin a run with preallocated caches."""
        return LeanDraftRun(self._lean, capacity)


class LeanDraftRun:
    """One run of the lean draft."""

    def __init__(self, lean: LeanDraft, capacity: int) -> None:
        self._lean = lean
        self._cache = lean.new_cache(capacity)

    def propose(
        self, target_hidden: torch.Tensor | None, anchor_id: int, block_size: int
    ) -> Proposal:
        """See ``DraftRun.propose``."""
        assert target_hidden is not None
        logits = self._lean.propose(target_hidden, anchor_id, block_size, self._cache)
        return Proposal(tuple(logits.argmax(dim=-1).tolist()))


class ModuleDraft:
    """A draft run through its module, on any device."""

    def __init__(self, model: DFlashDraftModel, target: PreTrainedModel) -> None:
        self.borrowed = borrow(target, scale=model.config.trained("input_embedding_scale"))
        weight = self.borrowed.embedding.weight
        self.device = weight.device
        self.model = _beside(weight, model).eval()

    def start(
        self, capacity: int, sampling: SamplingParams, generator: torch.Generator | None
    ) -> DraftRun:
        """Begin a run; the cache grows as needed."""
        return ModuleDraftRun(self, sampling, generator)


class ModuleDraftRun:
    """One run through the module."""

    def __init__(
        self, draft: ModuleDraft, sampling: SamplingParams, generator: torch.Generator | None
    ) -> None:
        self._draft, self._sampling, self._generator = draft, sampling, generator
        self._cache = DraftCache(draft.model.config)

    def propose(
        self, target_hidden: torch.Tensor | None, anchor_id: int, block_size: int
    ) -> Proposal:
        """See ``DraftRun.propose``."""
        assert target_hidden is not None
        model, borrowed, device = self._draft.model, self._draft.borrowed, self._draft.device
        slots = [anchor_id] + [model.mask_token_id] * (block_size - 1)
        embeds = borrowed.embed(torch.tensor([slots], device=device))  # [1, B, D]
        start = self._cache.length
        positions = torch.arange(start, start + target_hidden.shape[1] + block_size, device=device)
        hidden = model(embeds, target_hidden.to(device), positions[None], self._cache)
        slots_hidden = hidden[0, 1:]
        logits = model.shape_logits(borrowed.logits(slots_hidden))  # [B-1, V]
        return model.propose_from(
            slots_hidden, logits, anchor_id, self._sampling.temperature, self._generator
        )
