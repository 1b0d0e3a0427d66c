"""Two vLLM servers on loopback with one target: one with a draft, one without.

Knows how to start them, wait until they answer, and stop them whatever happens. Knows no prompts.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from dflash.errors import EngineError

WORKER = Path(__file__).parent / "workers" / "vllm_http.py"
START_S = 900  # importing torch and compiling kernels, on a machine that does other things too
STOP_S = 30


@dataclass(frozen=True, slots=True)
class Pair:
    """What is served. ``block_size`` counts the anchor, as everywhere in this project."""

    target_path: str
    draft_path: str
    block_size: int
    dtype: str
    max_model_len: int
    max_num_seqs: int = 16


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers at ``url``."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]


def arguments(pair: Pair, *, port: int, with_draft: bool) -> list[str]:
    """The server's command line after the module's name."""
    words = ["--model", pair.target_path, "--served-model-name", "target"]
    words += ["--host", "127.0.0.1", "--port", str(port), "--dtype", pair.dtype]
    words += ["--max-model-len", str(pair.max_model_len), "--max-num-seqs", str(pair.max_num_seqs)]
    words += ["--enforce-eager", "--no-enable-prefix-caching"]
    if with_draft:
        config = {
            "method": "dflash",
            "model": pair.draft_path,
            "num_speculative_tokens": pair.block_size - 1,  # vLLM counts drafts without the anchor
        }
        words += ["--speculative-config", json.dumps(config)]
        words += ["--per-request-spec-decode-metrics", "summary"]
    return words


@contextlib.contextmanager
def serving(
    python: Path, pair: Pair, *, logs: Path, variables: dict[str, str]
) -> Iterator[tuple[Server, Server]]:
    """Start the AR server and the DFlash server, yield both when both answer, stop both."""
    started: list[Server] = []
    try:
        for with_draft in (False, True):
            log = logs / f"server-{'dflash' if with_draft else 'ar'}.log"
            started.append(_start(python, pair, log, variables, with_draft=with_draft))
        for server in started:
            _wait(server)
        yield started[0], started[1]
    finally:
        for server in started:
            _stop(server.process)


def _start(
    python: Path, pair: Pair, log: Path, variables: dict[str, str], *, with_draft: bool
) -> Server:
    port = _free_port()
    log.parent.mkdir(parents=True, exist_ok=True)
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with log.open("wb") as log_file:
        process = subprocess.Popen(
            [str(python), str(WORKER), *arguments(pair, port=port, with_draft=with_draft)],
            stdin=subprocess.PIPE,
            stdout=log_file,
            stderr=log_file,
            env={**inherited, **variables},
            start_new_session=True,  # Ctrl-C is ours to handle: we stop it by closing its input
        )
    return Server(f"http://127.0.0.1:{port}", log, process)


def _wait(server: Server) -> None:
    """Return when the server says it is healthy. Raises ``EngineError`` with its last words."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            lines = server.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            reason = lines[-1] if lines else "no reason given"
            raise EngineError(f"a vLLM server ended: {reason}", f"Its log is {server.log}.")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{server.url}/health", timeout=5, trust_env=False).status_code == 200:
                return
        time.sleep(0.5)
    raise EngineError(f"{server.url} was not up after {START_S} s.", f"Its log is {server.log}.")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """The worker stops its server when its input ends."""
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
