"""A race of two servers of one kind, held to our own torch engine: what every such script does.

Sends every prompt to both through the page's own race, and checks that the text is ours, that the
acceptance of each request is ours, and that the server's counters add up to it. Knows no kind of
server.
"""

from __future__ import annotations

import json
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from app.race import BASELINE, DFLASH, LaneEvent, LaneFailed, lane_requests, race
from dflash.benchmark.prompts import Prompt
from dflash.engines.counters import Counters, spec_between
from dflash.engines.remote import RemoteEngine
from dflash.errors import EngineError
from dflash.metrics import compare, median_interval, pooled_spec, run_stats
from dflash.schema import Event, SpecStats, Trace
from dflash.train.corpus import KINDS, sample_prompts
from scripts.comparison import conclude, provenance, shown, without_rows
from scripts.ours import Ours, num_whole_blocks, parser
from scripts.peer import default_env_dir

_SEED = 23  # of the prompts that are made up when --dataset is left out


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt on our engine and on both servers. Times are seconds."""

    prompt_index: int
    category: str
    num_tokens: int
    text_equal: bool  # DFlash server, AR server and our engine
    ours: SpecStats | None
    theirs: SpecStats | None
    num_kept: int  # drafts of ours that are in the answer: none past its end
    comparable: bool  # every block was as wide on both sides
    ar_tpot_s: float | None
    dflash_tpot_s: float | None
    ar_ttft_s: float | None
    dflash_ttft_s: float | None
    decode_speedup: float | None
    end_to_end_speedup: float | None

    @property
    def same_acceptance(self) -> bool:
        """Cycles and accepted drafts are the same. In the block that ends an answer some servers
        count what the target agrees to after the end, as we do, and some stop there."""
        if self.ours is None or self.theirs is None:
            return self.ours is self.theirs
        return self.ours.num_cycles == self.theirs.num_cycles and (
            self.theirs.num_accepted_tokens in (self.ours.num_accepted_tokens, self.num_kept)
        )


def command_line(
    description: str,
    name: str,
    run: Callable[[Namespace], dict[str, Any]],
    argv: Sequence[str] | None,
) -> int:
    """Run such a script; the last line of standard output is JSON. Returns its exit code.

    ``name`` is the folder of the peer's environment.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped too
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore it
    root = parser(description, default_env_dir(name), dataset_required=False)
    root.add_argument("--serve", action="store_true", help="keep serving afterwards, until Ctrl-C")
    args = root.parse_args(argv)
    return conclude(lambda: run(args), without_rows)


def our_side(args: Namespace) -> Ours:
    """Our engine with as many threads as were asked for, and prompts made up if none are named."""
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.dataset is None:
        args.dataset = str(_made_up_prompts(args.env_dir / "prompts.jsonl", args.limit))
    return Ours(args, device="cpu")


def race_servers(ours: Ours, engine: RemoteEngine, args: Namespace) -> dict[str, Any]:
    """Race, print and write the report; with ``--serve`` keep the servers up until Ctrl-C."""
    wrong = [s.sentence for s in engine.server_states() if s.severity == "bad"]
    if wrong:
        raise EngineError(" ".join(wrong))
    report = {"server": engine.info.version, **measured(ours, engine)}
    shown(report | {"provenance": provenance(ours)}, table, args)
    if args.serve:
        _keep_serving(engine)
    return report


