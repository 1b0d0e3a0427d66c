"""config.json of a hub id, when the hub can be reached. The only file of the advisor that may
use the network; fetches one small file and never code or weights."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from dflash.errors import CheckpointError

_TIMEOUT_S = 5


def fetch_config(hub_id: str) -> Path:
    """Return the local path of ``hub_id``'s config.json. Raises ``CheckpointError``."""
    try:
        return Path(hf_hub_download(hub_id, "config.json", etag_timeout=_TIMEOUT_S))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise CheckpointError(
            f"{hub_id!r} is no file and no catalogue id, and could not be fetched from the hub "
            f"({type(error).__name__}); give a config.json or a folder."
        ) from error
