"""Load the page with many visitors at once: ``python scripts/load_page.py --visitors 20``.

Starts the page (public limits, the demo pair) unless ``--url`` names one, lets every visitor press
Run again and again with a prompt of its own through the page's own events, every fifth one with a
prompt that nearly fills the context, and checks that nobody sees another's run, that places in the
queue only go down, that advice, health and Stop answer while a generation runs, and that memory and
the server's temporary files stay flat. ``--browsers 4`` adds real windows. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from gradio_client import Client
from gradio_client.client import Job

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.load_findings import Findings

ROOT = Path(__file__).resolve().parent.parent
_STAGE = 2  # among a race's outputs
_START_S = 300
_PROBE_EVERY_S = 0.5
_STOP_EVERY_S = 10
_LONG_EVERY = 5
_LONG_CHARS = 4_900  # about 1,970 of the demo pair's 2,048 tokens


@dataclass(frozen=True, slots=True)
class Served:
    """The page under load; ``pid`` and ``temp`` are known where it was started here."""

    url: str
    pid: int | None = None
    temp: Path | None = None


class Visitor:
    """One browser window: a session of its own, the page's events by their place in the config."""

    def __init__(self, url: str, number: int) -> None:
        self.number = number
        self.client = Client(url, verbose=False)
        config = self.client.config
        ids = {c["props"].get("elem_id"): c["id"] for c in config["components"]}
        self._press = _event(config, ids["run"])
        self._stop = _event(config, ids["stop"])
        by_trigger = {d.get("trigger_after"): d["id"] for d in config["dependencies"]}
        self._run = by_trigger[self._press]
        fields = next(d for d in config["dependencies"] if d["id"] == self._run)["inputs"]
        props = {c["id"]: c["props"] for c in config["components"]}
        self._form = {i: props[i].get("value") for i in fields}  # as the page opens
        self._ids = {name: ids[name] for name in ("prompt", "block")}
        self._max_tokens = next(i for i in fields if props[i].get("label") == "Max tokens")
        for event in (self._press, self._run, self._stop):
            self.client.endpoints[event].is_valid = True  # what a browser calls as well

    def _submit(self, prompt: str, tokens: int) -> Job:
        """Start the form as the page opens, with another prompt, block and length."""
        changed = {
            self._ids["prompt"]: prompt, self._ids["block"]: 8, self._max_tokens: tokens
        }  # fmt: skip
        return self.client.submit(*(self._form | changed).values(), fn_index=self._run)

    def run(self, prompt: str, tokens: int, findings: Findings) -> dict[str, Any] | None:
        """Press Run and follow it to its end; the run as the page hands it out, or ``None``."""
        self.client.predict(fn_index=self._press)
        job = self._submit(prompt, tokens)
        last_rank: int | None = None
        while not job.done():
            status = job.status()
            if status.rank is not None:
                if last_rank is not None and status.rank > last_rank:
                    findings.fault(f"visitor {self.number} was moved back in the queue")
                last_rank = status.rank
                findings.longest_queue = max(findings.longest_queue, status.queue_size or 0)
            time.sleep(0.05)
        outputs = job.outputs()
        return _run_of(outputs[-1]) if outputs else None

    def stop_half_way(self, prompt: str, findings: Findings) -> None:
        """Start a long run, stop it once it writes, and time how long the stop takes."""
        self.client.predict(fn_index=self._press)
        job = self._submit(prompt, 512)
        while not job.done() and not any('"k":"c"' in str(o[_STAGE]) for o in job.outputs()):
            time.sleep(0.05)
        with findings.timed("stop"):
            self.client.predict(fn_index=self._stop)
        job.cancel()


def _event(config: dict[str, Any], component_id: int) -> int:
    """The event that a click on a component starts."""
    return next(
        d["id"] for d in config["dependencies"] if [component_id, "click"] in _pairs(d["targets"])
    )


def _pairs(targets: list[Any]) -> list[list[Any]]:
    return [list(target) for target in targets]


def _run_of(outputs: Any) -> dict[str, Any] | None:
    """The saved run inside the take-away buttons' value."""
    for value in outputs:
        if isinstance(value, str) and value.startswith('{"name"'):
            return json.loads(json.loads(value)["json"])
    return None


def _text(run: dict[str, Any]) -> str:
    pieces = [e.get("piece", "") + "".join(e.get("pieces", ())) for e in run["dflash"]["events"]]
    return "".join(pieces)


def _answers(prompt: str, wanted: str) -> Callable[[dict[str, Any]], bool]:
    """Tells whether a saved run is this prompt's, with the text it has when alone."""

    def is_answer(run: dict[str, Any]) -> bool:
        return (run["dflash"]["request"]["messages"][-1]["content"], _text(run)) == (prompt, wanted)

    return is_answer


def visit(
    visitor: Visitor, prompt: str, wanted: str, until_s: float, tokens: int, findings: Findings
) -> None:
    """Press Run again and again; every answer must be the one this prompt has."""
    is_answer = _answers(prompt, wanted)
    while time.monotonic() < until_s:
        start = time.monotonic()
        run = visitor.run(prompt, tokens, findings)
        if run is None:
            findings.fault(f"visitor {visitor.number} got no run")
            continue
        findings.ran(time.monotonic() - start)
        if not is_answer(run):
            findings.fault(f"visitor {visitor.number} was shown another run than alone")


def probe(url: str, until_s: float, findings: Findings) -> None:
    """Ask for advice and health all the while; both must answer beside the generations."""
    advisor = Client(url, verbose=False)
    while time.monotonic() < until_s:
        for what, ask in (
            ("health", lambda: httpx.get(f"{url}/healthz", timeout=30).raise_for_status()),
            ("advice", lambda: advisor.predict("qwen3-8b", api_name="/check")),
            ("page", lambda: httpx.get(url, timeout=30).raise_for_status()),
        ):
            with findings.timed(what):
                ask()
        time.sleep(_PROBE_EVERY_S)


