"""A streamed answer's JSON -> our events. Knows the OpenAI chat chunk; never takes a chunk for a
token or a cycle: tokens come from usage, where the server counts along."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dflash.engines.dialect import count
from dflash.errors import EngineError
from dflash.schema import Chunk, Finished, FinishReason, SpecStats


class Answer:
    """Folds a stream's JSON into Chunks and keeps what the last events said."""

    def __init__(self) -> None:
        self.final: dict[str, Any] = {}
        self._last_s = 0.0
        self._num_tokens = 0
        self._reason: FinishReason | None = None

    def add(self, t_s: float, body: dict[str, Any]) -> Iterator[Chunk]:
        """One event. A chunk is text, or a token that shows no text (a stop, half a character)."""
        self.final |= {k: v for k, v in body.items() if v is not None and v != []}
        choice = _first_choice(body)
        text, tokens = _text(choice), _completion_tokens(body)
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            self._reason = "length" if reason == "length" else "stop"
        grew = tokens is not None and tokens > self._num_tokens and bool(choice)
        if text or grew or isinstance(reason, str):
            self._num_tokens = max(tokens or 0, self._num_tokens)
            self._last_s = t_s
            yield Chunk(t_s, text, self._num_tokens or None)

    def finished(self, url: str) -> Callable[[SpecStats | None], Finished]:
        """Everything of the last event but the acceptance. Raises ``EngineError`` if the server
        stopped in the middle."""
        reason = self._reason
        if reason is None:
            raise EngineError(
                f"{url} stopped sending in the middle of the answer.", "Look at the server's log."
            )
        usage = self.final.get("usage")
        counts = usage if isinstance(usage, dict) else {}
        return lambda spec: Finished(
            self._last_s,
            reason,
            count(counts, "completion_tokens"),
            spec,
            num_prompt_tokens=count(counts, "prompt_tokens"),
        )


def _first_choice(body: dict[str, Any]) -> dict[str, Any]:
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _text(choice: dict[str, Any]) -> str:
    """Reasoning and visible text of an event. Some servers send the reasoning under two names."""
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return ""
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    text = "".join(part for part in (reasoning, delta.get("content")) if isinstance(part, str))
    # Half a surrogate pair is legal in JSON, and nothing downstream could send it on.
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _completion_tokens(body: dict[str, Any]) -> int | None:
    """The server's own count so far; llama.cpp keeps it in ``timings`` until the last event."""
    usage, timings = body.get("usage"), body.get("timings")
    if isinstance(usage, dict):
        return count(usage, "completion_tokens")
    return count(timings, "predicted_n") if isinstance(timings, dict) else None
