"""The decode loop in MLX: the same events and step order as dflash.generate.

Knows mlx-lm models and their caches; patches no class, only wraps the layers of the one model
it was given. Greedy and sampled decoding by the rules of dflash.verify, in MLX arrays.
Shapes: n positions, V vocabulary, K taps, D hidden.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import ArraysCache, KVCache, RotatingKVCache, make_prompt_cache

from dflash.budget import check_block_size, cut_at_stop, token_budget
from dflash.errors import PairError
from dflash.metrics import spec_stats
from dflash.mlx_borrowed import borrow, text_model
from dflash.model_mlx import DFlashDraftModel, make_cache
from dflash.schema import Cycle, Event, Finished, FinishReason, Prefilled, SamplingParams
from dflash.text import Detokenizer


class Spy:
    """One layer (or mixer) of one model, with its last input and output kept while asked to."""

    def __init__(self, inner: nn.Module) -> None:
        self.inner = inner
        self.seen: dict[str, Any] = {}
        self.is_watching = False

    def __call__(self, x: mx.array, *args: Any, **kwargs: Any) -> Any:
        out = self.inner(x, *args, **kwargs)
        if self.is_watching:
            # Gemma 4's layers hand their keys and values on beside the states.
            states = out[0] if isinstance(out, tuple) else out
            self.seen.update(x=x, args=args, kwargs=kwargs, out=states)
        return out

    def __getattr__(self, name: str) -> Any:
        # Models ask their layers things (is_linear, use_sliding); the wrapped one answers.
        return getattr(self.__dict__["inner"], name)


class MlxTarget:
    """A target of mlx-lm ready to start runs; runs of one target may be interleaved."""

    def __init__(self, model: nn.Module, target_layer_ids: list[int]) -> None:
        self.model = model
        body = text_model(model)
        layers = body.model.layers  # the list itself: model.layers may be a copy
        outside = [i for i in target_layer_ids if not 0 <= i < len(layers)]
        if outside:
            raise PairError(
                f"the draft reads target layer {outside[0]}, but this target has {len(layers)} "
                "layers.",
                "Use the target that the draft was trained for.",
            )
        self.num_layers = len(layers)
        self.borrowed = borrow(body) if target_layer_ids else None  # the baseline borrows nothing
        self.taps = [_spied(layers, i) for i in target_layer_ids]
        self.mixers: dict[int, Spy] = {}
        for i, cache in enumerate(new_caches(model)):
            if isinstance(cache, ArraysCache):
                self.mixers[i] = _spied_mixer(layers[i], i)

    def start(self, *, tapped: bool) -> MlxRun:
        """Begin an empty run. Untapped runs never roll back."""
        return MlxRun(self, tapped)


class MlxRun:
    """One sequence in progress. Attention caches are trimmed; gated delta net states are put
    back (arrays are values here, so a snapshot is free) and their mixers alone are fed the
    accepted inputs again."""

    def __init__(self, target: MlxTarget, tapped: bool) -> None:
        self._target, self._tapped = target, tapped
        self._caches = new_caches(target.model)
        self._before: dict[int, list[Any]] = {}
        self._seen: dict[int, dict[str, Any]] = {}

    def forward(self, ids: list[int], num_logits: int) -> tuple[mx.array, mx.array | None]:
        """Append n positions; return logits [num_logits, V] and tapped states [1, n, K*D]."""
        target = self._target
        self._before = {i: list(self._caches[i].cache) for i in target.mixers}
        spies = [*target.taps, *target.mixers.values()] if self._tapped else []
        for spy in spies:
            spy.is_watching = True
        logits = target.model(mx.array([ids]), cache=self._caches)[0, -num_logits:]
        hidden = None
        if self._tapped:
            hidden = mx.concatenate([tap.seen["out"] for tap in target.taps], axis=-1)
            self._seen = {i: dict(m.seen) for i, m in target.mixers.items()}
        for spy in spies:
            spy.is_watching, spy.seen = False, {}
        return logits, hidden

    def rollback(self, num_rejected: int) -> None:
        """Forget the last ``num_rejected`` positions; call at most once after a forward."""
        if num_rejected == 0:
            return
        for i, cache in enumerate(self._caches):
            if i not in self._target.mixers:
                trimmed = cache.trim(num_rejected)
                assert trimmed == num_rejected, f"layer {i} trimmed {trimmed}"
        for i, mixer in self._target.mixers.items():
            self._caches[i].cache = list(self._before[i])
            seen = self._seen[i]
            # The layer passes (mask, cache) by position; both hold for fewer positions too.
            mixer.inner(seen["x"][:, :-num_rejected], *seen["args"], **seen["kwargs"])


def new_caches(model: nn.Module) -> list[Any]:
    """Caches for one run that can be put back. Raises ``PairError`` naming one that cannot.

    A rotating cache loses what a rollback needs, so a plain one takes its place; the models that
    use one build their window into the mask.
    """
    caches = make_prompt_cache(model)
    for i, cache in enumerate(caches):
        if isinstance(cache, RotatingKVCache) and cache.keep == 0:
            caches[i] = KVCache()
        elif not isinstance(cache, (KVCache, ArraysCache)):
            raise PairError(
                f"layer {i} of this target uses a {type(cache).__name__}, which cannot be rolled "
                "back here.",
                "Serve this target with vLLM or SGLang.",
            )
    return caches


def _spied(layers: list[Any], index: int) -> Spy:
    """Wrap one layer in place, once."""
    if not isinstance(layers[index], Spy):
        layers[index] = Spy(layers[index])
    return layers[index]


def _spied_mixer(layer: Any, index: int) -> Spy:
    """Wrap a layer's linear-attention mixer in place, once. Raises ``PairError``."""
    layer = layer.inner if isinstance(layer, Spy) else layer
    if not hasattr(layer, "linear_attn"):
        raise PairError(
            f"layer {index} of this target keeps a running state that cannot be rolled back here.",
            "Serve this target with vLLM or SGLang.",
        )
    if not isinstance(layer.linear_attn, Spy):
        layer.linear_attn = Spy(layer.linear_attn)
    return layer.linear_attn


