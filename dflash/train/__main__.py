"""Command line: ``python -m dflash.train sample | target | draft``.

The last line of standard output is JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path

from dflash.benchmark.options import positive, positive_float
from dflash.errors import DFlashError
from dflash.train.corpus import KINDS, sample_prompts
from dflash.train.fit_command import DraftOrder, make_draft
from dflash.train.pretrain import pretrain
from dflash.train.recipe import FitRecipe
from dflash.train.target_recipe import TargetRecipe


def _sample(args: argparse.Namespace) -> None:
    for row in sample_prompts(args.kind, args.num, args.seed):
        print(json.dumps(row, ensure_ascii=False))


def _target(args: argparse.Namespace) -> None:
    recipe = TargetRecipe(
        num_steps=args.steps, minutes=args.minutes, eval_num=args.eval_num, seed=args.seed
    )
    results = pretrain(args.output, recipe=recipe)
    print(json.dumps({"folder": str(args.output), "right": [asdict(result) for result in results]}))


def _draft(args: argparse.Namespace) -> None:
    recipe = FitRecipe(
        minutes=args.minutes,
        num_anchors=args.anchors,
        rows_per_step=args.rows_per_step,
        matrix_rate=args.rate,
        report_every_s=args.report_minutes * 60,
        seed=args.seed,
    )
    order = DraftOrder(
        target=args.target,
        output=args.output,
        work=args.work,
        num_rows=args.num_rows,
        max_new_tokens=args.max_new_tokens,
        kinds=tuple(args.sample_kinds),
        prompts=args.prompts,
        demo_corpus=args.demo_corpus,
        rows=tuple(args.rows),
        block_size=args.block_size,
        num_layers=args.num_layers,
        num_taps=args.num_taps,
        target_layer_ids=tuple(args.target_layer_ids) if args.target_layer_ids else None,
        mask_token_id=args.mask_token_id,
        fit=recipe,
    )
    report = make_draft(order)
    print(json.dumps({"folder": str(args.output), **asdict(report)}))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dflash.train")
    commands = parser.add_subparsers(required=True)
    sample = commands.add_parser("sample", help="print fresh demo prompts as JSONL rows")
    sample.add_argument("--kind", choices=KINDS, required=True)
    sample.add_argument("--num", type=positive, default=20)
    sample.add_argument("--seed", type=int, default=0)
    sample.set_defaults(run=_sample)
    target = commands.add_parser("target", help="train the demo target from nothing")
    target.add_argument("--output", type=Path, required=True, help="folder to write, or to resume")
    target.add_argument("--steps", type=positive, default=TargetRecipe().num_steps)
    target.add_argument("--minutes", type=positive_float, default=TargetRecipe().minutes)
    target.add_argument("--eval-num", type=positive, default=100, help="held-out prompts per kind")
    target.add_argument("--seed", type=int, default=0)
    target.set_defaults(run=_target)
    _add_draft(commands)
    return parser


def _add_draft(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Everything but target and output has a default that a small model and a laptop can bear."""
    order, recipe = DraftOrder("", Path()), FitRecipe()
    draft = commands.add_parser(
        "draft", help="fit a draft to a target, from nothing but the target"
    )
    draft.add_argument("--target", required=True, help="folder, hub id, or id of a known pair")
    draft.add_argument("--out", "--output", dest="output", type=Path, required=True)
    draft.add_argument("--work", type=Path, help="rows, states and resumable fit (OUT-work)")
    draft.add_argument("--minutes", type=positive_float, default=recipe.minutes, help="of fitting")
    draft.add_argument("--num-rows", type=positive, default=order.num_rows, help="conversations")
    draft.add_argument("--max-new-tokens", type=positive, default=order.max_new_tokens)
    draft.add_argument("--sample-kinds", nargs="+", choices=KINDS, default=list(order.kinds))
    draft.add_argument("--prompts", type=Path, help="your prompts, JSONL, instead of invented ones")
    draft.add_argument("--demo-corpus", action="store_true", help="prompts of the demo corpus")
    draft.add_argument("--rows", type=Path, nargs="*", default=[], help="finished rows, JSONL")
    draft.add_argument("--block-size", type=int, default=order.block_size)
    draft.add_argument("--num-layers", type=positive, default=order.num_layers)
    draft.add_argument("--num-taps", type=positive, default=order.num_taps)
    draft.add_argument("--target-layer-ids", type=int, nargs="+")
    draft.add_argument("--mask-token-id", type=int)
    draft.add_argument(
        "--anchors", type=positive, default=recipe.num_anchors, help="blocks per row"
    )
    draft.add_argument("--rows-per-step", type=positive, default=recipe.rows_per_step)
    draft.add_argument("--report-minutes", type=positive_float, default=recipe.report_every_s / 60)
    draft.add_argument("--rate", type=positive_float, default=recipe.matrix_rate)
    draft.add_argument("--seed", type=int, default=0)
    draft.set_defaults(run=_draft)


def main() -> None:
    """Run one subcommand; a failure the user can mend is one sentence and exit code 2."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    args = _parser().parse_args()
    try:
        args.run(args)
    except DFlashError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
