"""Our torch engine against a serving engine: vLLM's CPU build, with and without DFlash.

    python scripts/compare_vllm.py --model demo --dataset FILE.jsonl

Makes vLLM an environment of its own, gives both sides the same token ids and takes turns. Text and
acceptance counts must agree with ours; single-stream tokens per second with DFlash should be at
least 1.2 times vLLM's. Exit code 0 when both hold, 1 when not, 2 when it could not be compared.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from dflash.errors import EngineError
from dflash.metrics import first_difference, median_interval
from scripts.comparison import Turn, conclude, provenance, shown, take_turns, without_rows
from scripts.ours import Ours, num_whole_blocks, parser
from scripts.peer import Peer, default_env_dir, running
from scripts.vllm_env import MAX_MODEL_LEN, variables, vllm_python

WORKER = Path(__file__).parent / "workers" / "vllm_server.py"
MIN_RATIO = 1.2


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt on both sides with (``dflash``) or without drafts. Times are whole requests."""

    prompt_index: int
    category: str
    dflash: bool
    ours_s: float
    theirs_s: float
    num_tokens: int
    num_tokens_theirs: int
    first_difference: int | None
    accepted_ours: tuple[int, ...]
    accepted_theirs: tuple[int, ...]
    same_counts: bool  # every whole block accepted as many drafts on both sides

    @property
    def ratio(self) -> float:
        """Our tokens per second over theirs."""
        return (self.num_tokens / self.ours_s) / (self.num_tokens_theirs / self.theirs_s)


def main(argv: list[str] | None = None) -> int:
    """Run the comparison and print it; the last line of standard output is JSON."""
    args = parser(__doc__ or "", default_env_dir("vllm")).parse_args(argv)
    return conclude(lambda: shown(compare(args), table, args), without_rows)


def compare(args: Any) -> dict[str, Any]:
    """Start both vLLM engines, take turns with ours on every prompt, sum up."""
    if args.threads:
        torch.set_num_threads(args.threads)
    python = vllm_python(args.env_dir)
    ours = Ours(args, device="cpu")
    rows: list[Row] = []
    for dflash in (False, True):
        log = args.env_dir / f"worker-{'dflash' if dflash else 'ar'}.log"
        with running(python, WORKER, log=log, variables=_variables()) as peer:
            peer.ask(_setup(ours, dflash=dflash))
            rows += measure(ours, peer, dflash=dflash, max_new_tokens=args.max_new_tokens)
    return summarise(rows, ours.block_size, provenance(ours))


