"""Command line: ``python -m dflash.train sample | target``. The last line of standard output is JSON."""

from __future__ import annotations

import argparse
import json
import logging
from dataclasses import asdict
from pathlib import Path

from dflash.train.corpus import KINDS, sample_prompts
from dflash.train.pretrain import TargetRecipe, pretrain


def _sample(args: argparse.Namespace) -> None:
    for row in sample_prompts(args.kind, args.num, args.seed):
        print(json.dumps(row, ensure_ascii=False))


def _target(args: argparse.Namespace) -> None:
    recipe = TargetRecipe(num_steps=args.steps, eval_num=args.eval_num, seed=args.seed)
    results = pretrain(args.output, recipe=recipe)
    print(json.dumps({"folder": str(args.output), "right": [asdict(result) for result in results]}))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dflash.train")
    commands = parser.add_subparsers(required=True)
    sample = commands.add_parser("sample", help="print fresh demo prompts as JSONL rows")
    sample.add_argument("--kind", choices=KINDS, required=True)
    sample.add_argument("--num", type=int, default=20)
    sample.add_argument("--seed", type=int, default=0)
    sample.set_defaults(run=_sample)
    target = commands.add_parser("target", help="train the demo target from nothing")
    target.add_argument("--output", type=Path, required=True, help="folder to write, or to resume")
    target.add_argument("--steps", type=int, default=TargetRecipe().num_steps)
    target.add_argument("--eval-num", type=int, default=100, help="held-out prompts per kind")
    target.add_argument("--seed", type=int, default=0)
    target.set_defaults(run=_target)
    return parser


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    args = _parser().parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