class MlxClock:
    """A lane's own compute, with the lazy graph evaluated before each reading."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self.resume()

    def resume(self) -> None:
        """Start counting again after a yield."""
        self._mark = time.perf_counter()

    def lap(self, *arrays: mx.array) -> float:
        """Seconds since the last lap or resume, after computing the given arrays."""
        mx.eval(*arrays)
        now = time.perf_counter()
        lap_s, self._mark = now - self._mark, now
        self.elapsed_s += lap_s
        return lap_s


def decode(
    target: MlxTarget,
    draft: DFlashDraftModel | None,  # None only when block_size is 1
    prompt_ids: list[int],
    *,
    sampling: SamplingParams,
    block_size: int,
    stop_ids: frozenset[int],
    context_length: int,
) -> Generator[Event, None, None]:
    """Yield Prefilled, one Cycle per round, Finished; see ``dflash.generate.decode``."""
    budget = token_budget(len(prompt_ids), sampling.max_new_tokens, context_length)
    clock = MlxClock()
    key = mx.random.key(sampling.seed % 2**64)  # MLX takes no negative seed
    run = target.start(tapped=block_size > 1)
    cache = make_cache(draft) if draft is not None and block_size > 1 else None
    logits, hidden = run.forward(prompt_ids, 1)
    key, draw = mx.random.split(key)
    anchor = target_choice(logits, sampling, draw)[0]
    clock.lap(*[hidden] if hidden is not None else [])
    cycles: list[Cycle] = []
    num_output = 1
    yield Prefilled(clock.elapsed_s, len(prompt_ids), anchor)
    reason: FinishReason = "stop" if anchor in stop_ids else "length"
    while anchor not in stop_ids and num_output < budget:
        clock.resume()
        width = min(block_size, budget - num_output)
        drafts: list[int] = []
        if draft is not None and cache is not None and width > 1:
            drafts = propose(draft, target, cache, hidden, anchor, width)
        draft_s = clock.lap()
        logits, hidden = run.forward([anchor, *drafts], width)
        key, draw = mx.random.split(key)
        wanted = target_choice(logits, sampling, draw)
        num_accepted = next((i for i, d in enumerate(drafts) if d != wanted[i]), len(drafts))
        run.rollback(len(drafts) - num_accepted)
        if hidden is not None:
            hidden = hidden[:, : num_accepted + 1]
        emitted = cut_at_stop(tuple(wanted[: num_accepted + 1]), stop_ids)
        verify_s = clock.lap(*[hidden] if hidden is not None else [])
        anchor = emitted[-1]
        num_output += len(emitted)
        reason = "stop" if anchor in stop_ids else "length"
        cycle = Cycle(
            clock.elapsed_s, tuple(drafts), num_accepted, wanted[num_accepted], emitted,
            draft_s, verify_s, target_ids=tuple(wanted),
        )  # fmt: skip
        cycles.append(cycle)
        yield cycle
    spec = spec_stats(cycles, block_size) if block_size > 1 else None
    yield Finished(clock.elapsed_s, reason, num_output, spec, mx.get_peak_memory())


def propose(
    draft: DFlashDraftModel,
    target: MlxTarget,
    cache: Any,
    target_hidden: mx.array | None,
    anchor_id: int,
    block_size: int,
) -> list[int]:
    """Take in the new context and propose block_size - 1 tokens: the argmax per slot."""
    slots = [anchor_id] + [draft.mask_token_id] * (block_size - 1)
    assert target_hidden is not None and target.borrowed is not None
    embeds = draft.scale_embeds(target.borrowed.embed(slots))
    hidden = draft(embeds, target_hidden, cache)
    logits = draft.shape_logits(target.borrowed.logits(hidden[0, 1:]))
    return cast(list[int], mx.argmax(logits, axis=-1).tolist())


def target_choice(logits: mx.array, sampling: SamplingParams, key: mx.array) -> list[int]:
    """Argmax or a draw per row [B, V]; see ``dflash.verify.target_choice``."""
    if sampling.temperature == 0:
        return cast(list[int], mx.argmax(logits, axis=-1).tolist())
    scaled = logits.astype(mx.float32) / sampling.temperature
    if 0 < sampling.top_k < scaled.shape[-1]:
        kth = mx.sort(scaled, axis=-1)[:, -sampling.top_k][:, None]
        scaled = mx.where(scaled < kth, -mx.inf, scaled)
    if sampling.top_p < 1:
        scaled = _keep_top_p(scaled, sampling.top_p)
    return cast(list[int], mx.random.categorical(scaled, key=key).tolist())


def _keep_top_p(scaled: mx.array, top_p: float) -> mx.array:
    """Drop tokens once the mass before them reaches top_p; the first always stays."""
    order = mx.argsort(-scaled, axis=-1)
    ordered = mx.softmax(mx.take_along_axis(scaled, order, axis=-1), axis=-1)
    outside = mx.cumsum(ordered, axis=-1) - ordered >= top_p
    dropped = mx.put_along_axis(mx.zeros(scaled.shape, mx.bool_), order, outside, axis=-1)
    return mx.where(dropped, -mx.inf, scaled)


@dataclass(frozen=True, slots=True)
class GenerationResponse:
    """One cycle's text, as mlx-lm's own stream yields it. ``accepted`` counts the bonus."""

    text: str
    tokens: tuple[int, ...]
    accepted: int
    generation_tps: float
    finish_reason: FinishReason | None


def stream_generate(
    model: nn.Module,
    draft: DFlashDraftModel | None,
    tokenizer: Any,
    prompt: str | list[int],
    *,
    block_size: int | None = None,
    max_tokens: int = 256,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    seed: int = 0,
) -> Iterator[GenerationResponse]:
    """Generate with a draft; text arrives once per cycle. ``block_size`` defaults to trained.

    Raises ``BlockSizeError``."""
    size = (
        1 if draft is None else check_block_size(block_size or draft.block_size, draft.block_size)
    )
    ids = tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
    target = MlxTarget(model, draft.target_layer_ids if draft is not None and size > 1 else [])
    detokenizer = Detokenizer(tokenizer)
    events = decode(
        target, draft, ids,
        sampling=SamplingParams(temperature, top_p, top_k, seed, max_tokens),
        block_size=size,
        stop_ids=frozenset(tokenizer.eos_token_ids),
        context_length=context_length(model),
    )  # fmt: skip
    num_tokens, first_s = 0, 0.0
    for event in events:
        if isinstance(event, Finished):
            yield GenerationResponse("", (), 0, _tps(num_tokens, event.t_s - first_s),
                                     event.finish_reason)  # fmt: skip
        elif isinstance(event, (Prefilled, Cycle)):
            new = (event.token_id,) if isinstance(event, Prefilled) else event.emitted_ids
            first_s = event.t_s if isinstance(event, Prefilled) else first_s
            num_tokens += len(new)
            accepted = event.num_accepted + 1 if isinstance(event, Cycle) else 1
            text = "".join(detokenizer.add(i) for i in new)
            yield GenerationResponse(text, new, accepted, _tps(num_tokens, event.t_s - first_s),
                                     None)  # fmt: skip


def context_length(model: nn.Module) -> int:
    """The most tokens a prompt and its answer may have together."""
    args = getattr(getattr(model, "language_model", model), "args", None)
    return getattr(args, "max_position_embeddings", None) or 32768


def _tps(num_tokens: int, seconds: float) -> float:
    """Decoded tokens per second after the first; 0 before the second token."""
    return (num_tokens - 1) / seconds if seconds > 0 else 0.0
