"""Two model servers on loopback with one target: one with a draft, one without.

Knows how to start them, wait until they answer, and stop them whatever happens. Knows no kind of
server and no prompts.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx

from dflash.errors import EngineError

KEEPER = Path(__file__).parent / "workers" / "kept_server.py"
START_S = 900  # importing torch and compiling kernels, on a machine that does other things too
STOP_S = 30


class Command(Protocol):
    """The words that start a server."""

    def __call__(self, *, port: int, with_draft: bool) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers at ``url``."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def serving(
    name: str, command: Command, *, logs: Path, variables: dict[str, str]
) -> Iterator[tuple[Server, Server]]:
    """Start the AR server and the DFlash server, yield both when both answer, stop both."""
    started: list[Server] = []
    try:
        for with_draft in (False, True):
            port = _free_port()
            words = command(port=port, with_draft=with_draft)
            log = logs / f"server-{'dflash' if with_draft else 'ar'}.log"
            started.append(_start(words, port, log, variables))
        for server in started:
            _wait(name, server)
        yield started[0], started[1]
    finally:
        for server in started:
            _stop(server.process)


def _start(words: list[str], port: int, log: Path, variables: dict[str, str]) -> Server:
    log.parent.mkdir(parents=True, exist_ok=True)
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with log.open("wb") as log_file:
        process = subprocess.Popen(
            [sys.executable, str(KEEPER), *words],
            stdin=subprocess.PIPE,
            stdout=log_file,
            stderr=log_file,
            env={**inherited, **variables},
            start_new_session=True,  # Ctrl-C is ours to handle: we stop it by closing its input
        )
    return Server(f"http://127.0.0.1:{port}", log, process)


def _wait(name: str, server: Server) -> None:
    """Return when the server says it is healthy. Raises ``EngineError`` with its last words."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            lines = server.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            reason = lines[-1] if lines else "no reason given"
            raise EngineError(f"a {name} server ended: {reason}", f"Its log is {server.log}.")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{server.url}/health", timeout=5, trust_env=False).status_code == 200:
                return
        time.sleep(0.5)
    raise EngineError(f"{server.url} was not up after {START_S} s.", f"Its log is {server.log}.")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """The keeper stops its server when its input ends."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])
