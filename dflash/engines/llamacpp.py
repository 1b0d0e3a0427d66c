"""llama.cpp's dialect. ``timings`` counts drafted and accepted tokens but no cycles, so tau is
unknown, not estimated (ggml-org/llama.cpp issue #26750, PR #27676)."""

from __future__ import annotations

import json
from typing import Any

from dflash.engines.remote import RemoteEngine, chat_payload, count
from dflash.schema import Request, SpecStats


class LlamacppAdapter:
    """Pure functions between our values and llama-server's JSON."""

    name = "llamacpp"
    status_paths = ("/props",)

    def payload(self, request: Request, model: str) -> dict[str, Any]:
        """See ``Adapter.payload``. The prompt cache is off so that both lanes read the prompt."""
        return chat_payload(request, model) | {
            "top_k": request.sampling.top_k,
            "cache_prompt": False,
        }

    def parse_spec(self, final: dict[str, Any]) -> SpecStats | None:
        """Read ``timings``; its draft counts exist only when speculation ran."""
        timings = final.get("timings")
        if not isinstance(timings, dict):
            return None
        drafted, accepted = count(timings, "draft_n"), count(timings, "draft_n_accepted")
        if not drafted or accepted is None:
            return None
        return SpecStats(count(timings, "draft_n_steps"), drafted, accepted, None, "reported")

    def parse_counters(self, metrics_text: str) -> SpecStats | None:
        """llama-server has no speculative counters."""
        return None

    def is_speculating(self, answers: dict[str, str]) -> bool | None:
        """``/props`` may say "none" although speculation runs, so only a yes counts."""
        try:
            props = json.loads(answers.get("/props", ""))
        except (ValueError, RecursionError):
            return None
        speculative = props.get("speculative") if isinstance(props, dict) else None
        types = speculative.get("types") if isinstance(speculative, dict) else None
        return True if "dflash" in str(types) else None


class LlamacppEngine(RemoteEngine):
    """A llama-server (or two)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(LlamacppAdapter(), **options)
