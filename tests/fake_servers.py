"""A vLLM server as far as the page can tell: real sockets, recorded metrics, and every fault that
a test asks for. Written from the payloads in tests/fixtures/servers."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent / "fixtures" / "servers"
WORDS = "".join(f" w{n}" for n in range(1, 41)).split(" ")[1:]
ACCEPTED = 3  # drafts kept in every cycle, of a block of 4
SPEC = {
    "num_spec_steps": 10,
    "num_draft_tokens": 30,
    "num_accepted_draft_tokens": 30,
    "acceptance_histogram": [0, 0, 0, 10],
}


@dataclass
class FakeVllm:
    """One server. ``drafts`` decides how it answers and what its metrics say."""

    drafts: bool
    reports: bool = True  # acceptance in the last event
    model: str = "tiny-27b"
    key: str = ""  # asked for when it is not empty
    breaks_after: int | None = None  # chunks; then the connection ends
    silent_after: int | None = None  # chunks; then nothing more comes
    chunk_s: float = 0.004
    words: list[str] = field(default_factory=lambda: list(WORDS))
    margin: float = 0.01  # between the best two logprobs, where answers are asked with them
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)  # may be shared by several servers
    let_go: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> FakeVllm:
        handler = type("Handler", (_Handler,), {"fake": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def metrics(self) -> bytes:
        name = "before" if self.drafts else "plain"
        return (FIXTURES / f"vllm-0.32-metrics-{name}.txt").read_bytes()

    def events(self) -> list[dict[str, Any]]:
        """A chat's events: one word each, or one cycle each."""
        width = ACCEPTED + 1 if self.drafts else 1
        found: list[dict[str, Any]] = []
        for start in range(0, len(self.words), width):
            part = self.words[start : start + width]
            delta = {"content": "".join(f"{word} " for word in part)}
            usage = {"prompt_tokens": 7, "completion_tokens": start + len(part)}
            found.append({"choices": [{"delta": delta}], "usage": usage})
        found[-1]["choices"][0]["finish_reason"] = "stop"
        last: dict[str, Any] = {"choices": [], "usage": found[-1]["usage"]}
        if self.drafts and self.reports:
            last["metrics"] = {"speculative_decoding": SPEC}
        return [*found, last]

    def unstreamed(self) -> dict[str, Any]:
        """The whole answer with the best two tokens of every place."""
        content = [
            {
                "token": word,
                "logprob": -0.6,
                "top_logprobs": [
                    {"token": word, "logprob": -0.6},
                    {"token": "w5" if word == "x5" else "x5", "logprob": -0.6 - self.margin},
                ],
            }
            for word in self.words
        ]
        return {"choices": [{"message": {"content": "…"}, "logprobs": {"content": content}}]}


class _Handler(BaseHTTPRequestHandler):
    fake: FakeVllm

    def log_message(self, format: str, *args: object) -> None:
        """Tests read ``asked`` and ``order`` instead."""

    def do_GET(self) -> None:
        if not self._may():
            return
        pages = {
            "/v1/models": json.dumps({"data": [{"id": self.fake.model}]}).encode(),
            "/version": b'{"version": "0.32.0"}',
            "/metrics": self.fake.metrics(),
        }
        body = pages.get(self.path)
        self._send(404 if body is None else 200, body or b'{"detail": "Not Found"}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._may():
            return
        if body["model"] != self.fake.model:
            said = f"The model `{body['model']}` does not exist."
            self._send(404, json.dumps({"error": {"message": said}}).encode())
            return
        self.fake.asked.append(body)
        self.fake.order.append(f"{'dflash' if self.fake.drafts else 'plain'} {body['stream']}")
        if body["stream"]:
            self._stream()
        else:
            self._send(200, json.dumps(self.fake.unstreamed()).encode())

    def _may(self) -> bool:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.fake.keys.append(given)
        if self.fake.key and given != self.fake.key:
            self._send(401, b'{"error": "Unauthorized"}')
            return False
        return True

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            for number, event in enumerate(self.fake.events()):
                if number == self.fake.breaks_after:
                    return
                if number == self.fake.silent_after:
                    self.fake.let_go.wait(60)
                    return
                time.sleep(self.fake.chunk_s)
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()
            self.wfile.write(b"data: [DONE]\n\n")
        except (BrokenPipeError, ConnectionResetError):
            return  # the page hung up