def _variables() -> dict[str, str]:
    """One process, so that nothing but the engine is between a job and its answer."""
    return {**variables(torch.get_num_threads()), "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


def _setup(ours: Ours, *, dflash: bool) -> dict[str, Any]:
    return {
        "target": ours.target_path,
        "draft": ours.draft_path if dflash else None,
        "block_size": ours.block_size,
        "dtype": ours.engine.info.dtype,
        "max_model_len": min(MAX_MODEL_LEN, ours.engine.context_length),
    }


def measure(ours: Ours, peer: Peer, *, dflash: bool, max_new_tokens: int) -> list[Row]:
    """Every prompt on both sides."""
    work = [(i, ours.block_size if dflash else 1) for i in range(len(ours.prompts))]
    return [_row(turn, dflash=dflash) for turn in take_turns(ours, peer, work, max_new_tokens)]


def _row(turn: Turn, *, dflash: bool) -> Row:
    trace, theirs = turn.answer.trace, turn.theirs
    spec = theirs["spec"] or {}
    counts = tuple(c.num_accepted for c in trace.cycles) if dflash else ()
    counts_theirs = tuple(spec.get("per_step_accepted", ()))
    whole = num_whole_blocks(trace)
    return Row(
        prompt_index=turn.prompt_index,
        category=turn.prompt.category,
        dflash=dflash,
        ours_s=turn.answer.wall_s,
        theirs_s=theirs["total_s"],
        num_tokens=len(trace.output_ids),
        num_tokens_theirs=len(theirs["output_ids"]),
        first_difference=first_difference(trace.output_ids, theirs["output_ids"]),
        accepted_ours=counts,
        accepted_theirs=counts_theirs,
        same_counts=counts[:whole] == counts_theirs[:whole],
    )


def summarise(rows: list[Row], block_size: int, about: dict[str, Any]) -> dict[str, Any]:
    """Tokens per second pooled over all prompts, and medians of per-prompt ratios."""
    drafted = [r for r in rows if r.dflash]
    ratio = median_interval([r.ratio for r in drafted], seed=0)
    if ratio is None:
        raise EngineError("nothing was compared.", "Give at least one prompt.")
    num_equal = sum(r.first_difference is None for r in rows)
    num_same_counts = sum(r.same_counts for r in drafted)
    return {
        "block_size": block_size,
        "tokens_per_s": {
            f"{side}_{'dflash' if dflash else 'ar'}": _pooled_tps(rows, side, dflash=dflash)
            for dflash in (False, True)
            for side in ("ours", "theirs")
        },
        "dflash_ratio": {f: getattr(ratio, f) for f in type(ratio).__slots__},
        "tau": {"ours": _tau(drafted, "accepted_ours"), "theirs": _tau(drafted, "accepted_theirs")},
        "num_equal": num_equal,
        "num_compared": len(rows),
        "num_same_counts": num_same_counts,
        "num_drafted": len(drafted),
        "passed": num_equal == len(rows)
        and num_same_counts == len(drafted)
        and ratio.median >= MIN_RATIO,
        "rows": [{f: getattr(r, f) for f in Row.__slots__} for r in rows],
        "provenance": about,
    }


def _pooled_tps(rows: list[Row], side: str, *, dflash: bool) -> float:
    chosen = [r for r in rows if r.dflash == dflash]
    if side == "ours":
        return sum(r.num_tokens for r in chosen) / sum(r.ours_s for r in chosen)
    return sum(r.num_tokens_theirs for r in chosen) / sum(r.theirs_s for r in chosen)


def _tau(rows: list[Row], field: str) -> float | None:
    accepted = [count for row in rows for count in getattr(row, field)]
    return 1 + sum(accepted) / len(accepted) if accepted else None


def table(report: dict[str, Any]) -> str:
    """The comparison for people."""
    speed, tau, ratio = report["tokens_per_s"], report["tau"], report["dflash_ratio"]
    interval = "" if ratio["low"] is None else f" [{ratio['low']:.2f}, {ratio['high']:.2f}]"
    lines = [
        f"{'':>24}  {'ours':>8}  {'vLLM':>8}",
        f"{'tokens/s without DFlash':>24}  {speed['ours_ar']:>8.1f}  {speed['theirs_ar']:>8.1f}",
        f"{'tokens/s at block ' + str(report['block_size']):>24}  {speed['ours_dflash']:>8.1f}"
        f"  {speed['theirs_dflash']:>8.1f}",
        f"{'tau':>24}  {_shown(tau['ours']):>8}  {_shown(tau['theirs']):>8}",
        f"With DFlash ours is {ratio['median']:.2f}x{interval} of vLLM, median over "
        f"{ratio['n']} prompts, whole requests.",
        f"Tokens equal in {report['num_equal']} of {report['num_compared']} answers; acceptance "
        f"the same in every whole block in {report['num_same_counts']} of "
        f"{report['num_drafted']}. {report['provenance']['machine']}.",
    ]
    lines += [
        f"Prompt {r['prompt_index']} {'with' if r['dflash'] else 'without'} DFlash: differs from "
        f"token {r['first_difference']} on."
        for r in report["rows"]
        if r["first_difference"] is not None
    ]
    bar = f"equal tokens, equal acceptance and {MIN_RATIO}x of vLLM with DFlash"
    lines.append(f"{'PASSED' if report['passed'] else 'FAILED'}: the bar is {bar}.")
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main())
