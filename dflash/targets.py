"""How a target is run: states tapped, positions appended, rejected positions rolled back.

Knows transformers models and their caches. Knows no draft and no acceptance rule.
Shapes: n positions, V vocabulary, K taps, D hidden.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol, cast

import torch
from torch import nn
from transformers import DynamicCache, PreTrainedModel

from dflash.errors import PairError
from dflash.lean import LeanTarget

_SERVE = "Serve this target with vLLM or SGLang."


class TargetRun(Protocol):
    """One sequence in progress on a target."""

    @property
    def length(self) -> int:
        """Positions in the cache."""
        ...

    def forward(self, ids: list[int], num_logits: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Append n positions; return logits [num_logits, V] and tapped states [1, n, K*D]."""
        ...

    def rollback(self, num_rejected: int) -> None:
        """Forget the last ``num_rejected`` positions; call once after every forward."""
        ...


class Target(Protocol):
    """A target ready to start runs; runs of one target may be interleaved."""

    device: torch.device

    def start(self, capacity: int, *, tapped: bool) -> TargetRun:
        """Begin an empty run of at most ``capacity`` positions. Untapped runs never roll back."""
        ...


def open_target(model: PreTrainedModel, target_layer_ids: Iterable[int]) -> Target:
    """Choose how to run the model: the lean CPU forward where it is exact, else transformers'."""
    taps = tuple(target_layer_ids)
    check_taps(model, taps)
    if next(model.parameters()).device.type == "cpu" and LeanTarget.supports(model):
        return LeanRunner(model, taps)
    return TransformersTarget(model, taps)


def check_taps(model: PreTrainedModel, taps: tuple[int, ...]) -> None:
    """Refuse taps the model does not have. Raises ``PairError``."""
    num_layers = len(decoder_layers(model))
    outside = [i for i in taps if not 0 <= i < num_layers]
    if outside:
        raise PairError(
            f"the draft reads target layer {outside[0]}, but this target has {num_layers} layers "
            f"(0 to {num_layers - 1}).",
            "Use the target that the draft was trained for, or name other layers.",
        )


def decoder_layers(model: PreTrainedModel) -> nn.ModuleList:
    """The text decoder's layers, also inside a multimodal wrapper. Raises ``PairError``."""
    decoder = model.get_decoder()
    layers = getattr(getattr(decoder, "language_model", decoder), "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise PairError(
            f"{type(model).__name__} has no list of decoder layers to tap.",
            "Use a causal language model of transformers 5.",
        )
    return layers


def text_config(model: PreTrainedModel) -> Any:
    """The config of the language part."""
    return model.config.get_text_config(decoder=True)


def context_length(model: PreTrainedModel, num_prompt_tokens: int = 0) -> int:
    """The most tokens a prompt and its answer may have together.

    A longrope target turns every position by other angles once a text outgrows the original
    length, and the keys cached by then keep the old ones: the answer to a prompt that fits into
    that length ends with it.
    """
    config = text_config(model)
    ropes = getattr(config, "rope_parameters", None) or {}
    borders = [
        rope["original_max_position_embeddings"]
        for rope in (ropes, *ropes.values())  # one for all layers, or one per kind of layer
        if isinstance(rope, dict) and rope.get("rope_type") == "longrope"
    ]
    return min([config.max_position_embeddings, *(b for b in borders if num_prompt_tokens <= b)])


class LeanRunner:
    """A target on the lean CPU forward."""

    def __init__(self, model: PreTrainedModel, taps: tuple[int, ...]) -> None:
        self.device = torch.device("cpu")
        self._lean = LeanTarget(model, taps)

    def start(self, capacity: int, *, tapped: bool) -> TargetRun:
        """Begin a run with preallocated caches."""
        return LeanRun(self._lean, capacity, tapped)


