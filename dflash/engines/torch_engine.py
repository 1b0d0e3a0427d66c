"""The torch engine: our own decode loop on a local target and draft.

Knows how to load a pair, render a prompt once and put text on events, off the lanes' clocks.
Knows no page and no advice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from dflash.drafts import Draft, open_draft
from dflash.errors import CheckpointError, EngineError
from dflash.budget import check_block_size
from dflash.generate import decode
from dflash.model import DFlashDraftModel, load_draft
from dflash.pairs import ensure_local, resolve_pair
from dflash.schema import EngineInfo, Event, Message, ModelPair, Request
from dflash.stops import stop_token_ids
from dflash.targets import Target, open_target, text_config
from dflash.text import Detokenizer, encode_chat, with_text

Progress = Callable[[str, float | None], None]


class TorchEngine:
    """A pair loaded in this process. ``pair`` is an id (``demo``), or a resolved ModelPair."""

    def __init__(
        self,
        pair: str | ModelPair,
        *,
        device: str | None = None,
        dtype: torch.dtype | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.pair = resolve_pair(pair) if isinstance(pair, str) else pair
        target_path, draft_path = ensure_local(self.pair, progress=progress)
        self._device = torch.device(device or best_device())
        dtype = dtype or (torch.float32 if self._device.type == "cpu" else torch.bfloat16)
        self.model = _load_target(target_path, dtype, self._device)
        self.tokenizer = AutoTokenizer.from_pretrained(target_path, trust_remote_code=False)
        self.draft_model: DFlashDraftModel | None = (
            load_draft(draft_path, dtype=dtype, device=self._device) if draft_path else None
        )
        self._open_runners()
        self._stop_ids = stop_token_ids(self.model, self.tokenizer)
        self.trained_block_size = self.draft_model.block_size if self.draft_model else None
        self.info = EngineInfo(
            backend="torch",
            version=f"torch {torch.__version__}, transformers {transformers.__version__}",
            target_id=self.pair.target_id,
            draft_id=self.pair.draft_id if self.draft_model else None,
            device=device_name(self._device),
            dtype=str(dtype).removeprefix("torch."),
            reports="cycles",
        )

    def _open_runners(self) -> None:
        """One target for both lanes: an untapped run of it is the baseline."""
        taps = self.draft_model.target_layer_ids if self.draft_model else ()
        self.target: Target = open_target(self.model, taps)
        self.draft: Draft | None = (
            open_draft(self.draft_model, self.model) if self.draft_model else None
        )

    @property
    def context_length(self) -> int:
        """The most tokens a prompt and its answer may have together."""
        return text_config(self.model).max_position_embeddings

    def stream(self, request: Request) -> Iterator[Event]:
        """See ``Engine.stream``. Raises ``EngineError`` for a block the draft cannot draw."""
        ids = self.encode(request.messages, enable_thinking=request.sampling.enable_thinking)
        if request.block_size > 1:
            if self.draft is None:
                raise EngineError("no draft is loaded.", "Set block size 1, or choose a pair.")
            check_block_size(request.block_size, self.trained_block_size)
        detokenizer = Detokenizer(self.tokenizer)
        events = decode(
            self.target,
            self.draft,
            ids,
            sampling=request.sampling,
            block_size=request.block_size,
            stop_ids=self._stop_ids,
            context_length=self.context_length,
        )
        with contextlib.closing(events), _out_of_memory(self._device):
            for event in events:
                yield with_text(event, detokenizer)

    def encode(self, messages: tuple[Message, ...], *, enable_thinking: bool = False) -> list[int]:
        """See ``Engine.encode``."""
        return encode_chat(self.tokenizer, messages, enable_thinking=enable_thinking)

    def decode(self, ids: list[int]) -> str:
        """See ``Engine.decode``."""
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def close(self) -> None:
        """Drop the models; a CUDA device gets its memory back."""
        self.model = self.draft_model = self.target = self.draft = None  # type: ignore[assignment]
        if self._device.type == "cuda":
            torch.cuda.empty_cache()


def best_device() -> str:
    """The fastest kind of device torch finds here."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def device_name(device: torch.device) -> str:
    """What a person calls the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu, {torch.get_num_threads()} threads" if device.type == "cpu" else device.type


def _load_target(path: str | Path, dtype: torch.dtype, device: torch.device) -> Any:
    """Load a causal LM from safetensors. Raises ``CheckpointError`` in one sentence."""
    try:
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, use_safetensors=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(
            f"the target {str(path)!r} cannot be loaded: {reason}",
            "Give a transformers folder with config.json and safetensors weights.",
        ) from error
    return model.to(device).eval()


@contextlib.contextmanager
def _out_of_memory(device: torch.device) -> Iterator[None]:
    """Turn a device's out-of-memory into a sentence, its caches freed."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        if device.type == "cuda":
            torch.cuda.empty_cache()
        raise EngineError(
            f"the run did not fit in the memory of {device_name(device)}.",
            "Use a shorter prompt, fewer new tokens or a smaller block size.",
        ) from error
