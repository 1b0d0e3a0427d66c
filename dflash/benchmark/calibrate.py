"""Time the parts of a cycle on this machine: an AR step, a draft pass, a verification.

Knows the engine protocol only: every figure is read off the cycles of real runs, so that it holds
whatever a forward costs beyond its arithmetic. Seconds; medians; block sizes count the anchor.
"""

from __future__ import annotations

import contextlib
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from dflash.engines import Engine
from dflash.errors import EngineError, PromptError
from dflash.measurements import StepCosts
from dflash.metrics import acceptance_by_position, pooled_spec, spec_stats
from dflash.schema import Cycle, Message, Request, SamplingParams, SpecStats

_CYCLES_PER_RUN = 12
_WIDTHS = (2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 32)

Clock = Callable[[], float]


@dataclass
class _Samples:
    """Cycle times gathered so far at one context length, by block size."""

    draft_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    verify_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, cycles: Sequence[Cycle], block_size: int) -> None:
        # The first cycle also reads the prompt into the draft; a narrow one is another width.
        for cycle in cycles[1:]:
            if len(cycle.draft_ids) == block_size - 1:
                self.verify_s[block_size].append(cycle.verify_s)
                if block_size > 1:
                    self.draft_s[block_size].append(cycle.draft_s)


def default_widths(trained_block_size: int) -> tuple[int, ...]:
    """The block sizes worth timing for a draft: dense where small, always the trained one."""
    return tuple(sorted({b for b in _WIDTHS if b < trained_block_size} | {trained_block_size}))


def calibrate(
    engine: Engine,
    texts: Sequence[str],
    *,
    block_sizes: Sequence[int],
    context_tokens: Sequence[int],
    budget_s: float,
    now: Clock,
    sampling: SamplingParams,
) -> Iterator[StepCosts]:
    """Yield the costs at each context length, sharing the time between them.

    Rounds over all block sizes, so that drift touches them alike, until the time is used up; at
    least one. Stops before a length that the engine or the time has no room for, but always times
    the first one. Raises ``PromptError`` when a length yields no cycles.
    """
    share_s = budget_s / len(context_tokens)
    for tokens in context_tokens:
        requests = [
            Request((Message("user", fit_text(engine, text, tokens)),), sampling) for text in texts
        ]
        is_first = tokens == context_tokens[0]
        longest = max(requests, key=lambda request: len(engine.encode(request.messages)))
        started_s = now()
        try:
            has_room = bool(run_cycles(engine, longest, limit=_CYCLES_PER_RUN))
        except EngineError:
            if is_first:
                raise
            return
        if not (is_first or has_room):
            return
        widths = affordable(block_sizes, run_s=now() - started_s, share_s=share_s)
        if is_first:
            widths = tuple(block_sizes)
        if not widths:
            return
        yield _costs_at(engine, requests, widths, tokens, started_s + share_s, now)


def affordable(block_sizes: Sequence[int], *, run_s: float, share_s: float) -> tuple[int, ...]:
    """Thin the block sizes out until one run of each fits the time; none when two do not fit."""
    num_runs = int(share_s / run_s) - 1 if run_s > 0 else len(block_sizes)
    if num_runs >= len(block_sizes):
        return tuple(block_sizes)
    if num_runs < 2:
        return ()
    last = len(block_sizes) - 1
    return tuple(sorted({block_sizes[round(i * last / (num_runs - 1))] for i in range(num_runs)}))


def _costs_at(
    engine: Engine,
    requests: Sequence[Request],
    block_sizes: Sequence[int],
    context_tokens: int,
    end_s: float,
    now: Clock,
) -> StepCosts:
    samples = _Samples()
    num_rounds = 0
    while num_rounds == 0 or now() < end_s:
        request = requests[num_rounds % len(requests)]
        for block_size in (1, *block_sizes):
            asked = replace(request, block_size=block_size)
            samples.add(run_cycles(engine, asked, limit=_CYCLES_PER_RUN), block_size)
        num_rounds += 1
    if not samples.verify_s[1] or not any(samples.draft_s.values()):
        raise PromptError(
            f"answers at {context_tokens} prompt tokens were too short to time a cycle.",
            "Use prompts with longer answers, or a larger --max-new-tokens.",
        )
    return StepCosts(
        context_tokens=context_tokens,
        ar_step_s=statistics.median(samples.verify_s[1]),
        draft_s={b: statistics.median(v) for b, v in samples.draft_s.items()},
        verify_s={b: statistics.median(v) for b, v in samples.verify_s.items() if b > 1},
        num_repeats=num_rounds,
    )


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What whole answers gave. ``positions`` are the largest block's, pooled over cycles;
    ``tau_by_block`` is the median over prompts, counting only tokens that reached the answer: what
    its end cut off was accepted and cost time, and is no gain."""

    positions: tuple[float, ...]
    tau_by_block: dict[int, float]
    num_prompts: int


def acceptance(
    engine: Engine,
    requests: Sequence[Request],
    *,
    block_sizes: Sequence[int],
    end_s: float,
    now: Clock,
) -> Acceptance:
    """Measure acceptance at every block size on the same prompts; stops asking at ``end_s``.

    Each block size is run: a draft accepts less at a smaller block than the first positions of a
    larger one suggest. Raises ``PromptError`` when no answer had a single cycle.
    """
    specs: list[SpecStats | None] = []
    taus: dict[int, list[float]] = {block_size: [] for block_size in block_sizes}
    largest = max(block_sizes)
    for request in requests:
        for block_size in block_sizes:
            cycles = run_cycles(engine, replace(request, block_size=block_size), limit=None)
            if any(cycle.draft_ids for cycle in cycles):
                taus[block_size].append(sum(len(c.emitted_ids) for c in cycles) / len(cycles))
            if block_size == largest:
                specs.append(spec_stats(cycles, block_size))
        if now() >= end_s:
            break
    found = acceptance_by_position(pooled_spec(specs))
    if found is None:
        raise PromptError("no answer was long enough to draft for.", "Use other prompts.")
    return Acceptance(
        positions=found,
        tau_by_block={b: statistics.median(values) for b, values in taus.items() if values},
        num_prompts=len(taus[largest]),
    )


def run_cycles(engine: Engine, request: Request, *, limit: int | None) -> list[Cycle]:
    """Run a request for at most ``limit`` cycles (``None``: to its end) and return them."""
    cycles: list[Cycle] = []
    with contextlib.closing(engine.stream(request)) as events:  # type: ignore[type-var]
        for event in events:
            if isinstance(event, Cycle):
                cycles.append(event)
            if limit is not None and len(cycles) >= limit:
                break
    return cycles


def fit_text(engine: Engine, text: str, num_tokens: int) -> str:
    """Repeat or cut a text so that its rendered prompt has about ``num_tokens`` tokens."""
    for _ in range(4):
        length = len(engine.encode((Message("user", text),)))
        if abs(length - num_tokens) <= max(2, num_tokens // 50):
            break
        wanted = max(1, round(len(text) * num_tokens / length))
        text = (text + "\n") * (wanted // (len(text) + 1) + 1)
        text = text[:wanted].rstrip() or text[:1]
    return text
