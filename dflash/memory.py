"""When a run does not fit in memory: its caches are let go, and a smaller run is suggested.

Knows the words in which torch and MLX say so; imports neither.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator

from dflash.errors import EngineError
from dflash.schema import Request

_WORDS = (
    "out of memory",  # torch on CUDA and mps
    "can't allocate memory",  # torch on a CPU
    "unable to allocate",  # MLX on a CPU
    "attempting to allocate",  # MLX on Metal: one buffer too large
    "insufficient memory",
    "resource limit",
)


@contextlib.contextmanager
def fitting(device: str, *, hint: str, release: Callable[[], None]) -> Iterator[None]:
    """Turn out-of-memory inside into an ``EngineError`` with ``hint``.

    Whatever was running has lost its caches by then, and ``release`` has returned the memory.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, RuntimeError) and not _is_out_of_memory(error):
            raise
        # The error's own traceback would keep the run, and with it both caches.
        traceback.clear_frames(error.__traceback__)
        release()
        raise EngineError(f"this did not fit in the memory of {device}.", hint) from error


def _is_out_of_memory(error: RuntimeError) -> bool:
    said = str(error).lower()
    return any(words in said for words in _WORDS)


def smaller_request(request: Request) -> str:
    """What to try after a request that did not fit."""
    num_tokens, block_size = request.sampling.max_new_tokens, request.block_size
    smaller = [f"{num_tokens // 2} new tokens instead of {num_tokens}"] if num_tokens > 1 else []
    if block_size > 2:
        smaller.append(f"block size {block_size // 2} instead of {block_size}")
    return f"Try {', '.join(['a shorter prompt', *smaller])}."
