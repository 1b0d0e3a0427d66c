"""SGLang's dialect. Acceptance rides in ``meta_info``, whose names changed over time: both the
old (spec_accept_token_num, ...) and the new (spec_num_correct_drafts, ...) are read."""

from __future__ import annotations

import json
import re
from typing import Any

from dflash.engines.remote import RemoteEngine, chat_payload, count
from dflash.schema import Request, SpecStats


class SglangAdapter:
    """Pure functions between our values and SGLang's JSON."""

    name = "sglang"
    status_paths = ("/server_info", "/get_server_info")

    def payload(self, request: Request, model: str) -> dict[str, Any]:
        """See ``Adapter.payload``."""
        return chat_payload(request, model) | {
            "top_k": request.sampling.top_k or -1,
            "return_meta_info": True,
        }

    def parse_spec(self, final: dict[str, Any]) -> SpecStats | None:
        """Read ``meta_info``, at the top or inside the last choice."""
        meta = _meta_info(final)
        cycles = count(meta, "spec_verify_ct")
        accepted = count(meta, "spec_num_correct_drafts", "spec_accept_token_num")
        drafted = count(meta, "spec_num_proposed_drafts", "spec_draft_token_num")
        if not cycles or accepted is None or drafted is None:
            return None
        histogram = meta.get("spec_correct_drafts_histogram", meta.get("spec_accept_histogram"))
        whole = isinstance(histogram, list) and all(isinstance(n, int) for n in histogram)
        return SpecStats(cycles, drafted, accepted, tuple(histogram) if whole else None, "reported")

    def parse_counters(self, metrics_text: str) -> SpecStats | None:
        """SGLang's gauges are running means, which cannot be told apart by request."""
        return None

    def is_speculating(self, answers: dict[str, str]) -> bool | None:
        """The server names its speculative algorithm."""
        for body in answers.values():
            try:
                info = json.loads(body)
            except (ValueError, RecursionError):
                continue
            if isinstance(info, dict) and "speculative_algorithm" in info:
                return bool(re.search("dflash", str(info["speculative_algorithm"]), re.IGNORECASE))
        return None


def _meta_info(final: dict[str, Any]) -> dict[str, Any]:
    """The request's meta_info wherever this version puts it."""
    choices = final.get("choices")
    last = choices[-1] if isinstance(choices, list) and choices else None
    for place in (final, last):
        meta = place.get("meta_info") if isinstance(place, dict) else None
        if isinstance(meta, dict):
            return meta
    return {}


class SglangEngine(RemoteEngine):
    """An SGLang server (or two)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(SglangAdapter(), **options)
