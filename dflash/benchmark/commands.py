"""What ``python -m dflash.benchmark`` does with a parsed command line; here: measuring.

Ties prompts, engine, protocol and report together and shows progress on stderr. Returns text for
people and values for JSON; prints nothing itself.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from dflash import measurements
from dflash.benchmark import report
from dflash.benchmark.calibration import run_calibration
from dflash.benchmark.foretold import foretold
from dflash.benchmark.load_command import run_load
from dflash.benchmark.lossless import find_differences
from dflash.benchmark.options import BACKENDS, SERVERS, sampling_of
from dflash.benchmark.prompts import Prompt, load_prompts
from dflash.benchmark.provenance import collect, with_conditions
from dflash.benchmark.report import Result
from dflash.benchmark.runner import Plan, Run, Skipped, measure, warm_up
from dflash.benchmark.subject import Subject, open_subject
from dflash.benchmark.summary import best_block, pair_up, summarise
from dflash.benchmark.tuning import run_tuning
from dflash.close_look import CloseLook
from dflash.errors import PromptError
from dflash.measurements import Calibration
from dflash.whole_file import check_writable


def run(args: argparse.Namespace, command: str) -> Result:
    """Do what the parsed command line asks. Raises ``DFlashError`` children."""
    for path in filter(None, (args.output, args.csv)):
        check_writable(path)
    if args.dataset is None and not args.calibrate:
        raise PromptError("no prompts were named.", "Give --dataset NAME or --dataset FILE.jsonl.")
    prompts = load_prompts(args.dataset, limit=args.limit) if args.dataset else []
    if args.backend in SERVERS:
        if args.sliding_window_size:
            raise PromptError(
                f"--sliding-window-size {args.sliding_window_size[0]} cannot be told to a server.",
                "Start the server with it: python -m advisor export writes how.",
            )
        return run_load(args, prompts, command)
    if args.model is None:
        raise PromptError("no model was named.", "Give --model with a pair id, such as demo.")
    subject = open_subject(
        BACKENDS[args.backend],
        args.model,
        args.draft_model,
        device=args.device,
        threads=args.threads,
    )
    _check_blocks(args.block_size, subject.trained_block_size)
    if args.sliding_window_size and not args.tune:
        subject = subject.with_window(_one_window(args))
    provenance = collect(subject.engine, pair_id=subject.pair_id, num_threads=subject.num_threads)
    if args.calibrate:
        return run_calibration(args, subject, prompts, provenance)
    if args.tune:
        return run_tuning(args, subject, prompts, provenance)
    return run_benchmark(args, subject, prompts, with_conditions(provenance, command))


def run_benchmark(
    args: argparse.Namespace,
    subject: Subject,
    prompts: Sequence[Prompt],
    provenance: dict[str, Any],
) -> Result:
    """Measure every block size on every prompt. Ctrl-C reports what was measured until then, and
    is raised again when that is nothing."""
    blocks = args.block_size or [subject.trained_block_size]
    arms = subject.arms(blocks, loop_only=args.loop_baseline_only)
    plan = Plan(arms, tuple(prompts), sampling_of(args), args.repeats)
    runs: list[Run] = []
    skipped: list[Skipped] = []
    interrupted = False
    try:
        with tqdm(total=plan.num_runs, unit="run", desc="warm-up") as bar:
            warm_up(plan)
            bar.set_description("measuring")
            for step in measure(plan):
                (runs if isinstance(step, Run) else skipped).append(step)  # type: ignore[arg-type]
                bar.update()
    except KeyboardInterrupt:
        interrupted = True
        del runs[len(runs) - len(runs) % len(arms) :]  # arms whose others were not taken in
        if not runs:
            raise
    about = {**provenance, **_settings(args, plan)}
    try:
        found = _report(subject.look, plan, runs, skipped, about)
    except KeyboardInterrupt:
        interrupted = True  # looking at differences again is all that takes long
        found = _report(None, plan, runs, skipped, about)
    data = report.to_json(found)
    files = {args.csv: report.csv_text(runs)} if args.csv else {}
    if args.output:
        files[args.output] = report.json_text(data)
    return Result(report.table(found), data["summary"], interrupted, files)


def _report(
    look: CloseLook | None,
    plan: Plan,
    runs: Sequence[Run],
    skipped: Sequence[Skipped],
    provenance: dict[str, Any],
) -> report.Report:
    greedy = plan.sampling.temperature == 0
    left_out = {s.prompt_index for s in skipped}
    kept = tuple(r for r in runs if r.prompt_index not in left_out)
    differences = find_differences(kept, look=look) if greedy else []
    pairings = pair_up(kept)
    if not pairings:
        raise PromptError("nothing was measured.", "Let at least one prompt finish.")
    blocks = tuple(
        summarise(pairings[b], differences, block_size=b, checked=greedy, seed=plan.sampling.seed)
        for b in pairings
    )
    calibration = _calibration(provenance)
    if calibration is not None:
        about = calibration.provenance
        provenance = {
            **provenance,
            "calibration": {
                "date": about.date,
                "git_hash": about.git_hash,
                "num_prompts": calibration.num_prompts,
            },
        }
    return report.Report(
        blocks=blocks,
        headline=best_block(blocks),
        runs=kept,
        pairings=pairings,
        differences=tuple(differences),
        skipped=tuple(skipped),
        provenance=provenance,
        foretold=foretold(blocks, pairings, calibration) if calibration else (),
    )


def _calibration(provenance: dict[str, Any]) -> Calibration | None:
    """The newest calibration of this pair on this machine, if it was taken as this run is."""
    found = measurements.latest_for(
        Calibration,
        provenance["machine_id"],
        target_id=provenance["target_id"],
        draft_id=provenance["draft_id"],
    )
    same = ("backend", "device", "dtype", "num_threads")
    if provenance["sliding_window_size"]:
        return None  # it was taken with the draft as trained
    if found is None or any(getattr(found.provenance, k) != provenance[k] for k in same):
        return None
    return found


def _check_blocks(block_sizes: Sequence[int] | None, trained: int) -> None:
    wrong = [b for b in block_sizes or () if not 1 < b <= trained]
    if wrong:
        raise PromptError(
            f"block size {wrong[0]} cannot be measured with this draft.",
            f"Use 2 to {trained}; {trained} is what the draft was trained with, and 1 is the "
            "baseline that is always measured.",
        )


def _one_window(args: argparse.Namespace) -> int:
    sizes: list[int] = args.sliding_window_size
    if args.calibrate:
        raise PromptError(
            f"--calibrate times the draft as it was trained, not with a window of {sizes[0]}.",
            "Leave out --sliding-window-size, or use --tune.",
        )
    if len(sizes) > 1:
        raise PromptError(
            f"{len(sizes)} values of --sliding-window-size were given.",
            "Give one, or let --tune choose among them.",
        )
    return sizes[0]


def _settings(args: argparse.Namespace, plan: Plan) -> dict[str, Any]:
    return {
        "dataset": args.dataset,
        "sampling": dataclasses.asdict(plan.sampling),
        "repeats": plan.repeats,
        "sliding_window_size": args.sliding_window_size and args.sliding_window_size[0],
        "arms": [{"name": a.name, "block_size": a.block_size} for a in plan.arms],
    }
