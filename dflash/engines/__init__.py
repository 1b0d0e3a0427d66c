"""Engines: whatever turns a Request into a stream of events. Knows the protocol and the table
of backends; each backend is imported only when it is opened.

An engine is opened once and serves many streams. Streams of one engine may be interleaved
(``next()`` on one, then on another): each has caches of its own, and each stamps its events
with its own compute time only, so that two lanes on one device can be raced in virtual time.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from dflash.errors import EngineError
from dflash.schema import EngineInfo, Event, Message, Request

_BACKENDS = {
    "torch": ("dflash.engines.torch_engine", "TorchEngine"),
    "mlx": ("dflash.engines.mlx_engine", "MlxEngine"),
    "vllm": ("dflash.engines.vllm", "VllmEngine"),
    "sglang": ("dflash.engines.sglang", "SglangEngine"),
    "llamacpp": ("dflash.engines.llamacpp", "LlamacppEngine"),
}


class Engine(Protocol):
    """One target (with its draft, if any), ready to generate."""

    info: EngineInfo
    trained_block_size: int | None  # the largest block_size a request may ask for

    def stream(self, request: Request) -> Iterator[Event]:
        """Yield Prefilled, then one Cycle per round (or Chunks), then Finished.

        Safe to abandon at any yield: caches and sockets are released in ``finally`` and the
        engine stays usable. Raises ``DFlashError`` children with a hint.
        """
        ...

    def encode(self, messages: tuple[Message, ...], *, enable_thinking: bool = False) -> list[int]:
        """Render the chat template once and return the prompt's token ids."""
        ...

    def decode(self, ids: list[int]) -> str:
        """Turn token ids into text, special tokens included."""
        ...

    def close(self) -> None:
        """Free the models or the connection. Idempotent."""
        ...


@runtime_checkable
class Windowed(Engine, Protocol):
    """An engine whose draft may be given a sliding window, where it was trained without one."""

    @property
    def has_free_window(self) -> bool:
        """Whether every layer of the draft has full attention."""
        ...

    def with_window(self, sliding_window_size: int) -> Engine:
        """The same target, with this draft's context bounded to so many tokens; for as long as
        this engine is open. Raises ``CheckpointError`` for a draft trained with a window."""
        ...


def open_engine(backend: str, **options: Any) -> Engine:
    """Open a backend by name with its own keyword options (``pair`` for local ones, ``base_url``
    for servers). Raises ``EngineError`` for an unknown name."""
    if backend not in _BACKENDS:
        raise EngineError(
            f"there is no backend called {backend!r}.", f"Use one of {', '.join(_BACKENDS)}."
        )
    module, name = _BACKENDS[backend]
    return getattr(importlib.import_module(module), name)(**options)
