"""What was measured on this machine, kept as files. Knows their schema and where they lie.

A calibration times one AR step, one draft pass and one verification by block size; a tuning result
holds paired speedups by block size. ``python -m dflash.benchmark --calibrate`` and ``--tune`` write
them, the advisor reads the newest that matches pair and machine. Seconds throughout; block sizes
count the anchor; tau counts the bonus token.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import platformdirs
from pydantic import Field, ValidationError, model_validator

from dflash.errors import DFlashError
from dflash.strict_yaml import StrictModel
from dflash.whole_file import write_whole

SCHEMA_VERSION = 1
MAX_FILE_BYTES = 5_000_000

Seconds = Annotated[float, Field(gt=0)]
Positive = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Tau = Annotated[float, Field(ge=1)]
# JSON objects have text keys; these are block sizes, read leniently and checked.
BlockSize = Annotated[int, Field(ge=1, strict=False)]


class MeasurementError(DFlashError):
    """A measurement file is missing, unreadable or not what it claims to be."""


class Provenance(StrictModel):
    """Under what a measurement was taken. ``machine_id`` is ``dflash.device.machine_id()``."""

    target_id: str
    draft_id: str
    machine_id: str
    machine: str  # for people: "8-core Zen 5, 32 GB"
    date: str  # ISO 8601
    backend: str = "transformers"
    device: str = "cpu"
    dtype: str = "float32"
    num_threads: Positive | None = None
    pair_id: str | None = None
    git_hash: str | None = None
    versions: dict[str, str] = {}


class Interval(StrictModel):
    """A median with the interval it was published with and how many paired ratios it rests on."""

    median: float
    low: float
    high: float
    n: Positive


class StepCosts(StrictModel):
    """Seconds of one AR step, and of one draft pass and one verification by block size."""

    context_tokens: Annotated[int, Field(ge=0)]
    ar_step_s: Seconds
    draft_s: dict[BlockSize, Seconds]
    verify_s: dict[BlockSize, Seconds]
    num_repeats: Positive = 1

    @model_validator(mode="after")
    def _some_block_has_both(self) -> StepCosts:
        if not set(self.draft_s) & set(self.verify_s):
            raise ValueError("no block size has both a draft and a verify time")
        return self


class Calibration(StrictModel):
    """Step costs of one pair on one machine, by context length."""

    kind: Literal["calibration"] = "calibration"
    schema_version: Literal[1] = 1
    provenance: Provenance
    by_context: Annotated[tuple[StepCosts, ...], Field(strict=False, min_length=1)]
    tau_per_position: Annotated[tuple[Share, ...], Field(strict=False)] | None = None
    tau_by_block: dict[BlockSize, Tau] | None = None  # median over prompts, each run
    num_prompts: Positive | None = None  # behind the acceptance

    def nearest(self, context_tokens: int | None) -> StepCosts:
        """Return the costs at the context length nearest to this one; unknown means shortest."""
        wanted = context_tokens or 0
        return min(self.by_context, key=lambda costs: abs(costs.context_tokens - wanted))


class TunedBlock(StrictModel):
    """One block size (and draft window) as it did on the prompts it was judged on."""

    block_size: BlockSize
    sliding_window_size: Positive | None = None
    decode_speedup: Interval
    tau: Tau | None = None


class TuneResult(StrictModel):
    """Measured speedups by block size; ``judged`` won on the tuning prompts and was run on others.

    Windows, where any were tried, stand in ``tuned`` at the fastest block size."""

    kind: Literal["tune"] = "tune"
    schema_version: Literal[1] = 1
    provenance: Provenance
    task: str | None = None
    tuned: Annotated[tuple[TunedBlock, ...], Field(strict=False, min_length=1)]
    judged: TunedBlock
    tau_per_position: Annotated[tuple[Share, ...], Field(strict=False)] | None = None
    prompt_tokens: Positive | None = None  # median over the prompts
    num_tuning_prompts: Positive
    num_judging_prompts: Positive
    predicted_speedup: float | None = None  # what the cost model had said for ``judged``


Measurement = TypeVar("Measurement", Calibration, TuneResult)


def measurements_dir() -> Path:
    """Where this user's measurements lie; ``DFLASH_MEASUREMENTS`` overrides it."""
    override = os.environ.get("DFLASH_MEASUREMENTS")
    if override:
        return Path(override)
    return Path(platformdirs.user_cache_dir("dflash-playground", appauthor=False)) / "measurements"


def save(measurement: Calibration | TuneResult, folder: Path | None = None) -> Path:
    """Write one file, whole or not at all, and return its path. Newer files are kept beside it.

    Raises ``StorageError`` when there is no room.
    """
    home = folder or measurements_dir()
    about = measurement.provenance
    stamp = "".join(c for c in about.date if c.isalnum())[:20]
    name = _slug(about.pair_id or about.draft_id)
    path = home / f"{measurement.kind}-{name}-{stamp}.json"
    text = json.dumps(measurement.model_dump(mode="json"), indent=1, allow_nan=False)
    write_whole(path, text + "\n")
    return path


def load(path: Path, model: type[Measurement]) -> Measurement:
    """Read one file. Raises ``MeasurementError`` in one sentence."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise MeasurementError(f"{path} is larger than {MAX_FILE_BYTES} bytes.")
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        raise MeasurementError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in fault["loc"]) or "the file"
        raise MeasurementError(
            f"{path}: {place}: {fault['msg']}.", "Measure again to replace it."
        ) from error


def latest_for(
    model: type[Measurement],
    machine_id: str,
    *,
    pair_id: str | None = None,
    target_id: str | None = None,
    draft_id: str | None = None,
    folder: Path | None = None,
) -> Measurement | None:
    """Return the newest measurement of this pair on this machine, or ``None``.

    A pair matches by its id, or by both model ids; a folder may be written in any way. Files that
    cannot be read are passed over.
    """
    kind = model.model_fields["kind"].default
    found: list[Measurement] = []
    for path in sorted((folder or measurements_dir()).glob(f"{kind}-*.json")):
        try:
            measurement = load(path, model)
        except MeasurementError:
            continue
        about = measurement.provenance
        same_pair = pair_id is not None and about.pair_id == pair_id
        same_ids = _same(about.target_id, target_id) and _same(about.draft_id, draft_id)
        if about.machine_id == machine_id and (same_pair or same_ids):
            found.append(measurement)
    return max(found, key=lambda m: m.provenance.date, default=None)


def _same(measured: str, asked: str | None) -> bool:
    """Whether two names mean one model: equal, or one folder however it is written."""
    if asked is None or measured == asked:
        return measured == asked
    try:
        return Path(asked).is_dir() and Path(measured).resolve() == Path(asked).resolve()
    except (OSError, ValueError, RuntimeError):  # no path at all
        return False


def _slug(name: str) -> str:
    kept = "".join(c if c.isalnum() or c in "-." else "-" for c in name).strip("-.")
    return kept[-60:] or "pair"
