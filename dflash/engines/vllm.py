"""vLLM's dialect. Per-request acceptance needs ``--per-request-spec-decode-metrics summary``
(docs/features/speculative_decoding/acceptance_metrics.md); else Prometheus counters."""

from __future__ import annotations

import re
from typing import Any

from dflash.engines.remote import RemoteEngine, chat_payload, count
from dflash.schema import Request, SpecStats

_COUNTER = re.compile(
    r"^vllm:spec_decode_num_(drafts|draft_tokens|accepted_tokens)(?:_total)?(?:\{[^}]*\})?"
    r"\s+([0-9.eE+]+)\s*$",
    re.MULTILINE,
)


class VllmAdapter:
    """Pure functions between our values and vLLM's JSON."""

    name = "vllm"
    status_paths = ("/metrics",)

    def payload(self, request: Request, model: str) -> dict[str, Any]:
        """See ``Adapter.payload``."""
        return chat_payload(request, model) | {"top_k": request.sampling.top_k or -1}

    def parse_spec(self, final: dict[str, Any]) -> SpecStats | None:
        """Read ``metrics.speculative_decoding``."""
        metrics = final.get("metrics")
        spec = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
        if not isinstance(spec, dict):
            return None
        cycles = count(spec, "num_spec_steps")
        drafted = count(spec, "num_draft_tokens")
        accepted = count(spec, "num_accepted_draft_tokens")
        if not cycles or drafted is None or accepted is None:
            return None
        histogram = spec.get("acceptance_histogram")
        whole = isinstance(histogram, list) and all(isinstance(n, int) for n in histogram)
        return SpecStats(cycles, drafted, accepted, tuple(histogram) if whole else None, "reported")

    def parse_counters(self, metrics_text: str) -> SpecStats | None:
        """Sum the counters over engines."""
        totals: dict[str, int] = {}
        for name, value in _COUNTER.findall(metrics_text):
            totals[name] = totals.get(name, 0) + int(float(value))
        if "drafts" not in totals:
            return None
        return SpecStats(
            num_cycles=totals["drafts"],
            num_draft_tokens=totals.get("draft_tokens", 0),
            num_accepted_tokens=totals.get("accepted_tokens", 0),
            acceptance_histogram=None,
            source="counters",
        )

    def is_speculating(self, answers: dict[str, str]) -> bool | None:
        """The speculative counters exist only when speculation is on."""
        metrics = answers.get("/metrics")
        return None if metrics is None else self.parse_counters(metrics) is not None


class VllmEngine(RemoteEngine):
    """A vLLM server (or two)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(VllmAdapter(), **options)
