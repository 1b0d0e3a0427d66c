"""The regression as a Markdown page. Knows how it reads; computes nothing."""

from __future__ import annotations

from itertools import groupby

from advisor.cost import MODEL_ERROR
from advisor.regression import (
    Choice,
    SpeedupCell,
    TrainingChoice,
    choices,
    root_mean_square,
    speedups,
    training_choices,
)

MAX_REGRET = 0.05

_HEAD = """\
# The advisor against published results

Written by `python -m advisor regression --write`; a test fails when it is out of date.
tau counts the bonus token. The figures and their sources stand in presets/sweeps/,
presets/ablations/ and presets/pairs/.

"""
_CHOICE = """\
## Choice of block size

Given: tau at one block size, and the machine's cost slope (the cost of a cycle at two block sizes,
a straight line between them). The advisor sees nothing else of the published sweep. Regret is
1 - published speed at its choice / best published speed; the bar is {bar:.0%} in nine of ten cells.

| sweep | text | machine | given | chosen | best | predicted | published there | regret |
|---|---|---|---|---:|---:|---:|---:|---:|
"""
_TRAINING = """\
## Choices in training

Draft depth and number of taps as recommended for a draft yet to be trained.

| ablation | text | chosen | best | regret |
|---|---|---:|---:|---:|
"""
_SPEEDUP = """\
## Modelled speedup

Given: the published tau and a hardware preset; nothing measured. Cells are grouped by table. The
interval shown to users is a factor of {interval:.2f} each way.

| pair | table | machine | cells | published | predicted | mean error | largest error |
|---|---|---|---:|---|---|---:|---:|
"""
_LEFT_OUT = """\
## Left out

Sweeps without a published acceptance cannot be predicted from acceptance: Qwen3.6-27B in
https://github.com/z-lab/dflash/issues/151, gemma-4-31B on an M5, Qwen3.8-27B in
https://github.com/Blaizzy/mlx-vlm/pull/1959 and in
https://github.com/ashalliants/ninfer-3090/pull/65. All four put the best block at 4 or 5 on
quantised targets, which is what a measured cost slope gives: measure it with
`python -m dflash.benchmark --calibrate`.
"""


def page() -> str:
    """Compute both tables and render the page."""
    found, cells = choices(), speedups()
    within = sum(choice.regret <= MAX_REGRET for choice in found)
    errors = [cell.error for cell in cells]
    inside = sum(1 / (1 + MODEL_ERROR) <= 1 + error <= 1 + MODEL_ERROR for error in errors)
    parts = [
        _HEAD,
        _CHOICE.format(bar=MAX_REGRET),
        *(_choice_row(choice) for choice in found),
        f"\n{within} of {len(found)} cells are within {MAX_REGRET:.0%}; the largest regret is "
        f"{max(choice.regret for choice in found):.1%}.\n\n",
        _TRAINING,
        *(_training_row(choice) for choice in training_choices()),
        "\n",
        _SPEEDUP.format(interval=1 + MODEL_ERROR),
        *(_speedup_row(list(group)) for _, group in groupby(cells, key=_table)),
        f"\n{len(cells)} cells, {root_mean_square(errors):.0%} root mean square error; {inside} "
        "lie within the interval.\n\n",
        _LEFT_OUT,
    ]
    return "".join(parts)


def _choice_row(choice: Choice) -> str:
    sweep, cell = choice.sweep, choice.cell
    shown = "{:.2f}x" if sweep.unit == "x" else "{:.1f} tok/s"
    return (
        f"| [{sweep.title}]({sweep.source[0]}) | {cell.task} | {sweep.machine} | "
        f"tau {cell.given_tau:.2f} at {cell.given_block_size} | {choice.chosen} | {choice.best} | "
        f"{shown.format(choice.predicted)} | {shown.format(choice.published)} | "
        f"{choice.regret:.1%} |\n"
    )


def _training_row(choice: TrainingChoice) -> str:
    ablation = choice.ablation
    return (
        f"| [{ablation.title}]({ablation.source[0]}) | {choice.task} | {choice.chosen} | "
        f"{choice.best} | {choice.regret:.1%} |\n"
    )


def _table(cell: SpeedupCell) -> tuple[str, str, str]:
    return cell.pair_id, cell.where, cell.hardware


def _speedup_row(cells: list[SpeedupCell]) -> str:
    pair, where, machine = _table(cells[0])
    errors = [cell.error for cell in cells]
    largest = max(errors, key=abs)
    published = sorted(cell.published for cell in cells)
    predicted = sorted(cell.predicted for cell in cells)
    return (
        f"| {pair} | {where} | {machine} | {len(cells)} | {_span(published)} | {_span(predicted)} "
        f"| {sum(errors) / len(errors):+.0%} | {largest:+.0%} |\n"
    )


def _span(values: list[float]) -> str:
    return f"{values[0]:.2f}x" if len(values) == 1 else f"{values[0]:.2f}x to {values[-1]:.2f}x"
