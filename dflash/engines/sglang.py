"""SGLang's dialect. Acceptance is in ``meta_info``, whose names changed over time: old
(spec_accept_token_num, ...), middle (spec_accepted_drafts, ...) and new (spec_num_correct_drafts).

Chat completions refuse ``return_meta_info`` together with streaming (serving_chat.py), so a greedy
request is asked again unstreamed to learn its acceptance; its Prometheus gauges are running means,
which cannot be told apart by request.
"""

from __future__ import annotations

from typing import Any

from dflash.engines.dialect import chat_payload, count, json_object, reported_spec
from dflash.engines.remote import RemoteEngine
from dflash.schema import Request, SpecStats


class SglangAdapter:
    """Pure functions between our values and SGLang's JSON."""

    name = "sglang"
    status_paths = ("/server_info", "/get_server_info")
    counter_prefix = None
    how_to_report = "SGLang reports it to unstreamed requests only; it is asked at temperature 0."

    def payload(self, request: Request, model: str, *, salt: str) -> dict[str, Any]:
        """See ``Adapter.payload``."""
        return chat_payload(request, model) | {
            "top_k": request.sampling.top_k or -1,
            "repetition_penalty": 1.0,
            "cache_salt": salt,
        }

    def unstreamed(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """The same request with ``return_meta_info``."""
        kept = {k: v for k, v in payload.items() if k != "stream_options"}
        return kept | {"stream": False, "return_meta_info": True}

    def without_drafts(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Drafting is set for the whole server (sgl-project/sglang issue #30263)."""
        return None

    def parse_spec(self, final: dict[str, Any]) -> SpecStats | None:
        """Read ``meta_info``, at the top or inside the choice."""
        meta = _meta_info(final)
        cycles = count(meta, "spec_verify_ct")
        if cycles is None:
            return None
        return reported_spec(
            cycles,
            count(meta, "spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num"),
            count(meta, "spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num"),
            meta.get("spec_correct_drafts_histogram", meta.get("spec_accept_histogram")),
        )

    def is_speculating(self, answers: dict[str, str]) -> bool | None:
        """The server names its speculative algorithm; another one than DFlash is not DFlash."""
        for path in self.status_paths:
            info = json_object(answers.get(path))
            if "speculative_algorithm" in info:
                return "dflash" in str(info["speculative_algorithm"]).lower()
        return None

    def version(self, answers: dict[str, str]) -> str | None:
        """``/server_info`` holds it."""
        for path in self.status_paths:
            told = json_object(answers.get(path)).get("version")
            if isinstance(told, str):
                return told
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
