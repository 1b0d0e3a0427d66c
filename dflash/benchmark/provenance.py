"""Under what a number was taken: versions, machine, threads, commit. Knows no measurement."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from dflash.device import detect, machine_id
from dflash.engines import Engine
from dflash.measurements import Provenance

_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "mlx", "mlx-lm")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_ROOT = Path(__file__).resolve().parents[2]


def collect(engine: Engine, *, pair_id: str | None, num_threads: int | None) -> Provenance:
    """Describe this process, this machine and the opened engine, now."""
    info = engine.info
    return Provenance(
        target_id=info.target_id,
        draft_id=info.draft_id or "none",
        machine_id=machine_id(),
        machine=detect().title,
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        backend=info.backend,
        device=info.device,
        dtype=info.dtype,
        num_threads=num_threads,
        pair_id=pair_id,
        git_hash=git_hash(),
        versions=versions(),
    )


def with_conditions(provenance: Provenance, command: str) -> dict[str, Any]:
    """Add what may explain an odd figure: other load, thread settings, the exact command."""
    machine = detect()
    load = os.getloadavg() if hasattr(os, "getloadavg") else None
    return {
        **provenance.model_dump(mode="json"),
        "command": command,
        "cpu_model": machine.cpu_model,
        "num_cores": machine.num_cores,
        "isa_flags": list(machine.isa_flags),
        "memory_bytes": machine.memory_bytes,
        "platform": platform.platform(),
        "load_average": [round(x, 2) for x in load] if load else None,
        "thread_variables": {k: os.environ[k] for k in _THREAD_VARIABLES if k in os.environ},
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that do the arithmetic, where installed."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_hash() -> str | None:
    """The commit this runs from, ``-dirty`` when tracked files differ; ``None`` outside git."""
    git = shutil.which("git")
    if git is None:
        return None
    try:
        done = subprocess.run(
            (git, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"),
            cwd=_ROOT, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
