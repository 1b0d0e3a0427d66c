"""What is particular to one kind of server, as pure functions, and what all of them share.

Knows JSON and our values; knows no network and no clock.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from dflash.schema import Request, SpecStats

_MAX_COUNT = 1_000_000_000  # beyond that a number is no count of tokens


class Adapter(Protocol):
    """What one kind of server needs and says. Nothing here touches the network."""

    @property
    def name(self) -> str:
        """The backend's name, as ``open_engine`` knows it."""
        ...

    @property
    def status_paths(self) -> tuple[str, ...]:
        """Where the server tells about itself."""
        ...

    @property
    def counter_prefix(self) -> str | None:
        """The prefix of its speculative Prometheus counters; ``None`` if it has none."""
        ...

    @property
    def how_to_report(self) -> str:
        """One sentence: how to start the server so that it reports acceptance."""
        ...

    def payload(self, request: Request, model: str, *, salt: str) -> dict[str, Any]:
        """The body of a streamed chat completion; every sampling setting is explicit. ``salt``
        differs from run to run, to keep a run from finding the prompt in the server's cache."""
        ...

    def unstreamed(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """The body that asks again without streaming, for a server that reports only then."""
        ...

    def without_drafts(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """The body with drafting off, for a server that takes that per request."""
        ...

    def parse_spec(self, final: dict[str, Any]) -> SpecStats | None:
        """Acceptance of this request from the answer's merged last events, if reported."""
        ...

    def is_speculating(self, answers: dict[str, str]) -> bool | None:
        """Whether drafts are on, from the bodies of ``status_paths``; ``None``: it does not say."""
        ...

    def version(self, answers: dict[str, str]) -> str | None:
        """The server's version, if it tells."""
        ...


def chat_payload(request: Request, model: str) -> dict[str, Any]:
    """The part of the body that all servers share. A server fills what is left out from the
    checkpoint's generation_config.json, so nothing that changes the next token is left out."""
    sampling = request.sampling
    return {
        "model": model,
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": sampling.seed,
        "chat_template_kwargs": {"enable_thinking": sampling.enable_thinking},
    }


def count(fields: dict[str, Any], *names: str) -> int | None:
    """The first of several spellings that holds a whole number from 0 to a billion."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT:
            return value
    return None


def reported_spec(
    cycles: int | None, drafted: int | None, accepted: int | None, histogram: Any = None
) -> SpecStats | None:
    """A server's own counts as ours; ``None`` where one is missing or they contradict."""
    if cycles == 0 or not drafted or accepted is None or accepted > drafted:
        return None
    whole = (
        isinstance(histogram, list)
        and all(isinstance(n, int) and n >= 0 for n in histogram)
        and sum(histogram) == cycles
    )
    return SpecStats(cycles, drafted, accepted, tuple(histogram) if whole else None, "reported")


def json_object(text: str | None) -> dict[str, Any]:
    """A status page as an object; empty for anything else."""
    found = _json(text)
    return found if isinstance(found, dict) else {}


def json_objects(text: str | None) -> list[dict[str, Any]]:
    """The objects that a status page lists; empty for anything else."""
    found = _json(text)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _json(text: str | None) -> Any:
    try:
        return json.loads(text or "")
    except (ValueError, RecursionError):
        return None