class LeanRun:
    """One run of the lean forward; rolling back only moves a length."""

    def __init__(self, lean: LeanTarget, capacity: int, tapped: bool) -> None:
        self._lean, self._tapped = lean, tapped
        self._cache = lean.new_cache(capacity)

    @property
    def length(self) -> int:
        """Positions in the cache."""
        return self._cache.length

    def forward(self, ids: list[int], num_logits: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See ``TargetRun.forward``."""
        tokens = torch.tensor([ids])
        return self._lean.forward(tokens, self._cache, num_logits, self._tapped)

    def rollback(self, num_rejected: int) -> None:
        """See ``TargetRun.rollback``."""
        if num_rejected:
            self._cache.rollback(num_rejected)


class TransformersTarget:
    """Any causal LM of transformers 5 whose cache can be put back. Raises ``PairError`` for taps
    on one whose cache cannot; without taps nothing is ever put back."""

    def __init__(self, model: PreTrainedModel, taps: tuple[int, ...]) -> None:
        self.model = model
        self.device = next(model.parameters()).device
        self.layers = decoder_layers(model)
        self._taps = taps
        self.cache_keyword = cache_keyword(model)
        if taps:
            _linear_mixers(self, new_cache(model))

    @contextmanager
    def tapping(self) -> Iterator[dict[int, torch.Tensor]]:
        """Keep the tapped layers' outputs, by layer, while the model runs inside."""
        kept: dict[int, torch.Tensor] = {}

        def keep(layer_id: int) -> Any:
            def hook(_module: nn.Module, _args: Any, output: Any) -> None:
                kept[layer_id] = output[0] if isinstance(output, tuple) else output

            return hook

        hooks = [self.layers[i].register_forward_hook(keep(i)) for i in set(self._taps)]
        try:
            yield kept
        finally:
            for hook in hooks:
                hook.remove()

    def side_by_side(self, kept: dict[int, torch.Tensor]) -> torch.Tensor:  # [1, n, K*D]
        """Tapped states in tap order, on the embedding's device: a sharded target leaves them on
        several."""
        return torch.cat([kept[i].to(self.device) for i in self._taps], dim=-1)

    def start(self, capacity: int, *, tapped: bool) -> TargetRun:
        """Begin a run on a cache of its own; ``capacity`` is not needed here."""
        return TransformersRun(self, tapped)


def new_cache(model: PreTrainedModel) -> DynamicCache:
    """An empty cache for one run. Raises ``PairError`` for a model that brings its own kind."""
    # transformers' own list of such models; its ``generate`` asks the same question.
    if not cast(Any, model)._supports_default_dynamic_cache():
        raise PairError(
            f"{type(model).__name__} keeps a cache of its own kind, which cannot be used here.",
            _SERVE,
        )
    return DynamicCache(config=text_config(model))


def cache_keyword(model: PreTrainedModel) -> str:
    """The forward's own word for its cache: transformers 5.20 has another one than 5.24."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


class TransformersRun:
    """One run on a DynamicCache. Attention layers are cropped; gated delta net layers are put
    back from a snapshot and fed the accepted inputs again (their own mixer only, no second full
    forward), because ``crop`` leaves rejected tokens in the recurrent state (transformers
    issue #49036)."""

    def __init__(self, target: TransformersTarget, tapped: bool) -> None:
        self._target, self._tapped = target, tapped
        self._cache = new_cache(target.model)
        self.length = 0
        self._mixers = _linear_mixers(target, self._cache) if tapped else {}
        if tapped:
            for layer in self._cache.layers:
                if getattr(layer, "is_sliding", False):
                    cast(Any, layer).activate_past_recording()
        self._snapshots: dict[int, _LinearSnapshot] = {}

    def forward(self, ids: list[int], num_logits: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See ``TargetRun.forward``."""
        target = self._target
        tokens = torch.tensor([ids], device=target.device)
        self._snapshots = {i: _LinearSnapshot(self._cache.layers[i]) for i in self._mixers}
        hooks = [
            mixer.register_forward_pre_hook(self._snapshots[i].remember, with_kwargs=True)
            for i, mixer in self._mixers.items()
        ]
        try:
            with target.tapping() if self._tapped else nullcontext() as kept:
                output = target.model(
                    input_ids=tokens,
                    use_cache=True,
                    logits_to_keep=num_logits,
                    **{target.cache_keyword: self._cache},
                )
        finally:
            for hook in hooks:
                hook.remove()
        self.length += len(ids)
        logits = output.logits[0].to(target.device)
        return logits, None if kept is None else target.side_by_side(kept)

    def rollback(self, num_rejected: int) -> None:
        """See ``TargetRun.rollback``. Called with 0 it still trims a recorded window."""
        for i, layer in enumerate(self._cache.layers):
            if i not in self._mixers and (num_rejected or getattr(layer, "record_past", False)):
                cast(Any, layer).crop(-num_rejected)
        if num_rejected:
            for i, mixer in self._mixers.items():
                self._snapshots[i].restore_and_replay(mixer, num_rejected)
        self._snapshots = {}
        self.length -= num_rejected


class _LinearSnapshot:
    """A linear layer's states before a forward, and the inputs that forward gave its mixer."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self._states = [
            {i: None if s is None else s.clone() for i, s in states.items()}
            for states in (layer.conv_states, layer.recurrent_states)
        ]
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}

    def remember(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward pre-hook."""
        self._args, self._kwargs = args, kwargs

    def restore_and_replay(self, mixer: nn.Module, num_rejected: int) -> None:
        """Put the states back and run the mixer alone over the positions that were kept."""
        for states, saved in zip(
            (self._layer.conv_states, self._layer.recurrent_states), self._states, strict=True
        ):
            for i, state in saved.items():
                states[i] = state
        kwargs = dict(self._kwargs)
        if self._args:
            mixer(self._args[0][:, :-num_rejected], *self._args[1:], **kwargs)
        else:
            kwargs["hidden_states"] = kwargs["hidden_states"][:, :-num_rejected]
            mixer(**kwargs)


def _linear_mixers(target: TransformersTarget, cache: DynamicCache) -> dict[int, nn.Module]:
    """The mixers whose state must be put back by replay. Raises ``PairError`` for a kind of
    state we cannot put back."""
    mixers = {}
    for i, layer in enumerate(cache.layers):
        if not hasattr(layer, "conv_states"):
            continue
        mixer = getattr(target.layers[i], "linear_attn", None)
        if mixer is None:
            raise PairError(
                f"layer {i} of {type(target.model).__name__} keeps a running state that cannot "
                "be rolled back here.",
                _SERVE,
            )
        mixers[i] = mixer
    return mixers
