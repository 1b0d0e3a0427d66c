"""``--tune``: sweep block sizes, then windows, on one half of the prompts, judge on the other, save
the result."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tqdm import tqdm

from dflash import measurements
from dflash.benchmark import calibrate as timing
from dflash.benchmark import tune
from dflash.benchmark.calibration import acceptance_of
from dflash.benchmark.options import sampling_of
from dflash.benchmark.prompts import Prompt, mixed
from dflash.benchmark.report import Result, json_text
from dflash.benchmark.runner import Plan, Run, measure, warm_up
from dflash.benchmark.subject import Subject
from dflash.benchmark.summary import Pairing, pair_up, summarise
from dflash.errors import PromptError
from dflash.measurements import Interval, Provenance, TunedBlock, TuneResult
from dflash.schema import Message

_WINDOWS = (512, 1024, 2048, 4096)


def run_tuning(
    args: argparse.Namespace, subject: Subject, prompts: Sequence[Prompt], provenance: Provenance
) -> Result:
    """Sweep, judge, save, and set the prediction beside what was measured."""
    if len(prompts) < 4:
        raise PromptError(f"{len(prompts)} prompts are too few to tune on one half.", "Give 4.")
    # Time may run out anywhere, so both halves have their kinds mixed.
    halves = {
        "tuning": mixed(prompts[::2], seed=args.seed),
        "judging": mixed(prompts[1::2], seed=args.seed),
    }
    prompt_tokens = _median_length(subject, prompts)
    widths = args.block_size or timing.default_widths(subject.trained_block_size)
    costs = next(
        timing.calibrate(
            subject.engine,
            [p.turns[0] for p in halves["tuning"]],
            block_sizes=[b for b in widths if b > 1],
            context_tokens=[prompt_tokens],
            budget_s=args.time_budget / 5,
            now=time.monotonic,
            sampling=sampling_of(args),
        )
    )
    found = acceptance_of(args, subject, halves["tuning"], widths, args.time_budget / 5)
    windows = _windows(args, subject, prompt_tokens)
    tuned = tune.tune(
        tune.predict(costs, found.tau_by_block),
        trained_block_size=subject.trained_block_size,
        measure=_PairedRuns(args, subject, halves, args.time_budget * 0.6 / (2 + len(windows))),
        windows=windows,
    )
    result = _tune_result(tuned, provenance, found.positions, prompt_tokens)
    path = measurements.save(result)
    files = {args.output: json_text(result.model_dump(mode="json"))} if args.output else {}
    return Result(
        f"{_tune_table(tuned)}\n\nSaved as {path}.", _tune_json(tuned, result), files=files
    )


class _PairedRuns:
    """``tune.Measure`` on a real engine: whole ABBA rounds until the time is used up."""

    def __init__(
        self,
        args: argparse.Namespace,
        subject: Subject,
        prompts: Mapping[str, Sequence[Prompt]],
        budget_s: float,
    ) -> None:
        self._args, self._subject, self._prompts = args, subject, prompts
        self._budget_s = budget_s

    def __call__(
        self, which: str, block_sizes: Sequence[int], window: int | None
    ) -> dict[int, tune.Measured]:
        subject = self._subject if window is None else self._subject.with_window(window)
        arms = subject.arms(
            [b for b in block_sizes if b > 1], loop_only=self._args.loop_baseline_only
        )
        plan = Plan(arms, tuple(self._prompts[which]), sampling_of(self._args), self._args.repeats)
        warm_up(plan)
        runs = self._runs(plan, which)
        found = {}
        for block_size, pairings in pair_up(runs).items():
            measured = self._measured(block_size, pairings, window)
            if measured is not None:
                found[block_size] = measured
        return found

    def _runs(self, plan: Plan, which: str) -> list[Run]:
        """Measure until the time is up, then finish the prompt that is being answered."""
        end_s = time.monotonic() + self._budget_s
        runs: list[Run] = []
        with tqdm(total=plan.num_runs, unit="run", desc=which) as bar:
            for step in measure(plan):
                bar.update()
                if isinstance(step, Run):
                    runs.append(step)
                whole = len(runs) % len(plan.arms) == 0
                if whole and len(runs) >= 2 * len(plan.arms) and time.monotonic() > end_s:
                    break
        return runs

    def _measured(
        self, block_size: int, pairings: list[Pairing], window: int | None
    ) -> tune.Measured | None:
        summary = summarise(
            pairings, [], block_size=block_size, checked=False, seed=self._args.seed
        )
        speedup = summary.overall.decode_speedup
        if speedup is None:
            return None
        return tune.Measured(block_size, speedup, summary.overall.tau_pooled, window)


def _windows(args: argparse.Namespace, subject: Subject, prompt_tokens: int) -> tuple[int, ...]:
    """The windows to try: those asked for, else those that would drop some of the prompts."""
    if args.sliding_window_size:
        return tuple(sorted(set(args.sliding_window_size)))
    if not subject.has_free_window:
        return ()
    return tuple(w for w in _WINDOWS if w < prompt_tokens)


def _median_length(subject: Subject, prompts: Sequence[Prompt]) -> int:
    lengths = sorted(len(subject.engine.encode((Message("user", p.turns[0]),))) for p in prompts)
    return lengths[len(lengths) // 2]


def _tune_result(
    tuned: tune.Tuned,
    provenance: Provenance,
    positions: tuple[float, ...],
    prompt_tokens: int,
) -> TuneResult:
    return TuneResult(
        provenance=provenance,
        tuned=tuple(_tuned_block(m) for m in tuned.tuned),
        judged=_tuned_block(tuned.winner),
        tau_per_position=positions,
        prompt_tokens=prompt_tokens,
        num_tuning_prompts=max(m.decode_speedup.n for m in tuned.tuned),
        num_judging_prompts=tuned.winner.decode_speedup.n,
        predicted_speedup=tuned.predicted(
            tuned.winner.block_size, tuned.winner.sliding_window_size
        ),
    )


def _tuned_block(measured: tune.Measured) -> TunedBlock:
    speedup = measured.decode_speedup
    low, high = speedup.low, speedup.high
    return TunedBlock(
        block_size=measured.block_size,
        sliding_window_size=measured.sliding_window_size,
        decode_speedup=Interval(
            median=speedup.median,
            low=speedup.median if low is None else low,
            high=speedup.median if high is None else high,
            n=speedup.n,
        ),
        tau=measured.tau,
    )


def _tune_table(tuned: tune.Tuned) -> str:
    rows = [
        f"{'block':>7}  {'window':>6}  {'predicted':>9}  {'measured':>9}  {'error':>7}  prompts"
    ]
    for which, results in (("tuning", tuned.tuned), ("judging", tuned.judged)):
        for m in results:
            predicted = tuned.predicted(m.block_size, m.sliding_window_size)
            median = m.decode_speedup.median
            told = "-" if predicted is None else f"{predicted:.2f}x"
            error = "-" if predicted is None else f"{100 * (predicted / median - 1):+.0f} %"
            rows.append(
                f"{m.block_size:>7}  {m.sliding_window_size or '-':>6}  {told:>9}  "
                f"{median:>8.2f}x  {error:>7}  "
                f"{which}, n = {m.decode_speedup.n}"
            )
    winner = tuned.winner
    window = winner.sliding_window_size
    bounded = f" and sliding_window_size {window}" if window else ""
    use = f"Use block {winner.block_size}{bounded}: {winner.decode_speedup.median:.2f}x."
    return "\n".join([*rows, use])


def _tune_json(tuned: tune.Tuned, result: TuneResult) -> dict[str, Any]:
    return {
        "block_size": tuned.winner.block_size,
        "sliding_window_size": tuned.winner.sliding_window_size,
        "decode_speedup": dataclasses.asdict(tuned.winner.decode_speedup),
        "predicted_speedup": result.predicted_speedup,
        "tuned": [dataclasses.asdict(m) for m in tuned.tuned],
        "judged": [dataclasses.asdict(m) for m in tuned.judged],
        "predictions": [dataclasses.asdict(p) for p in tuned.predictions],
    }
