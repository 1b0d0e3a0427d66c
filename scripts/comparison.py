"""What every comparison with another implementation does: take turns, print, say how it ended.

Knows our side and a peer that answers one job at a time; knows no verdict.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tqdm import tqdm

from dflash.benchmark.prompts import Prompt
from dflash.benchmark.provenance import collect, with_conditions
from dflash.benchmark.report import write_json
from dflash.errors import DFlashError
from scripts.ours import Answer, Ours
from scripts.peer import Peer

Report = dict[str, Any]
NUM_WARM_UP = 2  # one for whoever goes first, either way round


@dataclass(frozen=True, slots=True)
class Turn:
    """One prompt at one block size on both sides. ``theirs`` is the peer's own JSON."""

    prompt_index: int
    prompt: Prompt
    block_size: int
    answer: Answer
    theirs: dict[str, Any]


def take_turns(
    ours: Ours, peer: Peer, work: Sequence[tuple[int, int]], max_new_tokens: int
) -> Iterator[Turn]:
    """Answer every (prompt index, block size) on both sides, alternating who goes first."""
    warm_up = [work[i % len(work)] for i in range(NUM_WARM_UP)]
    for number, (index, block_size) in enumerate(tqdm([*warm_up, *work], unit="prompt")):
        prompt = ours.prompts[index]
        job = {
            "ids": ours.prompt_ids(prompt),
            "max_new_tokens": max_new_tokens,
            "stop_ids": ours.stop_ids,
            "block_size": block_size,
        }
        if number % 2:
            theirs, answer = peer.ask(job), ours.answer(prompt, block_size)
        else:
            answer, theirs = ours.answer(prompt, block_size), peer.ask(job)
        if number >= NUM_WARM_UP:
            yield Turn(index, prompt, block_size, answer, theirs)


def provenance(ours: Ours) -> dict[str, Any]:
    """Versions, machine and command line of this run."""
    about = collect(ours.engine, pair_id=ours.pair.id, num_threads=torch.get_num_threads())
    return with_conditions(about, " ".join(sys.argv))


def conclude(run: Callable[[], Report], brief: Callable[[Report], Report]) -> int:
    """Run a comparison and print what is brief about its report as the last line, which is JSON.

    Returns the exit code: 0 when it passed, 1 when not, 2 when it could not be made.
    """
    try:
        report = run()
    except DFlashError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(brief(report), separators=(",", ":")))
    return 0 if report["passed"] else 1


def shown(report: Report, table: Callable[[Report], str], args: Any) -> Report:
    """Print a report for people and write it where it is wanted."""
    print(table(report))
    if args.output:
        write_json(args.output, report)
    return report


def without_rows(report: Report) -> Report:
    """A report without its long parts."""
    return {k: v for k, v in report.items() if k not in ("rows", "provenance")}
