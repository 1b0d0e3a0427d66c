"""llama.cpp's dialect. ``timings`` counts drafted and accepted tokens, and cycles only in builds
with ``draft_n_verif_steps`` (ggml-org/llama.cpp PR #27676); without it tau is unknown, not derived
from what was emitted (a reply's last cycle is cut short). ``--metrics`` adds counters."""

from __future__ import annotations

from typing import Any

from dflash.engines.dialect import chat_payload, count, json_object, json_objects, reported_spec
from dflash.engines.remote import RemoteEngine
from dflash.schema import Request, SpecStats


class LlamacppAdapter:
    """Pure functions between our values and llama-server's JSON."""

    name = "llamacpp"
    status_paths = ("/props", "/slots")
    counter_prefix = "llamacpp"
    how_to_report = "Start llama-server with --spec-type draft-dflash and --metrics."

    def payload(self, request: Request, model: str, *, salt: str) -> dict[str, Any]:
        """See ``Adapter.payload``. The prompt cache is off so that both lanes read the prompt."""
        return chat_payload(request, model) | {
            "top_k": request.sampling.top_k,
            "repeat_penalty": 1.0,
            "typical_p": 1.0,
            "cache_prompt": False,
            "timings_per_token": True,
        }

    def unstreamed(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Not needed: the last event of a stream carries the timings."""
        return None

    def without_drafts(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Builds since ggml-org/llama.cpp PR #10455 took the number of drafts per request; those
        of late 2026 pass over it (server-schema.cpp) and draft, which their ``timings`` show."""
        return payload | {"speculative.n_max": 0}

    def parse_spec(self, final: dict[str, Any]) -> SpecStats | None:
        """Read ``timings``; its draft counts exist only when speculation ran."""
        timings = final.get("timings")
        if not isinstance(timings, dict):
            return None
        return reported_spec(
            count(timings, "draft_n_verif_steps"),
            count(timings, "draft_n"),
            count(timings, "draft_n_accepted"),
        )

    def is_speculating(self, answers: dict[str, str]) -> bool | None:
        """``/slots`` says it, unless it was switched off; ``/props`` says "none" also where
        speculation runs (ggml-org/llama.cpp PR #28119), so there only a yes counts."""
        slots = [slot.get("speculative") for slot in json_objects(answers.get("/slots"))]
        if slots and all(isinstance(drafts, bool) for drafts in slots):
            return any(slots)
        props = json_object(answers.get("/props"))
        settings = props.get("default_generation_settings")
        params = settings.get("params") if isinstance(settings, dict) else None
        types = params.get("speculative.types") if isinstance(params, dict) else None
        return True if "dflash" in str(types).lower() else None

    def version(self, answers: dict[str, str]) -> str | None:
        """``/props`` holds the build."""
        told = json_object(answers.get("/props")).get("build_info")
        return told if isinstance(told, str) else None


class LlamacppEngine(RemoteEngine):
    """A llama-server (or two)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(LlamacppAdapter(), **options)
