"""``python -m dflash.benchmark --backend vllm --base-url ...``: both servers under rising load.

Ties flags, engine, waves and report together. Returns text for people and values for JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from dflash.benchmark.load import LoadPlan, Wave, measure_load
from dflash.benchmark.load_summary import (
    ArmLoad,
    LevelLoad,
    Percentiles,
    crossover,
    summarise_load,
)
from dflash.benchmark.options import sampling_of
from dflash.benchmark.prompts import Prompt
from dflash.benchmark.provenance import collect, with_conditions
from dflash.benchmark.report import Result, json_text
from dflash.engines import open_engine
from dflash.engines.remote import RemoteEngine
from dflash.errors import EngineError, PromptError


def run_load(args: argparse.Namespace, prompts: Sequence[Prompt], command: str) -> Result:
    """Measure both servers at every level. Raises ``DFlashError`` children."""
    _check(args, prompts)
    engine = _open(args)
    plan = LoadPlan(
        engine=engine,
        prompts=tuple(prompts),
        sampling=sampling_of(args),
        levels=tuple(sorted(set(args.concurrency))),
        repeats=args.repeats,
        counters=engine.read_counters,
    )
    waves: list[Wave] = []
    interrupted = False
    try:
        with tqdm(total=plan.num_waves, unit="wave") as bar:
            for wave in measure_load(plan):
                waves.append(wave)
                bar.set_description(f"{wave.arm}, {wave.level} at once")
                bar.update()
    except KeyboardInterrupt:
        interrupted = True
    levels = summarise_load(waves, seed=args.seed)
    if not levels:
        raise PromptError("nothing was measured.", "Let at least one level finish.")
    about = collect(engine, pair_id=None, num_threads=None)
    data = to_json(levels, waves, with_conditions(about, command))
    files = {args.output: json_text(data)} if args.output else {}
    return Result(table(levels, engine), data["summary"], interrupted, files)


def _check(args: argparse.Namespace, prompts: Sequence[Prompt]) -> None:
    if not args.base_url or not args.baseline_url:
        raise PromptError(
            "two servers are needed, one with DFlash and one without.",
            "Give --base-url and --baseline-url.",
        )
    if args.block_size:
        raise PromptError(
            "a server's block size is set when it is started.", "Leave out --block-size."
        )
    if args.calibrate or args.tune or args.csv:
        raise PromptError(
            "--calibrate, --tune and --csv are for models loaded here.", "Leave them out."
        )
    if not prompts:
        raise PromptError("no prompts were named.", "Give --dataset NAME or FILE.jsonl.")


def _open(args: argparse.Namespace) -> RemoteEngine:
    key = os.environ.get(args.api_key_env) if args.api_key_env else None
    engine = open_engine(
        args.backend,
        base_url=args.base_url,
        baseline_url=args.baseline_url,
        model=args.model,
        api_key=key,
        one_at_a_time=False,
        ask_again=False,  # a second answer would be load of our own making
    )
    assert isinstance(engine, RemoteEngine)
    bad = [state.sentence for state in engine.server_states() if state.severity == "bad"]
    if bad:
        raise EngineError(" ".join(bad))
    return engine


def to_json(
    levels: Sequence[LevelLoad], waves: Sequence[Wave], provenance: dict[str, Any]
) -> dict[str, Any]:
    """The documented output: times in seconds, rates per second."""
    found = crossover(levels)
    return {
        "summary": {
            "levels": [_level_json(one) for one in levels],
            "crossover": {**dataclasses.asdict(found), "sentence": found.sentence},
        },
        "runs": [
            {
                "level": wave.level,
                "arm": wave.arm,
                "repeat": wave.repeat,
                "wall_s": wave.wall_s,
                "requests": [_answer_json(a) for a in wave.answers],
            }
            for wave in waves
        ],
        "provenance": provenance,
    }


def _level_json(one: LevelLoad) -> dict[str, Any]:
    data = dataclasses.asdict(one)
    for name, arm in (("baseline", one.baseline), ("dflash", one.dflash)):
        data[name]["tau"] = arm.spec.tau if arm.spec else None
    return data


def _answer_json(answer: Any) -> dict[str, Any]:
    stats = answer.stats
    return {
        "index": answer.index,
        "failure": answer.failure,
        "num_output_tokens": stats.num_output_tokens if stats else None,
        "ttft_s": stats.ttft_s if stats else None,
        "tpot_s": stats.tpot_s if stats else None,
        "tau": stats.spec.tau if stats and stats.spec else None,
    }


def table(levels: Sequence[LevelLoad], engine: RemoteEngine) -> str:
    """The load for people: one line per level and arm."""
    head = (
        f"{'clients':>7}  {'arm':>8}  {'tok/s':>8}  {'ratio':>6}  {'tau':>5}"
        f"  {'TTFT p50/p90/p99 ms':>21}  {'TPOT p50/p90/p99 ms':>21}  {'failed':>9}"
    )
    lines = [head]
    for one in levels:
        ratio = f"{one.throughput_ratio:.2f}x" if one.throughput_ratio is not None else "-"
        lines.append(_line(str(one.level), "AR", one.baseline, ""))
        lines.append(_line("", "DFlash", one.dflash, ratio))
    lines.append(crossover(levels).sentence)
    first = levels[0]
    speedup = first.tpot_speedup
    if speedup is not None:
        interval = "" if speedup.low is None else f" [{speedup.low:.2f}, {speedup.high:.2f}]"
        lines.append(
            f"TPOT speedup at {first.level}: {speedup.median:.2f}x{interval}, median of "
            f"{speedup.n} paired requests; same text in {first.num_equal} of {first.num_checked}."
        )
    if all(one.dflash.spec is None for one in levels):
        lines.append(engine.unreported)
    elif any(one.dflash.spec and one.dflash.spec.source == "counters" for one in levels):
        lines.append("tau is from the server's counters, right if it served nobody else.")
    failures = [arm.first_failure for one in levels for arm in (one.baseline, one.dflash)]
    return "\n".join(lines + sorted({f"A request failed: {f}" for f in failures if f}))


def _line(level: str, arm: str, load: ArmLoad, ratio: str) -> str:
    tau = load.spec.tau if load.spec else None
    rate = load.output_tokens_per_s
    return (
        f"{level:>7}  {arm:>8}  {'-' if rate is None else f'{rate:.1f}':>8}  {ratio:>6}"
        f"  {'-' if tau is None else f'{tau:.2f}':>5}  {_ms(load.ttft_s):>21}"
        f"  {_ms(load.tpot_s):>21}  {load.num_failed:>3} of {load.num_requests:>2}"
    )


def _ms(values: Percentiles | None) -> str:
    if values is None:
        return "-"
    return " / ".join(f"{1000 * v:.0f}" for v in (values.p50, values.p90, values.p99))
