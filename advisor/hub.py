"""config.json of a hub id: from the local hub cache, else one request that fails fast.

The only file of the advisor that may use the network. Fetches one small public file, never code or
weights, and sends no token: a gated config has to be given as a file or be in the cache.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE

from dflash.errors import CheckpointError

_TIMEOUT_S = 5
_MAX_BYTES = 16 * 1024 * 1024


def cached_config(hub_id: str) -> Path | None:
    """Return the cached config.json of ``hub_id``; beside it lies whatever else is cached."""
    found = try_to_load_from_cache(hub_id, "config.json")
    return Path(found) if isinstance(found, str) else None


def fetch_config(hub_id: str) -> bytes:
    """Return ``hub_id``'s config.json as it is on the hub now. Raises ``CheckpointError``."""
    url = f"{ENDPOINT}/{hub_id}/resolve/main/config.json"
    if HF_HUB_OFFLINE or not url.startswith("https://"):
        raise _unreachable(hub_id, "the hub is switched off")
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            return answer.read(_MAX_BYTES)
    except urllib.error.HTTPError as error:
        raise _unreachable(hub_id, f"HTTP {error.code}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise _unreachable(hub_id, type(error).__name__) from error


def _unreachable(hub_id: str, why: str) -> CheckpointError:
    return CheckpointError(
        f"{hub_id!r} is no file and no catalogue id, and could not be read from the hub ({why}); "
        "give a config.json or a folder."
    )
