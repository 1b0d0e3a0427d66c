"""A peer implementation in an environment of its own, answering one prompt at a time.

Knows how to make a virtual environment once, and how to talk to a worker script inside it: one
JSON object per line each way. While the worker waits for a line it uses no processor, so the two
sides can take turns on one machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import platformdirs

from dflash.errors import EngineError

_READY = "ready.txt"


def default_env_dir(name: str) -> Path:
    """Where an environment is kept between runs unless the user names a folder."""
    cache = Path(platformdirs.user_cache_dir("dflash-playground", appauthor=False))
    return cache / "environments" / name


def make_environment(folder: Path, *, packages: Sequence[str], removed: Sequence[str] = ()) -> Path:
    """Install ``packages``, then uninstall ``removed``; return the environment's Python.

    Done once: an environment that was made for the same packages is used as it is. Raises
    ``EngineError`` with the installer's last line.
    """
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    wanted = "\n".join([*packages, *(f"-{name}" for name in removed)])
    marker = folder / _READY
    if marker.is_file() and marker.read_text(encoding="utf-8") == wanted:
        return python
    if not python.exists():
        venv.create(folder, with_pip=True)
    _pip(python, "install", *packages)
    if removed:
        _pip(python, "uninstall", "--yes", *removed)
    marker.write_text(wanted, encoding="utf-8")
    return python


def download_source(python: Path, package: str, folder: Path) -> Path:
    """Fetch a package's source distribution into ``folder``. Raises ``EngineError``."""
    only = ("--no-deps", "--no-binary", ":all:")
    _pip(python, "download", *only, "--dest", str(folder), package)
    name = package.replace("-", "_").replace("==", "-")
    return folder / f"{name}.tar.gz"


def _pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "-q", *arguments]
    done = subprocess.run(command, stderr=subprocess.PIPE, stdout=sys.stderr, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise EngineError(
            f"pip {arguments[0]} failed: {lines[-1]}", "Check the network and the disk space."
        )


class Peer:
    """A running worker. ``ask`` sends one job and waits for its answer."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """Send a job, return the answer. Raises ``EngineError`` with the worker's last line."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            reason = lines[-1] if lines else "no reason given"
            raise EngineError(f"the peer stopped: {reason}", f"Its whole log is {self._log}.")
        return json.loads(line)


@contextlib.contextmanager
def running(
    python: Path, worker: Path, *, log: Path, variables: dict[str, str] | None = None
) -> Iterator[Peer]:
    """Start a worker and end it on the way out. Our own packages are kept off its path."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as log_file:
        process = subprocess.Popen(
            [str(python), str(worker)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log_file,
            text=True,
            env={**environment, **(variables or {})},
        )
        try:
            yield Peer(process, log)
        finally:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
