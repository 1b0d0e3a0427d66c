"""vLLM's dialect. Per-request acceptance needs ``--per-request-spec-decode-metrics summary``
(docs/features/speculative_decoding/acceptance_metrics.md); else Prometheus counters are read."""

from __future__ import annotations

from typing import Any

from dflash.engines.counters import read_counters
from dflash.engines.dialect import chat_payload, count, json_object, reported_spec
from dflash.engines.remote import RemoteEngine
from dflash.schema import Request, SpecStats


class VllmAdapter:
    """Pure functions between our values and vLLM's JSON."""

    name = "vllm"
    status_paths = ("/metrics", "/version")
    counter_prefix = "vllm"
    how_to_report = "Start it with --per-request-spec-decode-metrics summary."

    def payload(self, request: Request, model: str, *, salt: str) -> dict[str, Any]:
        """See ``Adapter.payload``. ``cache_salt`` keeps the prefix cache out of the timing."""
        return chat_payload(request, model) | {
            "top_k": request.sampling.top_k or -1,
            "repetition_penalty": 1.0,
            "cache_salt": salt,
        }

    def unstreamed(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Not needed: the last event of a stream carries everything."""
        return None

    def without_drafts(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Drafting is set for the whole server (vllm-project/vllm PR #55412 was closed)."""
        return None

    def parse_spec(self, final: dict[str, Any]) -> SpecStats | None:
        """Read ``metrics.speculative_decoding``."""
        metrics = final.get("metrics")
        spec = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
        if not isinstance(spec, dict):
            return None
        cycles = count(spec, "num_spec_steps")
        if cycles is None:
            return None
        return reported_spec(
            cycles,
            count(spec, "num_draft_tokens"),
            count(spec, "num_accepted_draft_tokens"),
            spec.get("acceptance_histogram"),
        )

    def is_speculating(self, answers: dict[str, str]) -> bool | None:
        """The speculative counters exist only when speculation is on."""
        metrics = answers.get("/metrics")
        if metrics is None or "vllm:" not in metrics:
            return None
        return read_counters(metrics, prefix=self.counter_prefix) is not None

    def version(self, answers: dict[str, str]) -> str | None:
        """``/version`` holds it."""
        told = json_object(answers.get("/version")).get("version")
        return told if isinstance(told, str) else None


class VllmEngine(RemoteEngine):
    """A vLLM server (or two)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(VllmAdapter(), **options)
