"""Server-sent events of a chat completion. Knows bytes, lines and JSON; no socket and no clock.

Lines end in LF, CRLF or CR only (WHATWG HTML, section 9.2.6): a raw U+2028 inside a JSON string
is text, which is why ``str.splitlines`` will not do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from dflash.errors import EngineError

MAX_EVENT_BYTES = 4_000_000


def read_events(chunks: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of each event until ``[DONE]``, however the bytes were cut up.

    Raises ``EngineError`` for what is not JSON, for an event beyond 4 MB, and for an error that
    the server reports inside the stream.
    """
    data: list[str] = []
    for line in _lines(chunks):
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
            continue
        if line or not data:  # a comment, another field, or an empty keep-alive
            continue
        text, data = "\n".join(data), []
        if text.strip() == "[DONE]":
            return
        yield _event(text)
    if data and "\n".join(data).strip() != "[DONE]":
        yield _event("\n".join(data))  # a server that leaves out the last empty line


def error_text(body: Any) -> str:
    """A server's own words for an error, one line, at most 300 characters.

    vLLM and llama.cpp nest ``message`` in ``error``; SGLang has it on top; FastAPI has ``detail``.
    """
    found = body
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and found.get(key):
            found = found[key]
    words = " ".join(str(found).split()).encode("utf-8", "backslashreplace").decode("utf-8")
    return words[:300] or "no reason given"


def _event(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise EngineError(
            f"the server sent something that is not whole JSON: {text[:60]!a}.",
            "The connection was cut, or this is not an OpenAI-compatible server.",
        ) from error
    if not isinstance(body, dict):
        raise EngineError(
            f"the server sent {text[:60]!a} where an event was expected.",
            "Is this an OpenAI-compatible server?",
        )
    if body.get("error") or body.get("object") == "error":
        raise EngineError(f"the server reported an error: {error_text(body)}")
    return body


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Cut bytes into lines; an unfinished last line counts as one."""
    pending = b""
    for chunk in chunks:
        pending += chunk
        if b"\n" not in chunk and b"\r" not in chunk:
            _check_length(pending)
            continue
        held = b""
        if pending.endswith(b"\r"):  # the LF of a CRLF may come with the next chunk
            pending, held = pending[:-1], b"\r"
        *whole, rest = _split(pending)
        pending = rest + held
        _check_length(pending)
        for line in whole:
            _check_length(line)
            yield line.decode("utf-8", errors="replace")
    for line in _split(pending):
        yield line.decode("utf-8", errors="replace")


def _split(data: bytes) -> list[bytes]:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def _check_length(line: bytes) -> None:
    if len(line) > MAX_EVENT_BYTES:
        raise EngineError("the server sent an event of over 4 MB.", "Is it the right server?")
