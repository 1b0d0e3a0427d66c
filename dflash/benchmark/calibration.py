"""``--calibrate``: time the parts of a cycle, show them, and save them where the advisor looks."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from dflash import measurements
from dflash.benchmark import calibrate as timing
from dflash.benchmark.options import sampling_of
from dflash.benchmark.prompts import Prompt, load_prompts, mixed
from dflash.benchmark.report import Result, json_text
from dflash.benchmark.subject import Subject
from dflash.measurements import Calibration, Provenance, StepCosts
from dflash.presets import preset_ids
from dflash.schema import Message, Request

_CONTEXTS = (64, 512, 2048)
_NUM_TEXTS = 8
_ACCEPTANCE_SHARE = 0.4  # of the time budget, when there are prompts to accept anything on


def run_calibration(
    args: argparse.Namespace, subject: Subject, prompts: Sequence[Prompt], provenance: Provenance
) -> Result:
    """Time the parts of a cycle and save them where the advisor looks."""
    widths = args.block_size or timing.default_widths(subject.trained_block_size)
    texts = [p.turns[0] for p in prompts or _default_prompts()][:_NUM_TEXTS]
    steps = timing.calibrate(
        subject.engine,
        texts,
        block_sizes=[b for b in widths if b > 1],
        context_tokens=_CONTEXTS,
        budget_s=args.time_budget * (1 - _ACCEPTANCE_SHARE if prompts else 1),
        now=time.monotonic,
        sampling=sampling_of(args),
    )
    costs = tuple(tqdm(steps, total=len(_CONTEXTS), unit="context", desc="timing"))
    budget_s = args.time_budget * _ACCEPTANCE_SHARE
    found = acceptance_of(args, subject, prompts, widths, budget_s) if prompts else None
    calibration = Calibration(
        provenance=provenance,
        by_context=costs,
        tau_per_position=found.positions if found else None,
        tau_by_block=found.tau_by_block if found else None,
        num_prompts=found.num_prompts if found else None,
    )
    path = measurements.save(calibration)
    data = _costs_file(costs[0])
    files = {args.output: json_text(data)} if args.output else {}
    shown = "\n\n".join([_costs_table(costs), *_acceptance_table(found), f"Saved as {path}."])
    return Result(shown, data, files=files)


def _default_prompts() -> list[Prompt]:
    """Any text will do to time a forward: the first prompt of every set of ours."""
    return [load_prompts(name, limit=1)[0] for name in preset_ids("prompts")]


def acceptance_of(
    args: argparse.Namespace,
    subject: Subject,
    prompts: Sequence[Prompt],
    block_sizes: Sequence[int],
    budget_s: float,
) -> timing.Acceptance:
    """Acceptance at every block size over as many whole answers as the time allows."""
    requests = [
        Request((Message("user", p.turns[0]),), sampling_of(args))
        for p in mixed(prompts, seed=args.seed)
    ]
    return timing.acceptance(
        subject.engine,
        requests,
        block_sizes=sorted({b for b in block_sizes if b > 1} | {subject.trained_block_size}),
        end_s=time.monotonic() + budget_s,
        now=time.monotonic,
    )


def _costs_file(costs: StepCosts) -> dict[str, Any]:
    """The advisor's ``--costs`` format."""
    return {
        "ar_step_s": costs.ar_step_s,
        "draft_s": {str(b): s for b, s in sorted(costs.draft_s.items())},
        "verify_s": {str(b): s for b, s in sorted(costs.verify_s.items())},
    }


def _costs_table(by_context: Sequence[StepCosts]) -> str:
    rows = []
    for costs in by_context:
        rows.append(
            f"{costs.context_tokens} prompt tokens: one AR step {costs.ar_step_s * 1e3:.2f} ms"
        )
        rows.append(f"{'block':>7}  {'draft ms':>8}  {'verify ms':>9}  {'cycle / step':>12}")
        for b in sorted(costs.draft_s):
            draft_s, verify_s = costs.draft_s[b], costs.verify_s[b]
            steps = (draft_s + verify_s) / costs.ar_step_s
            rows.append(f"{b:>7}  {draft_s * 1e3:>8.2f}  {verify_s * 1e3:>9.2f}  {steps:>12.2f}")
    return "\n".join(rows)


def _acceptance_table(found: timing.Acceptance | None) -> list[str]:
    if found is None:
        return []
    rows = [f"{b:>7}  {tau:>6.2f}" for b, tau in sorted(found.tau_by_block.items())]
    title = f"tau of what reached the answers, median of {found.num_prompts} prompts:"
    return ["\n".join([title, *rows])]
