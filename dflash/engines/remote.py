"""One streaming client for every OpenAI-compatible server; what differs is in an Adapter.

Knows HTTP, server-sent events and clocks on this side of the wire. Never infers acceptance from
chunks, never counts chunks as tokens. A server's key goes to that server only and is never logged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from dflash.errors import EngineError
from dflash.schema import (
    Chunk,
    EngineInfo,
    Event,
    Finished,
    FinishReason,
    Message,
    Request,
    SpecStats,
)

_CONNECT_S, _READ_S = 5.0, 120.0
_MAX_EVENT_BYTES = 4_000_000


class Adapter(Protocol):
    """What one kind of server needs and says. All methods are pure but ``name``."""

    name: str

    def payload(self, request: Request, model: str) -> dict[str, Any]:
        """The body of a chat completion; every sampling setting is sent explicitly."""
        ...

    def parse_spec(self, final: dict[str, Any]) -> SpecStats | None:
        """Acceptance of this request from the stream's merged last events, if reported."""
        ...

    def parse_counters(self, metrics_text: str) -> SpecStats | None:
        """Acceptance counted by the server since it started; ``None`` without speculation."""
        ...

    def is_speculating(self, answers: dict[str, str]) -> bool | None:
        """Whether DFlash is on, from the bodies of ``status_paths``; ``None`` = it does not say."""
        ...

    status_paths: tuple[str, ...]


def chat_payload(request: Request, model: str) -> dict[str, Any]:
    """The part of the body that all servers share."""
    sampling = request.sampling
    return {
        "model": model,
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "chat_template_kwargs": {"enable_thinking": sampling.enable_thinking},
    }


@dataclass(frozen=True, slots=True)
class Delta:
    """One server-sent event, read: its text and whatever else it carries."""

    text: str
    body: dict[str, Any]


def read_events(lines: Iterator[str]) -> Iterator[Delta]:
    """Parse server-sent events until [DONE]. Raises ``EngineError`` for half-written JSON and
    for an error the server reports inside the stream."""
    for line in lines:
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if data == "[DONE]":
            return
        if not data:
            continue
        if len(data) > _MAX_EVENT_BYTES:
            raise EngineError("the server sent an event of over 4 MB.", "Is it the right server?")
        try:
            body = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise EngineError(
                f"the server sent something that is not JSON: {data[:60]!r}.",
                "Is the URL that of an OpenAI-compatible server?",
            ) from error
        if not isinstance(body, dict):
            raise EngineError(f"the server sent {data[:60]!r} where an event was expected.")
        if body.get("error"):
            raise EngineError(f"the server reported an error: {_error_text(body['error'])}")
        yield Delta(_delta_text(body), body)


def _delta_text(body: dict[str, Any]) -> str:
    """Visible and reasoning text of an event, in the order they come."""
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    delta = first.get("delta") if isinstance(first, dict) else None
    if not isinstance(delta, dict):
        return ""
    parts = (delta.get(k) for k in ("reasoning_content", "reasoning", "content"))
    return "".join(p for p in parts if isinstance(p, str))


def _error_text(error: Any) -> str:
    """A server's own words for an error, shortened."""
    text = error.get("message", error) if isinstance(error, dict) else error
    return str(text).strip().splitlines()[0][:200] if str(text).strip() else "no reason given"