def _made_up_prompts(path: Path, num: int) -> Path:
    """Fresh prompts of every kind that the demo pair was trained for."""
    each = -(-num // len(KINDS))
    rows = [row for kind in KINDS for row in sample_prompts(kind, each, _SEED)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def measured(ours: Ours, engine: RemoteEngine) -> dict[str, Any]:
    """Race every prompt on the servers and answer it ourselves; the first one twice, to warm up."""
    raced(engine, ours, ours.prompts[0])
    before = engine.read_counters()
    rows = []
    for index, prompt in enumerate(tqdm(ours.prompts, unit="race")):
        baseline, dflash = raced(engine, ours, prompt)
        rows.append(_row(index, prompt, ours, baseline, dflash))
    return summarise(rows, ours.block_size, before, engine.read_counters())


def raced(engine: RemoteEngine, ours: Ours, prompt: Prompt) -> tuple[Trace, Trace]:
    """One race of the two servers, exactly as the page runs it."""
    request = ours.request(prompt, ours.block_size)
    events: dict[int, list[Event]] = {BASELINE: [], DFLASH: []}
    for step in race((engine, engine), request):
        if isinstance(step, LaneFailed):
            raise EngineError(step.message)
        assert isinstance(step, LaneEvent)
        events[step.lane].append(step.event)
    plain, drafting = lane_requests(request)
    return (
        Trace(plain, engine.info, tuple(events[BASELINE])),
        Trace(drafting, engine.info, tuple(events[DFLASH])),
    )


def _row(index: int, prompt: Prompt, ours: Ours, baseline: Trace, dflash: Trace) -> Row:
    answer = ours.answer(prompt, ours.block_size).trace
    mine, plain, drafting = run_stats(answer), run_stats(baseline), run_stats(dflash)
    tokenizer = ours.engine.tokenizer
    text = tokenizer.decode(list(answer.output_ids), skip_special_tokens=True)
    text = text.rstrip("\ufffd")  # a server keeps back a character that was cut in half
    served = compare(baseline, dflash)
    return Row(
        prompt_index=index,
        category=prompt.category,
        num_tokens=len(answer.output_ids),
        text_equal=served.outputs_match is True
        and _shown(dflash) == text
        and mine.num_output_tokens == drafting.num_output_tokens,
        ours=mine.spec,
        theirs=drafting.spec,
        num_kept=sum(min(c.num_accepted, len(c.emitted_ids) - 1) for c in answer.cycles),
        comparable=num_whole_blocks(answer) == len(answer.cycles),
        ar_tpot_s=plain.tpot_s,
        dflash_tpot_s=drafting.tpot_s,
        ar_ttft_s=plain.ttft_s,
        dflash_ttft_s=drafting.ttft_s,
        decode_speedup=served.speedup,
        end_to_end_speedup=served.end_to_end_speedup,
    )


def _shown(trace: Trace) -> str:
    return "".join(getattr(event, "text", "") for event in trace.events)


def summarise(
    rows: list[Row], block_size: int, before: Counters | None, after: Counters | None
) -> dict[str, Any]:
    """Per kind and over all; ``passed`` is text, acceptance and counters together."""
    compared = [r for r in rows if r.comparable]
    reported = pooled_spec(r.theirs for r in rows)
    counted = spec_between(before, after) if before and after else None
    num_equal = sum(r.text_equal for r in rows)
    num_same = sum(r.same_acceptance for r in compared)
    counters_agree = _counts(reported) == _counts(counted)
    kinds = sorted({r.category for r in rows})
    return {
        "block_size": block_size,
        "num_prompts": len(rows),
        "num_equal": num_equal,
        "num_same_acceptance": num_same,
        "num_comparable": len(compared),
        "counters_agree": counters_agree,
        "reported": _counts(reported),
        "counted": _counts(counted),
        "overall": _group(rows),
        "by_category": {kind: _group([r for r in rows if r.category == kind]) for kind in kinds},
        "passed": num_equal == len(rows) and num_same == len(compared) and counters_agree,
        "rows": [{f: _plain(getattr(r, f)) for f in Row.__slots__} for r in rows],
    }


def _counts(spec: SpecStats | None) -> tuple[int | None, int, int] | None:
    return (spec.num_cycles, spec.num_draft_tokens, spec.num_accepted_tokens) if spec else None


def _plain(value: Any) -> Any:
    return asdict(value) if isinstance(value, SpecStats) else value


def _group(rows: list[Row]) -> dict[str, Any]:
    """Medians over prompts; tau is pooled over cycles."""
    speedup = median_interval([r.decode_speedup for r in rows if r.decode_speedup], seed=0)
    ours, theirs = pooled_spec(r.ours for r in rows), pooled_spec(r.theirs for r in rows)
    return {
        "num_prompts": len(rows),
        "tau_ours": ours.tau if ours else None,
        "tau_reported": theirs.tau if theirs else None,
        "decode_speedup": asdict(speedup) if speedup else None,
        "end_to_end_speedup": _median([r.end_to_end_speedup for r in rows]),
        "ar_tokens_per_s": _per_s([r.ar_tpot_s for r in rows]),
        "dflash_tokens_per_s": _per_s([r.dflash_tpot_s for r in rows]),
        "ar_ttft_s": _median([r.ar_ttft_s for r in rows]),
        "dflash_ttft_s": _median([r.dflash_ttft_s for r in rows]),
        "num_equal": sum(r.text_equal for r in rows),
    }


def _median(values: list[float | None]) -> float | None:
    found = median_interval([v for v in values if v is not None], seed=0)
    return found.median if found else None


def _per_s(tpots_s: list[float | None]) -> float | None:
    tpot_s = _median(tpots_s)
    return 1 / tpot_s if tpot_s else None


def table(report: dict[str, Any]) -> str:
    """The race for people."""
    head = (
        f"{'kind':>12}  {'n':>3}  {'tau ours':>8}  {'served':>8}  {'AR tok/s':>8}"
        f"  {'DFlash tok/s':>12}  {'decode speedup':>20}  {'end to end':>10}"
        f"  {'text equal':>10}"
    )
    groups = [*report["by_category"].items(), ("all", report["overall"])]
    lines = [head, *(_line(name, group) for name, group in groups)]
    lines.append(
        f"Block {report['block_size']}. Acceptance the same in {report['num_same_acceptance']} of "
        f"{report['num_comparable']} answers without a cut block; counters "
        f"{'agree' if report['counters_agree'] else 'DISAGREE'}: cycles, drafts, accepted "
        f"{report['reported']} reported, {report['counted']} counted."
    )
    lines.append(f"{report['server']}. {report['provenance']['machine']}.")
    return "\n".join([*lines, "PASSED" if report["passed"] else "FAILED"])


def _line(name: str, group: dict[str, Any]) -> str:
    speedup = group["decode_speedup"]
    shown = "-"
    if speedup:
        shown = f"{speedup['median']:.2f}x"
        if speedup["low"] is not None:
            shown += f" [{speedup['low']:.2f}, {speedup['high']:.2f}]"
    return (
        f"{name:>12}  {group['num_prompts']:>3}  {_number(group['tau_ours']):>8}"
        f"  {_number(group['tau_reported']):>8}  {_number(group['ar_tokens_per_s']):>8}"
        f"  {_number(group['dflash_tokens_per_s']):>12}  {shown:>20}"
        f"  {_number(group['end_to_end_speedup']):>9}x"
        f"  {group['num_equal']:>4} of {group['num_prompts']:>2}"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _keep_serving(engine: RemoteEngine) -> None:
    """Leave the servers up for the page or the benchmark."""
    print(" ".join(s.sentence for s in engine.server_states()), "Ctrl-C stops both.", flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        engine.close()
