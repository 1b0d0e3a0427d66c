"""What a draft borrows from an MLX target, by the rules of dflash.borrowed.

mlx-lm keeps a family's embedding scale in the forward of its body and not in the embedding, so
the families of those rules are named here again, by mlx-lm's names; a target of another family
that changes its embeddings before the first layer is refused. Knows no loop and no draft layers.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from dflash.errors import PairError

_SCALED = ("gemma", "gemma2", "gemma3_text", "gemma4_text")  # by the root of the hidden size
_LOOKED_UP = ("muse_glimmer",)  # its rows, without the norm on top
_SERVE = "Serve this target with vLLM or SGLang, if they support a draft for it."


class Borrowed:
    """A target's embedding and head as drafts use them."""

    def __init__(self, body: Any, scale: float) -> None:
        self._body, self._scale = body, scale
        self.embedding: Any = body.model.embed_tokens

    def embed(self, ids: list[int]) -> mx.array:  # [1, n, D]
        """The slots' embeddings, before a draft's own ``input_embedding_scale``."""
        embeds = self.embedding(mx.array([ids]))
        return embeds if self._scale == 1 else embeds * self._scale

    def logits(self, hidden: mx.array) -> mx.array:  # [..., D] -> [..., V]
        """The head's raw logits, tied or not; the target's own soft cap is not applied."""
        if "lm_head" in self._body:
            return self._body.lm_head(hidden)
        return self.embedding.as_linear(hidden)


def text_model(model: nn.Module) -> Any:
    """The language part of a target, also inside a multimodal wrapper. Raises ``PairError`` for
    one that is not built of an embedding and a list of layers."""
    body: Any = getattr(model, "language_model", model)
    decoder = getattr(body, "model", None)
    if not isinstance(getattr(decoder, "layers", None), list) or not hasattr(
        decoder, "embed_tokens"
    ):
        raise PairError(
            f"a {body.model_type} target has no list of decoder layers to tap in mlx-lm.", _SERVE
        )
    return body


def borrow(body: Any) -> Borrowed:
    """Take the embedding and head of a target. Raises ``PairError`` for a family whose embedding
    no rule covers."""
    family = body.model_type
    embedding = body.model.embed_tokens
    ids = mx.array([[1, 0]])
    plain = embedding(ids)
    if family in _SCALED:
        return Borrowed(body, plain.shape[-1] ** 0.5)
    if family not in _LOOKED_UP and not mx.array_equal(_entering_first_layer(body, ids), plain):
        raise PairError(
            f"a {family} target changes its embeddings before the first layer (a scale, a norm "
            "or added positions), and whether a draft for it was trained before or after that "
            "is not known here.",
            _SERVE,
        )
    return Borrowed(body, 1.0)


class _Witness:
    """A layer that notes what it is given; what it wraps answers everything else."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.given: mx.array | None = None

    def __call__(self, x: mx.array, *args: Any, **kwargs: Any) -> Any:
        self.given = x
        return self.inner(x, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)


def _entering_first_layer(body: Any, ids: mx.array) -> mx.array:
    """The states that layer 0 is given. Only they are computed: the rest of the graph is built
    and dropped."""
    layers = body.model.layers
    witness = _Witness(layers[0])
    layers[0] = witness
    try:
        body.model(ids)
    finally:
        layers[0] = witness.inner
    assert witness.given is not None, "a body runs its first layer"
    return witness.given
