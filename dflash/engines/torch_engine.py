"""The torch engine: our own decode loop on a local target and draft.

Knows how to load a pair, render a prompt once and put text on events, off the lanes' clocks.
Knows no page and no advice.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch
import transformers

from dflash import microscope
from dflash.budget import check_block_size
from dflash.close_look import Divergence, SlotOdds
from dflash.drafts import open_draft
from dflash.errors import EngineError
from dflash.generate import decode
from dflash.loading import load_target, load_tokenizer
from dflash.memory import fitting, smaller_request
from dflash.model import load_draft
from dflash.pairs import ensure_local, resolve_pair
from dflash.schema import EngineInfo, Event, Message, ModelPair, Request, Trace
from dflash.stops import stop_token_ids
from dflash.targets import context_length, open_target
from dflash.text import Detokenizer, encode_chat, with_text
from dflash.wheel_target import Progress

_SMALLER_PAIR = "Choose a smaller pair, or serve this one with vLLM or SGLang on several devices."


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
        self._device = usable_device(device or best_device())
        dtype = dtype or (torch.float32 if self._device.type == "cpu" else torch.bfloat16)
        with fitting(device_name(self._device), hint=_SMALLER_PAIR, release=self.close):
            model: Any = load_target(target_path, dtype)
            self.model = model.to(self._device).eval()
            self.tokenizer = load_tokenizer(target_path)
            self.draft_model = load_draft(draft_path, dtype=dtype, device=self._device)
            # One target serves both lanes: an untapped run of it is the baseline.
            self.target = open_target(self.model, self.draft_model.target_layer_ids)
            self.draft = open_draft(self.draft_model, self.model)
        self._stop_ids = stop_token_ids(self.model, self.tokenizer)
        self.trained_block_size = self.draft_model.block_size
        self.info = EngineInfo(
            backend="torch",
            version=f"torch {torch.__version__}, transformers {transformers.__version__}",
            target_id=self.pair.target_id,
            draft_id=self.pair.draft_id,
            device=device_name(self._device),
            dtype=str(dtype).removeprefix("torch."),
            reports="cycles",
        )

    @property
    def context_length(self) -> int:
        """The most tokens a prompt and its answer may have together."""
        return context_length(self.model)

    def stream(self, request: Request) -> Iterator[Event]:
        """See ``Engine.stream``. Raises ``BlockSizeError`` for a block the draft cannot draw."""
        check_block_size(request.block_size, self.trained_block_size)
        ids = self.encode(request.messages, enable_thinking=request.sampling.enable_thinking)
        detokenizer = Detokenizer(self.tokenizer)
        events = decode(
            self.target,
            self.draft,
            ids,
            sampling=request.sampling,
            block_size=request.block_size,
            stop_ids=self._stop_ids,
            context_length=context_length(self.model, len(ids)),
        )
        fits = fitting(
            device_name(self._device), hint=smaller_request(request), release=self._empty_cache
        )
        with contextlib.closing(events), fits:
            for event in events:
                yield with_text(event, detokenizer)

    def encode(self, messages: tuple[Message, ...], *, enable_thinking: bool = False) -> list[int]:
        """See ``Engine.encode``."""
        return encode_chat(self.tokenizer, messages, enable_thinking=enable_thinking)

    def decode(self, ids: list[int]) -> str:
        """See ``Engine.decode``."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    def device_now(self) -> str:
        """The device's own name, asked now: a lent GPU is known only while it is lent."""
        return device_name(self._device)

    @property
    def has_free_window(self) -> bool:
        """See ``Windowed.has_free_window``."""
        config = self.draft_model.config
        return not any(config.layer_window(i) for i in range(config.num_hidden_layers))

    def with_window(self, sliding_window_size: int) -> TorchEngine:
        """See ``Windowed.with_window``."""
        other = copy.copy(self)
        other.draft_model = load_draft(
            ensure_local(self.pair)[1],
            dtype=self.draft_model.dtype,
            device=self._device,
            sliding_window_size=sliding_window_size,
        )
        other.draft = open_draft(other.draft_model, self.model)
        return other

    def slot_odds(self, trace: Trace) -> Iterator[tuple[SlotOdds, ...]]:
        """See ``CloseLook.slot_odds``."""
        first = trace.prefilled
        if first is None:
            return iter(())
        return microscope.slot_odds(
            self.target, self.draft_model, self.model, self._prompt_ids(trace), trace.cycles,
            first.token_id,
        )  # fmt: skip

    def divergence(self, baseline: Trace, dflash: Trace, index: int) -> Divergence:
        """See ``CloseLook.divergence``."""
        return microscope.divergence(self.target, self._prompt_ids(dflash), baseline, dflash, index)

    def _prompt_ids(self, trace: Trace) -> list[int]:
        request = trace.request
        return self.encode(request.messages, enable_thinking=request.sampling.enable_thinking)

    def close(self) -> None:
        """Drop the models; a CUDA device gets its memory back."""
        for name in ("model", "draft_model", "target", "draft"):
            self.__dict__.pop(name, None)
        self._empty_cache()

    def _empty_cache(self) -> None:
        """Give back what the allocator holds unused."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        elif self._device.type == "mps":
            torch.mps.empty_cache()


def best_device() -> str:
    """The fastest kind of device torch finds here."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def usable_device(name: str) -> torch.device:
    """The device of that name. Raises ``EngineError`` where torch knows or finds none."""
    found = best_device()
    try:
        device = torch.device(name)
        usable = device.type not in ("cuda", "mps") or (
            device.type == found and (device.index or 0) < _num_devices(device.type)
        )
    except RuntimeError:
        usable = False
    if not usable:
        raise EngineError(
            f"there is no device {name!r} here.",
            f"Use {found if found == 'cpu' else f'cpu or {found}'}, or name none.",
        )
    return device


def _num_devices(kind: str) -> int:
    return torch.cuda.device_count() if kind == "cuda" else 1


def device_name(device: torch.device) -> str:
    """What a person calls the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return device.type
    num_threads = torch.get_num_threads()
    return f"cpu, {num_threads} thread{'s' if num_threads > 1 else ''}"
