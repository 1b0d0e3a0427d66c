"""One HTTP client per server: status pages, and streams whose events are stamped as they arrive.

Knows sockets, timeouts and how a failure is worded; knows no dialect. A stream is read by a
thread of its own, so that what its reader does between two events is on no clock, and closing the
stream closes the socket even while the server is silent, which makes the server stop.
"""

from __future__ import annotations

import json
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx

from dflash.engines.sse import error_text, read_events
from dflash.errors import EngineError

MakeTransport = Callable[[], httpx.BaseTransport]
ShouldStop = Callable[[], bool]

_CONNECT_S, READ_S = 5.0, 120.0
_STATUS_S = 10.0
_MAX_STATUS_BYTES = 8_000_000
_JOIN_S = 5.0
_POLL_S = 0.2


@cache
def _certificates() -> ssl.SSLContext:
    """Read once: it takes longer than a short answer does."""
    return httpx.create_ssl_context()


def make_plain_transport() -> httpx.HTTPTransport:
    """A transport without proxies that trusts the usual certificates."""
    return httpx.HTTPTransport(verify=_certificates())


def never() -> bool:
    """The answer of somebody who does not stop a stream."""
    return False


@dataclass(frozen=True, slots=True)
class Arrival:
    """One event of a stream. ``t_s``: seconds from sending the request to its arrival."""

    t_s: float
    body: dict[str, Any]


class ServerClient:
    """A server at ``url`` and the key that belongs to it; the key is sent nowhere else."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        make_transport: MakeTransport = make_plain_transport,
        read_timeout_s: float = READ_S,
    ) -> None:
        self.url = root_url(url)
        if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
            raise EngineError("the key has characters that no key has.", "Copy it again.")
        self._api_key = api_key
        self._make_transport = make_transport
        self._read_timeout_s = read_timeout_s

    def get(self, path: str) -> str:
        """A status page's text, at most 8 MB of it. Raises ``EngineError``."""
        with self._client(_STATUS_S) as client:
            try:
                with client.stream("GET", f"{self.url}{path}") as response:
                    text = _read_text(response)
            except httpx.HTTPError as error:
                raise self._unreachable(error, _STATUS_S) from error
        if response.status_code != 200:
            raise self._refused(response, text)
        return text

    def post(self, path: str, payload: dict[str, Any]) -> dict[str, Any]:
        """An answer that is not streamed. Raises ``EngineError``."""
        with self._client(self._read_timeout_s) as client:
            try:
                with client.stream("POST", f"{self.url}{path}", content=_json(payload)) as response:
                    text = _read_text(response)
            except httpx.HTTPError as error:
                raise self._unreachable(error, self._read_timeout_s) from error
        if response.status_code != 200:
            raise self._refused(response, text)
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise EngineError(f"{self.url} answered with something that is not a JSON object.")
        return body

    def stream(
        self,
        path: str,
        payload: dict[str, Any],
        *,
        turn: threading.Lock | None = None,
        should_stop: ShouldStop = never,
    ) -> Generator[Arrival, None, None]:
        """Post and yield the events as they came in. Raises ``EngineError`` for every way it
        can fail. ``turn`` is held while the server is at work; it is waited for off the clock.
        ``should_stop`` is also asked while the server is silent, and ends the stream.
        """
        reader = _Reader(self, path, payload, turn)
        reader.start()
        try:
            while (item := reader.take(should_stop)) is not None:
                if isinstance(item, EngineError):
                    raise item
                yield item
        finally:
            reader.cancel()
            reader.join(_JOIN_S)

    def _client(self, read_timeout_s: float) -> httpx.Client:
        """A client for one exchange. A transport of our own also keeps proxies and .netrc out."""
        headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        return httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(read_timeout_s, connect=_CONNECT_S),
            transport=self._make_transport(),
            follow_redirects=False,
            trust_env=False,
        )

    def _refused(self, response: httpx.Response, text: str) -> EngineError:
        """A status that is not 200, in words."""
        status = response.status_code
        if response.is_redirect:
            place = response.headers.get("location", "another place")[:120]
            return EngineError(
                f"{self.url} redirects to {place}, and redirects are not followed.",
                "Give the URL it leads to, if you trust it.",
            )
        if "html" in response.headers.get("content-type", ""):
            return self._is_a_web_page(status)
        try:
            words = error_text(json.loads(text))
        except (ValueError, RecursionError):
            words = error_text(text)
        return EngineError(f"{self.url} answered {status}: {words}", _HINTS.get(status, ""))

    def _is_a_web_page(self, status: int) -> EngineError:
        return EngineError(
            f"{self.url} answered {status} with a web page, not as a model server.",
            "Give the root URL of the server, such as http://127.0.0.1:8000.",
        )

    def _unreachable(self, error: httpx.HTTPError, read_timeout_s: float) -> EngineError:
        """A connection that failed or broke, in words."""
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return EngineError(
                f"nothing answers at {self.url}.", "Is the server running on that port?"
            )
        if isinstance(error, httpx.TimeoutException):
            return EngineError(
                f"{self.url} sent nothing for {read_timeout_s:g} s.", "Is the server overloaded?"
            )
        return EngineError(
            f"the connection to {self.url} broke off ({type(error).__name__}).",
            "Look at the server's log.",
        )


