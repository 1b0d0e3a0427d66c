"""A sweep from the page: kinds x block sizes on one pair, measured by the benchmark's protocol.

Knows the benchmark, the pool of engines and a visitor's stop. Knows no Gradio.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from app import view
from app.hosted import HOME, Limits
from app.runs import Run as Race
from app.session import EnginePool, PairChoice, Step
from dflash import measurements
from dflash.benchmark import calibrate as timing
from dflash.benchmark.prompts import Prompt, load_prompts
from dflash.benchmark.provenance import collect
from dflash.benchmark.runner import Arm, Plan, Run, Skipped, measure, warm_up
from dflash.benchmark.summary import BlockSummary, pair_up, summarise
from dflash.engines import Engine
from dflash.errors import DFlashError
from dflash.measurements import Calibration
from dflash.schema import SamplingParams

_CONTEXTS = (64, 512)
_CALIBRATION_S = 45.0
MAX_RUNS = 600


@dataclass(frozen=True, slots=True)
class SweepForm:
    """What to measure, in input order."""

    pair_id: str
    prompt_sets: list[str]
    block_sizes: list[int]
    prompts_per_set: float
    repeats: float
    max_new_tokens: float

    def prompts(self) -> tuple[Prompt, ...]:
        """The chosen prompts. Raises ``DFlashError`` when nothing is chosen."""
        if not self.prompt_sets:
            raise DFlashError("no kind of prompt is chosen.", "Tick at least one.")
        count = int(self.prompts_per_set)
        return tuple(p for name in self.prompt_sets for p in load_prompts(name, limit=count))

    def plan(self, engine: Engine, limits: Limits = HOME) -> Plan:
        """The runs to make. Raises ``DFlashError`` for blocks the draft cannot draw."""
        limits.check_prompt_sets(self.prompt_sets)
        limits.check_new_tokens(int(self.max_new_tokens))
        max_runs = limits.max_sweep_runs or MAX_RUNS
        trained = engine.trained_block_size or 1
        blocks = sorted({int(b) for b in self.block_sizes if int(b) > 1})
        if not blocks or blocks[-1] > trained:
            raise DFlashError(
                f"block sizes must be 2 to {trained} for this draft, got {blocks or 'none'}."
            )
        arms = [Arm("baseline_loop", 1, engine)]
        arms += [Arm("dflash", block, engine) for block in blocks]
        sampling = SamplingParams(max_new_tokens=int(self.max_new_tokens))
        plan = Plan(tuple(arms), self.prompts(), sampling, int(self.repeats))
        if plan.num_runs > max_runs:
            raise DFlashError(
                f"that is {plan.num_runs} runs; the page makes at most {max_runs}.",
                "Choose fewer prompts or block sizes, or use python -m dflash.benchmark.",
            )
        return plan


def foretold(form: SweepForm, last: Race | None) -> str:
    """How many runs a sweep makes, and at most how long they take by the pair's last race here.

    ``last`` is the race this window shows. Raises ``DFlashError`` when nothing is chosen.
    """
    num_prompts, repeats = len(form.prompts()), int(form.repeats)
    num_blocks = len({int(b) for b in form.block_sizes if int(b) > 1})
    num_runs = num_prompts * (1 + num_blocks) * repeats
    text = (
        f"{view.count(num_prompts, 'prompt')} × {view.count(1 + num_blocks, 'arm')} (block 1 "
        f"included) × {view.count(repeats, 'repeat')} = {view.count(num_runs, 'run')}"
    )
    spent_s = _seconds_per_answer(form, last, num_blocks)
    if spent_s is None:
        return f"{text}. How long they take is known once this pair has raced in the Playground."
    total_s = num_prompts * repeats * spent_s
    return f"{text}: about {view.duration(total_s)} at most, by this pair's last race here."


def _seconds_per_answer(form: SweepForm, last: Race | None, num_blocks: int) -> float | None:
    """One prompt answered by every arm at full length, as fast as in the race."""
    if last is None or last.source != "measured here" or last.pair_id != form.pair_id:
        return None
    lanes = (last.comparison.baseline, last.comparison.dflash)
    total_s = 0.0
    for stats, times in zip(lanes, (1, num_blocks), strict=True):
        if stats.tpot_s is None or stats.ttft_s is None:
            return None
        total_s += times * (stats.ttft_s + stats.tpot_s * (int(form.max_new_tokens) - 1))
    return total_s


@dataclass(frozen=True, slots=True)
class SweepState:
    """Where a sweep stands: a sentence, and the summaries so far."""

    tone: view.Tone
    text: str
    done: float | None
    blocks: tuple[BlockSummary, ...] = ()
    runs: tuple[Run, ...] = ()
    finished: bool = False


def sweep(
    pool: EnginePool,
    form: SweepForm,
    should_stop: Callable[[], bool],
    limits: Limits = HOME,
) -> Iterator[SweepState]:
    """Measure, telling how far it is and what it has found; a stop keeps what there is.

    The device is held throughout: nothing else may run while times are taken.
    """
    limits.check_measuring(form.pair_id)
    with pool.device:
        yield from _opened(pool, form.pair_id, should_stop)
        engine = pool.peek(PairChoice(form.pair_id))
        assert engine is not None
        plan = form.plan(engine, limits)
        yield SweepState("busy", "warming up every block size", 0.0)
        warm_up(plan)
        runs: list[Run] = []
        start = time.monotonic()
        for step in measure(plan):
            if isinstance(step, Skipped):
                continue
            runs.append(step)
            if len(runs) % len(plan.arms) == 0:  # every arm has answered this prompt
                if should_stop():
                    break
                yield _under_way(plan, runs, time.monotonic() - start)
    yield _ended(plan, runs)


def _opened(
    pool: EnginePool, pair_id: str, should_stop: Callable[[], bool]
) -> Iterator[SweepState]:
    for step in pool.opening(PairChoice(pair_id), should_stop):
        assert isinstance(step, Step)
        yield SweepState("busy", step.text, step.done)


def _under_way(plan: Plan, runs: list[Run], spent_s: float) -> SweepState:
    share = len(runs) / plan.num_runs
    left_s = spent_s / share - spent_s
    text = (
        f"{len(runs)} of {plan.num_runs} runs, now {runs[-1].category}; "
        f"about {view.duration(left_s)} left"
    )
    return SweepState("busy", text, share, _summaries(runs), tuple(runs))


def _ended(plan: Plan, runs: list[Run]) -> SweepState:
    whole = len(runs) == plan.num_runs
    text = f"{len(runs)} runs measured" if whole else f"stopped after {len(runs)} runs"
    tone: view.Tone = "good" if whole else "warn"
    return SweepState(tone, text, None, _summaries(runs), tuple(runs), finished=True)


def _summaries(runs: list[Run]) -> tuple[BlockSummary, ...]:
    pairings = pair_up(runs)
    return tuple(
        summarise(pairings[b], [], block_size=b, checked=False, seed=0) for b in sorted(pairings)
    )


def calibrate(
    pool: EnginePool, pair_id: str, should_stop: Callable[[], bool], limits: Limits = HOME
) -> Iterator[SweepState]:
    """Time the parts of a cycle on this machine and keep them where the advisor looks."""
    limits.check_measuring(pair_id)
    with pool.device:
        yield from _opened(pool, pair_id, should_stop)
        engine = pool.peek(PairChoice(pair_id))
        assert engine is not None
        yield SweepState("busy", "timing steps, drafts and checks", 0.0)
        costs = []
        texts = [p.turns[0] for p in load_prompts("chat", limit=4)]
        widths = timing.default_widths(engine.trained_block_size or 1)
        for cost in timing.calibrate(
            engine, texts, block_sizes=[b for b in widths if b > 1], context_tokens=_CONTEXTS,
            budget_s=_CALIBRATION_S, now=time.monotonic, sampling=SamplingParams(),
        ):  # fmt: skip
            costs.append(cost)
            yield SweepState("busy", "timing", len(costs) / len(_CONTEXTS))
            if should_stop():
                break
        provenance = collect(engine, pair_id=pair_id, num_threads=None)
    if costs:
        measurements.save(Calibration(provenance=provenance, by_context=tuple(costs)))
        step_ms = costs[0].ar_step_s * 1e3
        yield SweepState(
            "good",
            f"calibrated: one step takes {step_ms:.1f} ms here; the advisor uses it from now on",
            None, finished=True,
        )  # fmt: skip


def results_table(blocks: tuple[BlockSummary, ...]) -> str:
    """Kinds x block sizes, the losing cells first; every ratio with its interval and n."""
    cells = [
        (group.decode_speedup.median, kind, block.block_size, group)
        for block in blocks
        for kind, group in block.by_category.items()
        if group.decode_speedup is not None
    ]
    rows = []
    for speedup, kind, block_size, group in sorted(cells, key=lambda c: c[0]):
        interval = group.decode_speedup
        assert interval is not None
        spread = (
            f"{interval.low:.2f} to {interval.high:.2f}"
            if interval.low is not None and interval.high is not None
            else "one prompt only"
        )
        tau = f"{group.tau_pooled:.2f}" if group.tau_pooled else "unknown"
        word = "slower" if speedup < 1 else "faster"
        rows.append((word, kind, block_size, view.factor(speedup), spread, interval.n, tau))
    if not rows:
        return ""
    heads = ("", "kind", "block", "decode speedup", "interval", "n", "τ")
    return view.table(heads, rows, "Measured speedup by kind and block size, slowest first")
