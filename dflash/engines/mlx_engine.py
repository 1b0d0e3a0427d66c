"""The MLX engine: the same pair, events and clocks as the torch engine, for Apple silicon.

Knows how to load a pair with mlx-lm. Knows no page and no advice.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import mlx.core as mx

from dflash.budget import check_block_size
from dflash.errors import CheckpointError, EngineError
from dflash.fit import check_fit
from dflash.generate_mlx import MlxTarget, context_length, decode
from dflash.memory import fitting, smaller_request
from dflash.mlx_borrowed import Borrowed
from dflash.model_mlx import load, load_draft
from dflash.pairs import ensure_local, resolve_pair
from dflash.schema import EngineInfo, Event, Message, ModelPair, Request
from dflash.text import Detokenizer, encode_chat, with_text


class MlxEngine:
    """A pair loaded in this process with mlx-lm. ``pair`` is an id or a resolved ModelPair."""

    def __init__(self, pair: str | ModelPair, *, progress: Any = None) -> None:
        self.pair = resolve_pair(pair) if isinstance(pair, str) else pair
        target_path, draft_path = ensure_local(self.pair, progress=progress)
        try:
            self.model, self.tokenizer = load(str(target_path))
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: damaged weights
            raise CheckpointError(
                f"mlx-lm cannot load the target {str(target_path)!r}: "
                f"{' '.join(str(error).split())}",
                "Give a whole folder of a model family that mlx-lm knows.",
            ) from error
        self.draft = load_draft(draft_path)
        self.target: Any = MlxTarget(self.model, self.draft.target_layer_ids)
        self._check_fit()
        self.trained_block_size = self.draft.block_size
        self.info = EngineInfo(
            backend="mlx",
            version=f"mlx {version('mlx')}, mlx-lm {version('mlx-lm')}",
            target_id=self.pair.target_id,
            draft_id=self.pair.draft_id,
            device=str(mx.default_device()),
            dtype=str(self._borrowed.embed([0]).dtype).removeprefix("mlx.core."),
            reports="cycles",
        )

    @property
    def _borrowed(self) -> Borrowed:
        borrowed: Borrowed | None = self.target.borrowed
        assert borrowed is not None, "every draft has taps"
        return borrowed

    def _check_fit(self) -> None:
        borrowed = self._borrowed
        check_fit(
            wanted_layers=self.draft.config.num_target_layers,
            target_layers=self.target.num_layers,
            draft_hidden=self.draft.config.hidden_size,
            target_hidden=borrowed.embed([0]).shape[-1],
            mask_token_id=self.draft.mask_token_id,
            embedding_rows=borrowed.embedding.weight.shape[0],
        )

    @property
    def context_length(self) -> int:
        """The most tokens a prompt and its answer may have together."""
        return context_length(self.model)

    def stream(self, request: Request) -> Iterator[Event]:
        """See ``Engine.stream``."""
        check_block_size(request.block_size, self.trained_block_size)
        if self.model is None:
            raise EngineError("this engine was closed.", "Open it again.")
        detokenizer = Detokenizer(self.tokenizer)
        events = decode(
            self.target,
            self.draft,
            self.encode(request.messages, enable_thinking=request.sampling.enable_thinking),
            sampling=request.sampling,
            block_size=request.block_size,
            stop_ids=frozenset(self.tokenizer.eos_token_ids),
            context_length=self.context_length,
        )
        fits = fitting(self.info.device, hint=smaller_request(request), release=mx.clear_cache)
        with contextlib.closing(events), fits:
            for event in events:
                yield with_text(event, detokenizer)

    def encode(self, messages: tuple[Message, ...], *, enable_thinking: bool = False) -> list[int]:
        """See ``Engine.encode``."""
        return encode_chat(self.tokenizer, messages, enable_thinking=enable_thinking)

    def decode(self, ids: list[int]) -> str:
        """See ``Engine.decode``."""
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    @property
    def has_free_window(self) -> bool:
        """See ``Windowed.has_free_window``."""
        return not any(self.draft.config.windows)

    def with_window(self, sliding_window_size: int) -> MlxEngine:
        """See ``Windowed.with_window``."""
        other = copy.copy(self)
        other.draft = load_draft(ensure_local(self.pair)[1], sliding_window_size)
        return other

    def close(self) -> None:
        """Drop the models and give MLX's buffers back."""
        self.model = self.draft = self.target = None  # type: ignore[assignment]
        mx.clear_cache()
