"""DFlash: block-diffusion speculative decoding. Public names are loaded on first use (PEP 562).

Importing this package never imports torch or mlx.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "DFlashConfig": "dflash.model",
    "DFlashDraftModel": "dflash.model",
    "build_target_layer_ids": "dflash.taps",
    "dflash_generate": "dflash.generate",
    "load_draft": "dflash.model",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dflash' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
