"""Our decode loop against the official package's (PyPI ``dflash``), on the same weights.

    python scripts/compare_official.py --model demo --dataset FILE.jsonl

Makes the package an environment of its own, gives both sides the same token ids and takes turns.
Tokens must be equal; our decode time per cycle must be at most 0.95 of theirs. Exit code 0 when
both hold, 1 when not, 2 when the comparison could not be made.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from dflash.errors import EngineError
from dflash.metrics import MedianInterval, first_difference, median_interval, run_stats
from scripts.comparison import Turn, conclude, provenance, shown, take_turns
from scripts.ours import Ours, num_whole_blocks, parser
from scripts.peer import Peer, default_env_dir, make_environment, running

PACKAGES = ("dflash[local]==0.1.0",)  # brings the torch and transformers it was released for
WORKER = Path(__file__).parent / "workers" / "official.py"
MAX_CYCLE_RATIO = 0.95


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt at one block size on both sides. Times are seconds per cycle."""

    prompt_index: int
    category: str
    block_size: int
    num_tokens: int
    ours_cycle_s: float
    theirs_cycle_s: float
    first_difference: int | None
    same_cycles: bool  # the same number of tokens kept in every whole block


def main(argv: list[str] | None = None) -> int:
    """Run the comparison and print it; the last line of standard output is JSON."""
    args = parser(__doc__ or "", default_env_dir("official")).parse_args(argv)
    kept = ("cycle_ratio", "step_ratio", "num_equal", "num_compared")
    return conclude(
        lambda: shown(compare(args), table, args), lambda report: {k: report[k] for k in kept}
    )


def compare(args: Any) -> dict[str, Any]:
    """Answer every prompt on both sides, alternating who goes first."""
    if args.threads:
        torch.set_num_threads(args.threads)
    python = make_environment(args.env_dir, packages=PACKAGES)
    ours = Ours(args)
    log = args.env_dir / "worker.log"
    with running(python, WORKER, log=log) as peer:
        peer.ask(
            {
                "target": ours.target_path,
                "draft": ours.draft_path,
                "draft_class": ours.engine.draft_model.config.architectures[0],
                "dtype": ours.engine.info.dtype,
                "num_threads": torch.get_num_threads(),
            }
        )
        rows = measure(ours, peer, args.max_new_tokens)
    return summarise(rows, ours.block_size, provenance(ours))


def measure(ours: Ours, peer: Peer, max_new_tokens: int) -> list[Row]:
    """Every prompt at both block sizes."""
    work = [(i, b) for b in (ours.block_size, 1) for i in range(len(ours.prompts))]
    turns = take_turns(ours, peer, work, max_new_tokens)
    rows = [_row(turn) for turn in turns if turn.theirs["tokens_per_cycle"]]
    if not rows:
        raise EngineError("no answer had a second token.", "Use other prompts.")
    return rows


def _row(turn: Turn) -> Row:
    trace, theirs = turn.answer.trace, turn.theirs
    stats, cycles, kept = run_stats(trace), trace.cycles, theirs["tokens_per_cycle"]
    whole = num_whole_blocks(trace)
    assert stats.decode_s is not None
    return Row(
        prompt_index=turn.prompt_index,
        category=turn.prompt.category,
        block_size=turn.block_size,
        num_tokens=len(trace.output_ids),
        ours_cycle_s=stats.decode_s / max(1, len(cycles)),
        theirs_cycle_s=theirs["decode_s"] / len(kept),
        first_difference=first_difference(trace.output_ids, theirs["output_ids"]),
        same_cycles=[len(c.emitted_ids) for c in cycles[:whole]] == kept[:whole],
    )


def summarise(rows: list[Row], block_size: int, about: dict[str, Any]) -> dict[str, Any]:
    """Medians of per-prompt ratios, ours over theirs: below 1 is faster."""
    drafted = [r for r in rows if r.block_size == block_size]
    steps = [r for r in rows if r.block_size == 1]
    cycle_ratio = _ratio(drafted)
    num_equal = sum(r.first_difference is None for r in rows)
    return {
        "block_size": block_size,
        "cycle_ratio": _json(cycle_ratio),
        "step_ratio": _json(_ratio(steps)),
        "num_equal": num_equal,
        "num_compared": len(rows),
        "num_same_cycles": sum(r.same_cycles for r in rows),
        "ours_cycle_ms": _median_ms([r.ours_cycle_s for r in drafted]),
        "theirs_cycle_ms": _median_ms([r.theirs_cycle_s for r in drafted]),
        "ours_step_ms": _median_ms([r.ours_cycle_s for r in steps]),
        "theirs_step_ms": _median_ms([r.theirs_cycle_s for r in steps]),
        "passed": num_equal == len(rows)
        and cycle_ratio is not None
        and cycle_ratio.median <= MAX_CYCLE_RATIO,
        "rows": [{f: getattr(r, f) for f in Row.__slots__} for r in rows],
        "provenance": about,
    }


def _ratio(rows: list[Row]) -> MedianInterval | None:
    return median_interval([r.ours_cycle_s / r.theirs_cycle_s for r in rows], seed=0)


def _json(value: MedianInterval | None) -> dict[str, Any] | None:
    return {f: getattr(value, f) for f in MedianInterval.__slots__} if value else None


def _median_ms(seconds: list[float]) -> float | None:
    found = median_interval(seconds, seed=0)
    return found.median * 1e3 if found else None


def table(report: dict[str, Any]) -> str:
    """The comparison for people."""
    lines = [f"{'':>18}  {'ours ms':>8}  {'official ms':>11}  {'ratio, 95 % interval':>24}"]
    for name, kind in (
        (f"cycle at block {report['block_size']}", "cycle"),
        ("one AR step", "step"),
    ):
        ratio, ours, theirs = (
            report[f"{k}"] for k in (f"{kind}_ratio", f"ours_{kind}_ms", f"theirs_{kind}_ms")
        )
        if ratio:
            shown = f"{ratio['median']:.3f}"
            if ratio["low"] is not None:
                shown += f" [{ratio['low']:.3f}, {ratio['high']:.3f}]"
            lines.append(f"{name:>18}  {ours:>8.2f}  {theirs:>11.2f}  {shown:>24}")
    lines.append(
        f"Tokens equal in {report['num_equal']} of {report['num_compared']} answers, cycles the "
        f"same in {report['num_same_cycles']}. {report['provenance']['machine']}."
    )
    lines += [
        f"Prompt {r['prompt_index']} at block {r['block_size']}: differs from token "
        f"{r['first_difference']} on."
        for r in report["rows"]
        if r["first_difference"] is not None
    ]
    bar = f"equal tokens and a cycle of at most {MAX_CYCLE_RATIO} of theirs"
    lines.append(f"{'PASSED' if report['passed'] else 'FAILED'}: the bar is {bar}.")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
