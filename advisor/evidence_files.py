"""The measurement files a user brings: --costs and --tau-per-position. Knows their two schemas.

Everything about them is checked here, so that the rest may compute without guarding. Each fault is
one sentence with the value and the place.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from advisor.schema import Costs
from advisor.values import DuplicateKeyError, unique_keys
from dflash.errors import DFlashError

MAX_FILE_BYTES = 1_000_000
MAX_BLOCK_SIZE = 4096
_COSTS_SHAPE = 'Expected {"ar_step_s": x, "draft_s": {"B": x, ...}, "verify_s": {"B": x, ...}}.'
_TAU_SHAPE = "Expected [p1, p2, ...], the share of cycles that accepted each draft position."


class EvidenceError(DFlashError):
    """A measurement file cannot be used."""


def read_costs(path: Path) -> Costs:
    """Read a --costs file. Raises ``EvidenceError``."""
    return parse_costs(_read_json(path), name=str(path))


def read_tau_per_position(path: Path) -> tuple[float, ...]:
    """Read a --tau-per-position file. Raises ``EvidenceError``."""
    return parse_tau_per_position(_read_json(path), name=str(path))


def parse_costs(data: Any, *, name: str) -> Costs:
    """Check the values of a costs file. Seconds; block sizes are whole numbers from 1."""
    if not isinstance(data, dict):
        raise EvidenceError(f"{name}: a costs file is an object, not {_kind(data)}.", _COSTS_SHAPE)
    for key in ("ar_step_s", "draft_s", "verify_s"):
        if key not in data:
            raise EvidenceError(f"{name}: {key!r} is missing.", _COSTS_SHAPE)
    ar_step_s = _seconds(data["ar_step_s"], f"{name}: ar_step_s", positive=True)
    draft_s = _by_block(data["draft_s"], f"{name}: draft_s", positive=False)
    verify_s = _by_block(data["verify_s"], f"{name}: verify_s", positive=True)
    if not set(draft_s) & set(verify_s):
        raise EvidenceError(
            f"{name}: draft_s covers {sorted(draft_s)} and verify_s covers {sorted(verify_s)}, "
            "so no block size has both."
        )
    return Costs(ar_step_s, draft_s, verify_s, "measured", f"costs from {name}")


def parse_tau_per_position(data: Any, *, name: str) -> tuple[float, ...]:
    """Check the values of an acceptance file: at least one, each between 0 and 1."""
    if not isinstance(data, list):
        raise EvidenceError(f"{name}: acceptance is a list, not {_kind(data)}.", _TAU_SHAPE)
    if not data:
        raise EvidenceError(f"{name}: the list of acceptance rates is empty.", _TAU_SHAPE)
    if len(data) >= MAX_BLOCK_SIZE:
        raise EvidenceError(f"{name}: {len(data)} positions; at most {MAX_BLOCK_SIZE - 1}.")
    rates = []
    for k, item in enumerate(data, start=1):
        rate = _number(item, f"{name}: position {k}")
        if not 0 <= rate <= 1:
            raise EvidenceError(f"{name}: position {k} is {rate:g}, not between 0 and 1.")
        rates.append(rate)
    return tuple(rates)


def _by_block(data: Any, where: str, *, positive: bool) -> dict[int, float]:
    if not isinstance(data, dict):
        raise EvidenceError(f"{where} maps block sizes to seconds, but is {_kind(data)}.")
    if not data:
        raise EvidenceError(f"{where} is empty.", _COSTS_SHAPE)
    costs: dict[int, float] = {}
    for key, item in data.items():
        block = int(key) if key.isascii() and key.isdigit() and len(key) <= 6 else 0
        if not 1 <= block <= MAX_BLOCK_SIZE:
            raise EvidenceError(
                f"{where} has the key {key[:40]!r}, which is not a block size of 1 to "
                f"{MAX_BLOCK_SIZE}."
            )
        if block in costs:
            raise EvidenceError(f"{where} gives block size {block} twice.")
        costs[block] = _seconds(item, f"{where}[{block}]", positive=positive)
    return costs


def _seconds(item: Any, where: str, *, positive: bool) -> float:
    seconds = _number(item, where)
    if seconds < 0 or (positive and seconds == 0):
        wanted = "above 0" if positive else "0 or more"
        raise EvidenceError(f"{where} is {seconds:g} s; it must be {wanted}.")
    if seconds > 1e9 or 0 < seconds < 1e-15:
        raise EvidenceError(f"{where} is {seconds:g} s, which no step takes; give seconds.")
    return seconds


def _number(item: Any, where: str) -> float:
    if isinstance(item, bool) or not isinstance(item, int | float):
        raise EvidenceError(f"{where} is {_kind(item)}, not a number.")
    try:
        number = float(item)
    except OverflowError as error:
        raise EvidenceError(f"{where} is too large a number.") from error
    if not math.isfinite(number):
        raise EvidenceError(f"{where} is {number}, not a finite number.")
    return number


def _read_json(path: Path) -> Any:
    try:
        if not (path.is_file() or path.is_fifo()):
            raise EvidenceError(f"{path} is not a file.", "Give the path of a JSON file.")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise EvidenceError(f"{path} is larger than {MAX_FILE_BYTES} bytes.")
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=unique_keys)
    except OSError as error:
        raise EvidenceError(f"{path} cannot be read: {error.strerror or error}.") from error
    except DuplicateKeyError as error:
        raise EvidenceError(f"{path}: the key {str(error)[:40]!r} is written twice.") from error
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise EvidenceError(f"{path} is not JSON: {reason[:120]}.") from error


def _kind(data: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return "null" if data is None else names.get(type(data), "a number")
