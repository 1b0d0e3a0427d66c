"""Runs a server as a child and ends it when standard input ends, also when whoever started this
was killed. Imports none of ours; the arguments are the server's command."""

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
    server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=end_with_input, args=(server,), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: end(server))
    code = server.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)  # an engine process that outlived its server
    return code


def end_with_input(server: subprocess.Popen) -> None:
    """Wait for the end of the input, then stop the server."""
    while os.read(0, 1024):  # unbuffered: Python ends noisily while a thread holds the buffer
        continue
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