def stop_now_and_then(url: str, until_s: float, findings: Findings) -> None:
    """Start long runs and stop them half way."""
    visitor = Visitor(url, -1)
    while time.monotonic() < until_s:
        visitor.stop_half_way("Tell me a very long story.", findings)
        time.sleep(_STOP_EVERY_S)


def watch(served: Served, until_s: float, findings: Findings) -> None:
    """The server's resident memory and temporary files, twice a second, where they are known."""
    status = Path(f"/proc/{served.pid}/status")
    while served.pid and status.exists() and time.monotonic() < until_s:
        lines = status.read_text().splitlines()
        resident = next(int(x.split()[1]) for x in lines if x.startswith("VmRSS"))
        findings.memory_mb.append(resident / 1024)
        if served.temp:
            sizes = [_size(path) for path in served.temp.rglob("*")]
            findings.temp.append((len(sizes), sum(sizes)))
        time.sleep(_PROBE_EVERY_S)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # removed meanwhile
        return 0


@contextmanager
def page(url: str | None) -> Iterator[Served]:
    """The page; started here unless it was named."""
    if url:
        yield Served(url.rstrip("/"))
        return
    with tempfile.TemporaryDirectory(prefix="dflash-load-") as temp:
        yield from _started(Path(temp))


def _started(temp: Path) -> Iterator[Served]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environ = {
        **os.environ, "DFLASH_HOSTED": "1", "GRADIO_SERVER_PORT": str(port), "TMPDIR": str(temp)
    }  # fmt: skip
    command = [sys.executable, "app.py", "--log-level", "warning"]
    server = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(address, server)
        yield Served(address, server.pid, temp)
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(timeout=15)
        except subprocess.TimeoutExpired:
            server.kill()


def _wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            if httpx.get(f"{address}/healthz", timeout=2).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.3)
    raise SystemExit("the page did not start; run python app.py to see why")


def load(served: Served, options: argparse.Namespace) -> Findings:
    """Everybody alone first, then all at once."""
    findings = Findings()
    threading.excepthook = lambda died: findings.fault(f"{died.thread}: {died.exc_value!r}")
    url, crowd = served.url, options.visitors + options.browsers
    visitors = [Visitor(url, number) for number in range(crowd)]
    prompts = [_prompt(number, options) for number in range(crowd)]
    alone = [_alone(v, p, options.tokens) for v, p in zip(visitors, prompts, strict=True)]
    if len(set(alone)) < 2:
        raise SystemExit("every prompt has the same answer, so cross-talk would not be seen")
    until_s = time.monotonic() + options.seconds
    everybody = list(zip(visitors, prompts, alone, strict=True))
    work: list[tuple[Any, tuple[Any, ...]]] = [
        (visit, (visitor, prompt, wanted, until_s, options.tokens, findings))
        for visitor, prompt, wanted in everybody[: options.visitors]
    ]
    if options.browsers:
        from scripts.load_browsers import browse  # brings Playwright

        work += [
            (browse, (url, visitor.number, prompt, _answers(prompt, wanted), until_s,
                      options.tokens, findings))
            for visitor, prompt, wanted in everybody[options.visitors :]
        ]  # fmt: skip
    work += [
        (probe, (url, until_s, findings)),
        (stop_now_and_then, (url, until_s, findings)),
        (watch, (served, until_s, findings)),
    ]
    threads = [threading.Thread(target=run, args=args, daemon=True) for run, args in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=options.seconds + 600)
    if any(thread.is_alive() for thread in threads):
        findings.fault("somebody still waits for an answer")
    _check_free(url, findings)
    return findings


def _prompt(number: int, options: argparse.Namespace) -> str:
    """A prompt of one's own; browsers keep short ones, which fit into a link."""
    prompt = f"Visitor {number} asks: what is {number} plus {number}?"
    if number % _LONG_EVERY or number >= options.visitors:
        return prompt
    return (prompt + " The quick brown fox jumps over the lazy dog." * 200)[:_LONG_CHARS]


def _alone(visitor: Visitor, prompt: str, tokens: int) -> str:
    run = visitor.run(prompt, tokens, Findings())
    if run is None:
        raise SystemExit("a visitor alone got no run; is the demo pair there?")
    return _text(run)


def _check_free(url: str, findings: Findings) -> None:
    """Nobody asks any more, so within a breath nothing may be held."""
    deadline = time.monotonic() + _START_S / 10
    while httpx.get(f"{url}/healthz").json()["device_is_busy"]:
        if time.monotonic() > deadline:
            findings.fault("the device is still held after the last run")
            return
        time.sleep(_PROBE_EVERY_S)


def main() -> int:
    """Exit 1 when anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="a page that is up already; default: start one")
    parser.add_argument("--visitors", type=int, default=20)
    parser.add_argument("--browsers", type=int, default=0, help="real Chromium windows beside them")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--tokens", type=int, default=32, help="new tokens per run")
    options = parser.parse_args()
    with page(options.url) as served:
        findings = load(served, options)
    report = {
        "num_visitors": options.visitors,
        "num_browsers": options.browsers,
        "seconds": options.seconds,
        "max_new_tokens": options.tokens,
        **findings.report(),
    }
    print(json.dumps(report, indent=1), file=sys.stderr)
    print(json.dumps(report))
    return 1 if findings.faults else 0


if __name__ == "__main__":
    sys.exit(main())