class _Reader(threading.Thread):
    """Reads one stream to its end and stamps every event; ``items`` ends with ``None``."""

    def __init__(
        self,
        server: ServerClient,
        path: str,
        payload: dict[str, Any],
        turn: threading.Lock | None,
    ) -> None:
        super().__init__(name="dflash-server-stream", daemon=True)
        self.items: queue.SimpleQueue[Arrival | EngineError | None] = queue.SimpleQueue()
        self._server, self._path, self._payload = server, path, payload
        self._turn = turn
        self._is_cancelled = False
        self._socket: socket.socket | None = None
        self._start_s = self._arrived_s = 0.0

    def run(self) -> None:
        """Take the turn, read everything, give the turn back; every end is told in ``items``."""
        try:
            if self._take_turn():
                try:
                    self._read()
                finally:
                    if self._turn:
                        self._turn.release()
        except EngineError as error:
            if not self._is_cancelled:
                self.items.put(error)
        finally:
            self.items.put(None)

    def take(self, should_stop: ShouldStop) -> Arrival | EngineError | None:
        """The next item, or ``None`` at the end and once it should stop."""
        while not should_stop():
            with suppress(queue.Empty):
                return self.items.get(timeout=_POLL_S)
        return None

    def cancel(self) -> None:
        """End the stream now, also while the server is silent."""
        self._is_cancelled = True
        if self._socket is not None:
            with suppress(OSError):  # closed already
                self._socket.shutdown(socket.SHUT_RDWR)

    def _take_turn(self) -> bool:
        while self._turn and not self._turn.acquire(timeout=0.1):
            if self._is_cancelled:
                return False
        return True

    def _read(self) -> None:
        server = self._server
        read_timeout_s = server._read_timeout_s
        self._start_s = time.perf_counter()
        try:
            with (
                server._client(read_timeout_s) as client,
                client.stream(
                    "POST",
                    f"{server.url}{self._path}",
                    content=_json(self._payload),
                    extensions={"trace": self._on_trace},
                ) as response,
            ):
                self._check(response)
                for body in read_events(self._until_cancelled(response.iter_bytes())):
                    self.items.put(Arrival(self._arrived_s - self._start_s, body))
        except httpx.HTTPError as error:
            raise server._unreachable(error, read_timeout_s) from error

    def _check(self, response: httpx.Response) -> None:
        kind = response.headers.get("content-type", "")
        if response.status_code != 200:
            raise self._server._refused(response, _read_text(response))
        if "html" in kind:
            raise self._server._is_a_web_page(200)
        if "json" in kind:
            raise EngineError(
                f"{self._server.url} did not stream: {error_text(_read_text(response))}",
                "Use a server that streams chat completions.",
            )

    def _until_cancelled(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            if self._is_cancelled:
                return
            self._arrived_s = time.perf_counter()  # events that came together share their stamp
            yield chunk

    def _on_trace(self, event: str, info: dict[str, Any]) -> None:
        """httpcore tells of the socket it opened, and of the moment the request goes out."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = info["return_value"].get_extra_info("socket")
        elif event == "http11.send_request_headers.started":
            self._start_s = time.perf_counter()  # connecting is not the server's time
        if self._is_cancelled and self._socket is not None:
            self.cancel()


_HINTS = {
    400: "Check the prompt's length and the sampling settings.",
    401: "Check the key.",
    403: "Check the key.",
    404: "Check the model's name and that this is the server's root URL.",
    429: "Wait, or ask for less at a time.",
    503: "The server is up but its model is still loading.",
}


def root_url(url: str) -> str:
    """An http(s) root URL without a trailing slash or /v1. Raises ``EngineError``."""
    trimmed = url.strip().rstrip("/").removesuffix("/v1").rstrip("/")
    try:
        parsed = httpx.URL(trimmed)
    except (httpx.InvalidURL, UnicodeError) as error:
        raise EngineError(f"{_shown(url)!r} is not a URL.", "Write http://host:port.") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise EngineError(f"{_shown(url)!r} is not a server's URL.", "Write http://host:port.")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise EngineError(
            "a server's URL must not carry a password, a query or a fragment.",
            "Write http://host:port and give the key by itself.",
        )
    return trimmed


def _shown(url: str) -> str:
    """The start of what somebody typed, without a password in it: errors go into the log."""
    return url.rpartition("@")[2][:120]


def same_origin(one: str, other: str) -> bool:
    """Whether two URLs have the same scheme, host and port. Raises ``EngineError``."""
    a, b = httpx.URL(root_url(one)), httpx.URL(root_url(other))
    return (a.scheme, a.host, a.port) == (b.scheme, b.host, b.port)


def _json(payload: dict[str, Any]) -> bytes:
    """ASCII JSON, which also carries a lone surrogate that a visitor may have pasted."""
    return json.dumps(payload, allow_nan=False).encode("ascii")


def _read_text(response: httpx.Response) -> str:
    """The body as text, cut off at 8 MB."""
    parts, size = [], 0
    for chunk in response.iter_bytes():
        parts.append(chunk)
        size += len(chunk)
        if size > _MAX_STATUS_BYTES:
            break
    return b"".join(parts).decode("utf-8", errors="replace")
