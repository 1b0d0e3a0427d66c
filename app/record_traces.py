"""Record real races for presets/traces/: ``python -m app.record_traces --pair demo --block 16``.

Knows the race, the example prompts and the file format. A recording is an ordinary run of this
machine; of several repeats the one with the median speedup is kept.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path

from app.examples import EXAMPLES, Example
from app.open_pair import open_pair
from app.race import in_slices, race, warm_up
from app.recorded import TRACES
from app.recorder import Recorder
from app.runs import Run, dump_run
from app.session import PairChoice
from dflash.close_look import CloseLook
from dflash.device import detect
from dflash.engines import Engine
from dflash.schema import Message, Request, SamplingParams

_log = logging.getLogger(__name__)


def record(engine: Engine, choice: PairChoice, request: Request, *, kind: str, repeats: int) -> Run:
    """Race ``repeats`` times; return the run of the median decode speedup, its odds looked up."""
    warm_up(engine, request)
    runs = [_one(engine, choice, request, kind) for _ in range(repeats)]
    runs.sort(key=lambda run: run.comparison.speedup or 0)
    run = runs[len(runs) // 2]
    if not isinstance(engine, CloseLook):
        return run
    return dataclasses.replace(run, odds=tuple(engine.slot_odds(run.dflash)))


def _one(engine: Engine, choice: PairChoice, request: Request, kind: str) -> Run:
    recorder = Recorder(choice, (engine, engine), request, detect().title, kind)
    for batch in in_slices(race(recorder.engines, request)):
        recorder.add(batch)
    run = recorder.run(stopped=False)
    for cycle in run.dflash.cycles:
        for token_id in (*cycle.draft_ids, *cycle.target_ids):
            recorder.word(token_id)
    return dataclasses.replace(run, words=dict(recorder.words))


def record_all(
    pair_id: str, block_size: int, *, max_new_tokens: int, repeats: int
) -> Iterator[Run]:
    """Record every kind of example at one block size, opening the pair once."""
    choice = PairChoice(pair_id)
    engine = open_pair(choice, lambda text, done: _log.info("%s", text))
    for example in EXAMPLES:
        request = _request(example, block_size, max_new_tokens)
        yield record(engine, choice, request, kind=example.kind, repeats=repeats)


def _request(example: Example, block_size: int, max_new_tokens: int) -> Request:
    sampling = SamplingParams(max_new_tokens=max_new_tokens)
    return Request((Message("user", example.prompt),), sampling, block_size)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", default="demo")
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=TRACES)
    args = parser.parse_args()
    recorded = record_all(
        args.pair, args.block, max_new_tokens=args.max_tokens, repeats=args.repeats
    )
    for number, run in enumerate(recorded, 1):
        path = args.out / f"{number}-{run.pair_id}-{run.kind}.json"
        path.write_text(dump_run(run) + "\n", encoding="utf-8")
        _log.info("%s: %.2fx", path.name, run.comparison.speedup or 0)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main()
