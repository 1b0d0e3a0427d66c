"""What a draft borrows from its target: the embedding its slots enter by, and the output head.

Knows how each family's embedding was used when drafts were trained, and refuses a family where
that would be a guess. Knows no loop and no draft layers. The head is called as it is: what a
draft's logits need besides (multiplier, soft cap) is written in the draft's own config, and the
target's own soft cap or logit scale is not applied to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from dflash.errors import PairError
from dflash.targets import decoder_layers, text_config

# Embedding classes of transformers that do more than look a row up, and what a draft was trained
# to get from them. Anything else of its own kind is refused.
_CALLED = "called as the target calls it, scale included (vllm PR #41703)"
_LOOKED_UP = "its rows without the norm on top (the class's own comment in transformers 5.24)"
_EMBEDDING_RULES = {
    "GemmaTextScaledWordEmbedding": _CALLED,
    "Gemma2TextScaledWordEmbedding": _CALLED,
    "Gemma3TextScaledWordEmbedding": _CALLED,
    "Gemma4TextScaledWordEmbedding": _CALLED,
    "Gemma4UnifiedTextScaledWordEmbedding": _CALLED,
    "MuseGlimmerTextNormedEmbedding": _LOOKED_UP,
}
_SERVE = "Serve this target with vLLM or SGLang, if they support a draft for it."


@dataclass(frozen=True, slots=True)
class Borrowed:
    """A target's embedding and head as one draft uses them."""

    embedding: nn.Embedding
    head: nn.Module
    looked_up: bool
    scale: float  # the draft config's input_embedding_scale

    def embed(self, ids: torch.Tensor) -> torch.Tensor:  # [b, n] -> [b, n, D]
        """The slots' embeddings as the draft was trained to get them."""
        if self.looked_up:
            embeds = nn.functional.embedding(ids, self.embedding.weight)
        else:
            embeds = self.embedding(ids)
        return embeds if self.scale == 1 else embeds * self.scale

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:  # [n, D] -> [n, V]
        """The head's raw logits, on the draft's device: a sharded target keeps its head on
        another."""
        weight = getattr(self.head, "weight", None)
        device = hidden.device if weight is None else weight.device
        return self.head(hidden.to(device)).to(hidden.device)

    @property
    def is_plain(self) -> bool:
        """Whether embedding a slot is looking up a row, and no more."""
        return self.scale == 1 and (self.looked_up or type(self.embedding) is nn.Embedding)


def borrow(target: PreTrainedModel, *, scale: float | None = None) -> Borrowed:
    """Take the embedding and head of a target. Raises ``PairError`` for a family whose embedding
    no rule covers."""
    embedding: Any = target.get_input_embeddings()
    head: Any = target.get_output_embeddings()
    if head is None:
        raise PairError(
            f"{type(target).__name__} has no output head for the draft to borrow.",
            "Use a causal language model.",
        )
    rule = _EMBEDDING_RULES.get(type(embedding).__name__)
    if rule is None:
        _check_plain(target, embedding)
    return Borrowed(embedding, head, rule == _LOOKED_UP, 1.0 if scale is None else float(scale))


def _check_plain(target: PreTrainedModel, embedding: nn.Module) -> None:
    """Refuse an embedding that is not simply what enters the first layer: whether a draft was
    trained before or after the rest (a scale, a norm, added positions) is unknown."""
    family = text_config(target).model_type
    if not isinstance(embedding, nn.Embedding) or type(embedding).forward is not (
        nn.Embedding.forward
    ):
        raise PairError(
            f"a {family} target embeds its tokens with a {type(embedding).__name__}, and what "
            "a draft for it was trained to get from that is not known here.",
            _SERVE,
        )
    ids = torch.tensor([[1, 0]], device=embedding.weight.device)
    entering = _entering_first_layer(target, ids)
    plain = embedding(ids)
    if entering.shape != plain.shape or not torch.equal(entering.to(plain.device), plain):
        raise PairError(
            f"a {family} target changes its embeddings before the first layer (a scale, a norm "
            "or added positions), and whether a draft for it was trained before or after that "
            "is not known here.",
            _SERVE,
        )


class _ReachedError(Exception):
    """Carries the states that entered the first layer out of a forward that need not go on."""

    def __init__(self, states: torch.Tensor) -> None:
        super().__init__()
        self.states = states


@torch.inference_mode()
def _entering_first_layer(target: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    def stop(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        raise _ReachedError(args[0] if args else kwargs["hidden_states"])

    hook = decoder_layers(target)[0].register_forward_pre_hook(stop, with_kwargs=True)
    try:
        target(input_ids=ids, use_cache=False)
    except _ReachedError as reached:
        return reached.states
    finally:
        hook.remove()
    raise PairError(f"{type(target).__name__} does not use its first layer.", _SERVE)
