"""Load the page with many visitors at once: ``python scripts/load_page.py --visitors 20``.

Starts the page (public limits, the demo pair) unless ``--url`` names one, lets every visitor press
Run again and again with a prompt of its own through the page's own events, and checks that nobody
sees another's run, that places in the queue only go down, that advice, health and Stop answer while
a generation runs, and that memory stays flat. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from gradio_client import Client
from gradio_client.client import Job

ROOT = Path(__file__).resolve().parent.parent
_STATUS, _STAGE = 0, 2
_START_S = 300
_PROBE_EVERY_S = 0.5


@dataclass
class Findings:
    """What was seen; shared by all threads, appended to only."""

    runs: int = 0
    faults: list[str] = field(default_factory=list)
    run_s: list[float] = field(default_factory=list)
    latencies_s: dict[str, list[float]] = field(default_factory=dict)
    memory_mb: list[float] = field(default_factory=list)
    longest_queue: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fault(self, text: str) -> None:
        with self.lock:
            self.faults.append(text)

    def latency(self, what: str, seconds: float) -> None:
        with self.lock:
            self.latencies_s.setdefault(what, []).append(seconds)


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
        start = time.monotonic()
        self.client.predict(fn_index=self._stop)
        findings.latency("stop", time.monotonic() - start)
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


def visit(
    visitor: Visitor, prompt: str, wanted: str, until_s: float, tokens: int, findings: Findings
) -> None:
    """Press Run again and again; every answer must be the one this prompt has."""
    while time.monotonic() < until_s:
        start = time.monotonic()
        run = visitor.run(prompt, tokens, findings)
        if run is None:
            findings.fault(f"visitor {visitor.number} got no run")
            continue
        with findings.lock:
            findings.runs += 1
            findings.run_s.append(time.monotonic() - start)
        if run["dflash"]["request"]["messages"][-1]["content"] != prompt:
            findings.fault(f"visitor {visitor.number} was shown another visitor's run")
        elif _text(run) != wanted:
            findings.fault(f"visitor {visitor.number} got another text than when alone")


def probe(url: str, until_s: float, findings: Findings) -> None:
    """Ask for advice and health all the while; both must answer beside the generations."""
    advisor = Client(url, verbose=False)
    while time.monotonic() < until_s:
        for what, ask in (
            ("health", lambda: httpx.get(f"{url}/healthz", timeout=30).raise_for_status()),
            ("advice", lambda: advisor.predict("qwen3-8b", api_name="/check")),
            ("page", lambda: httpx.get(url, timeout=30).raise_for_status()),
        ):
            start = time.monotonic()
            ask()
            findings.latency(what, time.monotonic() - start)
        time.sleep(_PROBE_EVERY_S)


def watch_memory(pid: int | None, until_s: float, findings: Findings) -> None:
    """Resident memory of the server, twice a second, where the system tells it."""
    status = Path(f"/proc/{pid}/status")
    while pid and status.exists() and time.monotonic() < until_s:
        lines = status.read_text().splitlines()
        resident = next(int(x.split()[1]) for x in lines if x.startswith("VmRSS"))
        findings.memory_mb.append(resident / 1024)
        time.sleep(_PROBE_EVERY_S)


@contextmanager
def page(url: str | None) -> Iterator[tuple[str, int | None]]:
    """The page's address and process; started here unless it was named."""
    if url:
        yield url.rstrip("/"), None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environ = {**os.environ, "DFLASH_HOSTED": "1", "GRADIO_SERVER_PORT": str(port)}
    command = [sys.executable, "app.py", "--log-level", "warning"]
    server = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(address, server)
        yield address, server.pid
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


def load(url: str, pid: int | None, options: argparse.Namespace) -> Findings:
    """Everybody alone first, then all at once."""
    findings = Findings()
    visitors = [Visitor(url, number) for number in range(options.visitors)]
    prompts = [f"Visitor {v.number} asks: what is {v.number} plus {v.number}?" for v in visitors]
    alone = []
    for visitor, prompt in zip(visitors, prompts, strict=True):
        run = visitor.run(prompt, options.tokens, findings)
        if run is None:
            raise SystemExit("a visitor alone got no run; is the demo pair there?")
        alone.append(_text(run))
    if len(set(alone)) < 2:
        raise SystemExit("every prompt has the same answer, so cross-talk would not be seen")
    findings.latencies_s.clear()
    until_s = time.monotonic() + options.seconds
    work: list[tuple[Any, tuple[Any, ...]]] = [
        (visit, (visitor, prompt, wanted, until_s, options.tokens, findings))
        for visitor, prompt, wanted in zip(visitors, prompts, alone, strict=True)
    ]
    work += [(probe, (url, until_s, findings)), (watch_memory, (pid, until_s, findings))]
    threads = [threading.Thread(target=run, args=args, daemon=True) for run, args in work]
    for thread in threads:
        thread.start()
    Visitor(url, options.visitors).stop_half_way("Tell me a very long story.", findings)
    for thread in threads:
        thread.join(timeout=options.seconds + 600)
    state = httpx.get(f"{url}/healthz").json()
    if state["device_is_busy"]:
        findings.fault("the device is still held after the last run")
    return findings


def report(findings: Findings, options: argparse.Namespace) -> dict[str, Any]:
    """The figures; memory as its median in the second and the last fifth of the time."""
    memory = findings.memory_mb
    fifth = max(1, len(memory) // 5)
    return {
        "num_visitors": options.visitors,
        "seconds": options.seconds,
        "max_new_tokens": options.tokens,
        "num_runs": findings.runs,
        "median_run_s": round(statistics.median(findings.run_s), 2) if findings.run_s else None,
        "longest_queue": findings.longest_queue,
        "latency_ms": {
            what: {"n": len(s), "median": _ms(statistics.median(s)), "max": _ms(max(s))}
            for what, s in sorted(findings.latencies_s.items())
        },
        "memory_mb": {
            "early": round(statistics.median(memory[fifth : 2 * fifth] or memory)),
            "late": round(statistics.median(memory[-fifth:])),
        }
        if memory
        else None,
        "num_faults": len(findings.faults),
        "faults": sorted(set(findings.faults))[:20],
    }


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


def main() -> int:
    """Exit 1 when anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="a page that is up already; default: start one")
    parser.add_argument("--visitors", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--tokens", type=int, default=32, help="new tokens per run")
    options = parser.parse_args()
    with page(options.url) as (url, pid):
        findings = load(url, pid, options)
    print(json.dumps(report(findings, options), indent=1), file=sys.stderr)
    print(json.dumps(report(findings, options)))
    return 1 if findings.faults else 0


if __name__ == "__main__":
    sys.exit(main())