class RemoteEngine:
    """A served target. ``base_url`` speculates; ``baseline_url`` is the same target without.

    ``model`` defaults to the first one the server lists. The two lanes are two servers, so each
    is timed by its own wall clock.
    """

    trained_block_size: int | None = None  # the server's own setting rules

    def __init__(
        self,
        adapter: Adapter,
        *,
        base_url: str,
        baseline_url: str | None = None,
        model: str | None = None,
        api_key: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._adapter = adapter
        self._urls = {True: _checked_url(base_url)}
        if baseline_url:
            self._urls[False] = _checked_url(baseline_url)
        # A key belongs to the server it was given for and is not sent to another origin.
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.Client(
            timeout=httpx.Timeout(_READ_S, connect=_CONNECT_S),
            transport=transport,
            follow_redirects=False,
        )
        self.model = model or self._first_model()
        self.is_speculating = adapter.is_speculating(self._status_answers())
        self.info = EngineInfo(
            backend=adapter.name,
            version="as served",
            target_id=self.model,
            draft_id=None,
            device=self._urls[True],
            dtype="as served",
            reports="summary",
        )

    def stream(self, request: Request) -> Iterator[Event]:
        """Yield Chunks, then Finished with the server's own counts. See ``Engine.stream``."""
        speculate = request.block_size > 1
        if speculate not in self._urls:
            raise EngineError(
                "there is no second server for the autoregressive lane.",
                "Start the same target without speculation and give its URL.",
            )
        url = self._urls[speculate]
        before = self._counters(url) if speculate else None
        start, last_s = time.perf_counter(), 0.0
        final: dict[str, Any] = {}
        reason: FinishReason = "stop"
        for delta in self._deltas(url, self._adapter.payload(request, self.model)):
            now_s = time.perf_counter() - start
            reason = _finish_reason(delta.body) or reason
            final |= {k: v for k, v in delta.body.items() if v is not None}
            if delta.text:
                last_s = now_s
                yield Chunk(now_s, delta.text)
        spec = None
        if speculate:
            spec = self._adapter.parse_spec(final) or _since(before, self._counters(url))
        yield Finished(last_s, reason, _completion_tokens(final), spec)

    def _deltas(self, url: str, payload: dict[str, Any]) -> Iterator[Delta]:
        """Post and read the stream; every way it can fail becomes one sentence."""
        try:
            with self._client.stream(
                "POST", f"{url}/v1/chat/completions", json=payload, headers=self._headers
            ) as response:
                if response.status_code != 200:
                    response.read()
                    raise _refused(url, response)
                yield from read_events(response.iter_lines())
        except httpx.HTTPError as error:
            raise _unreachable(url, error) from error

    def _first_model(self) -> str:
        """The first model the server lists. Raises ``EngineError``."""
        url = self._urls[True]
        answer = self._get(f"{url}/v1/models")
        try:
            return str(json.loads(answer)["data"][0]["id"])
        except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
            raise EngineError(
                f"{url} does not list its models.", "Is it an OpenAI-compatible server's root URL?"
            ) from error

    def _status_answers(self) -> dict[str, str]:
        """What the server says about itself; a path it does not have is left out."""
        answers = {}
        for path in self._adapter.status_paths:
            try:
                answers[path] = self._get(f"{self._urls[True]}{path}")
            except EngineError:
                continue
        return answers

    def _counters(self, url: str) -> SpecStats | None:
        """The server-wide counters now, if it has any."""
        try:
            return self._adapter.parse_counters(self._get(f"{url}/metrics"))
        except EngineError:
            return None

    def _get(self, url: str) -> str:
        """A GET's body. Raises ``EngineError``."""
        try:
            response = self._client.get(url, headers=self._headers)
        except httpx.HTTPError as error:
            raise _unreachable(url, error) from error
        if response.status_code != 200:
            raise _refused(url, response)
        return response.text

    def encode(self, messages: tuple[Message, ...], *, enable_thinking: bool = False) -> list[int]:
        """A server tokenises by itself; nothing is known here."""
        raise EngineError("token ids are not known for a served model.")

    def decode(self, ids: list[int]) -> str:
        """See ``encode``."""
        raise EngineError("token ids are not known for a served model.")

    def close(self) -> None:
        """Close the connections; a stream in progress ends, which makes the server stop."""
        self._client.close()


def _checked_url(url: str) -> str:
    """An http(s) root URL without a trailing slash or /v1. Raises ``EngineError``."""
    trimmed = url.strip().rstrip("/").removesuffix("/v1")
    try:
        parsed = httpx.URL(trimmed)
    except httpx.InvalidURL as error:
        raise EngineError(f"{url!r} is not a URL.", "Write http://host:port.") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise EngineError(f"{url!r} is not a server's URL.", "Write http://host:port.")
    return trimmed


def _refused(url: str, response: httpx.Response) -> EngineError:
    """A status that is not 200, in words."""
    try:
        body = response.json()
        text = _error_text(body.get("error", body) if isinstance(body, dict) else body)
    except (ValueError, RecursionError):
        text = response.text[:120].strip() or "no reason given"
    return EngineError(
        f"{url} answered {response.status_code}: {text}",
        "Check the model name and that this is the server's root URL.",
    )


def _unreachable(url: str, error: httpx.HTTPError) -> EngineError:
    """A connection that failed or broke, in words."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return EngineError(f"nothing answers at {url}.", "Is the server running on that port?")
    if isinstance(error, httpx.TimeoutException):
        return EngineError(f"{url} sent nothing for {_READ_S:.0f} s.", "Is the server overloaded?")
    return EngineError(f"the connection to {url} broke off.", "Look at the server's log.")


def _finish_reason(body: dict[str, Any]) -> FinishReason | None:
    """Why the server ended, if this event says so."""
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    reason = first.get("finish_reason") if isinstance(first, dict) else None
    return None if reason is None else ("length" if reason == "length" else "stop")


def _completion_tokens(final: dict[str, Any]) -> int | None:
    """Tokens from usage; ``None`` when the server sent none (chunks are never counted)."""
    usage = final.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) else None


def _since(before: SpecStats | None, after: SpecStats | None) -> SpecStats | None:
    """The counters' growth over one request: right only while the server is otherwise idle."""
    if before is None or after is None or before.num_cycles is None or after.num_cycles is None:
        return None
    num_cycles = after.num_cycles - before.num_cycles
    if num_cycles <= 0:
        return None
    return SpecStats(
        num_cycles=num_cycles,
        num_draft_tokens=after.num_draft_tokens - before.num_draft_tokens,
        num_accepted_tokens=after.num_accepted_tokens - before.num_accepted_tokens,
        acceptance_histogram=None,
        source="counters",
    )


def count(fields: dict[str, Any], *names: str) -> int | None:
    """The first of several spellings that holds a whole number of at least 0."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
