"""Where two servers' greedy answers part, from the logprobs that chat completions carry.

Knows the OpenAI logprobs object and nothing else. Tokens are known by their text only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dflash.close_look import TIE_MARGIN, Verdict

NUM_CANDIDATES = 5


@dataclass(frozen=True, slots=True)
class ServedCandidate:
    """One token that a server considered, by its text. ``logprob`` is natural."""

    text: str
    logprob: float


@dataclass(frozen=True, slots=True)
class ServedDivergence:
    """The first token at which two served greedy answers differ, asked again with logprobs.

    ``index`` counts output tokens from 0. Candidates are best first.
    """

    index: int
    baseline_text: str
    dflash_text: str
    baseline: tuple[ServedCandidate, ...]
    dflash: tuple[ServedCandidate, ...]

    @property
    def margin(self) -> float:
        """The larger of the two gaps between the best two logprobs, which is a gap of logits."""
        return max(_gap(self.baseline), _gap(self.dflash))

    @property
    def verdict(self) -> Verdict:
        """A tie when the same two tokens lead on both servers within rounding; else a fault."""
        leaders = {c.text for c in self.baseline[:2]}
        same = leaders == {c.text for c in self.dflash[:2]}
        return "tie" if same and self.margin <= TIE_MARGIN else "fault"


def find_parting(baseline: dict[str, Any], dflash: dict[str, Any]) -> ServedDivergence | None:
    """Compare two unstreamed answers token by token; ``None`` where no difference is known."""
    for index, (a, b) in enumerate(zip(_tokens(baseline), _tokens(dflash), strict=False)):
        if a["token"] != b["token"]:
            return ServedDivergence(index, a["token"], b["token"], _candidates(a), _candidates(b))
    return None


def with_logprobs(payload: dict[str, Any]) -> dict[str, Any]:
    """The same request unstreamed, with the best tokens of every place."""
    kept = {k: v for k, v in payload.items() if k not in ("stream_options", "timings_per_token")}
    return kept | {"stream": False, "logprobs": True, "top_logprobs": NUM_CANDIDATES}


def _tokens(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The answer's tokens, as far as they are well formed."""
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    logprobs = choice.get("logprobs") if isinstance(choice, dict) else None
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    found = []
    for item in content if isinstance(content, list) else []:
        if not isinstance(item, dict) or not isinstance(item.get("token"), str):
            break
        found.append(item)
    return found


def _candidates(token: dict[str, Any]) -> tuple[ServedCandidate, ...]:
    listed = token.get("top_logprobs")
    found = [
        ServedCandidate(item["token"], float(item["logprob"]))
        for item in (listed if isinstance(listed, list) else [])
        if isinstance(item, dict)
        and isinstance(item.get("token"), str)
        and isinstance(item.get("logprob"), float | int)
        and math.isfinite(item["logprob"])
    ]
    return tuple(sorted(found, key=lambda c: -c.logprob)[:NUM_CANDIDATES])


def _gap(candidates: tuple[ServedCandidate, ...]) -> float:
    return candidates[0].logprob - candidates[1].logprob if len(candidates) > 1 else math.inf
