"""Predicted against measured speedup by block size, as a page: a table, a curve, the verdict.

``python -m dflash.benchmark.curves RUN.json`` reads what ``python -m dflash.benchmark --output``
wrote after a calibration. Knows that file and two markups; measures nothing and predicts nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash.benchmark.published_rows import with_published
from dflash.benchmark.report import blocks_of
from dflash.errors import DFlashError, PromptError
from dflash.whole_file import write_whole

BAR = 0.10  # the largest relative error allowed at any block size
_CALIBRATE_FIRST = (
    "Run python -m dflash.benchmark --calibrate for this pair with --dataset, then the benchmark "
    "with --output, on this machine."
)


@dataclass(frozen=True, slots=True)
class Point:
    """One block size. Speedups are over our own loop at block 1; ``low`` and ``high`` are the
    measured median's interval."""

    block_size: int
    tau: float
    draft_s: float
    verify_s: float
    predicted: float
    measured: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Relative error of the prediction: 0.1 is ten percent too high."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True)
class Curves:
    """All of a run that the page shows. ``about`` is the run's provenance."""

    points: tuple[Point, ...]
    ar_step_s: float
    num_prompts: int
    num_equal: int
    num_checked: int
    about: dict[str, Any]

    @property
    def worst(self) -> Point:
        """The block size whose prediction is furthest off."""
        return max(self.points, key=lambda p: abs(p.error))

    @property
    def num_within(self) -> int:
        """How many block sizes are within the bar."""
        return sum(abs(p.error) <= BAR for p in self.points)


def read_curves(path: Path) -> Curves:
    """Read a benchmark's JSON. Raises ``PromptError`` when it is none, or foretells nothing."""
    data = read_run(path)
    try:
        return _curves(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PromptError(f"{path} is not a benchmark's report.", _CALIBRATE_FIRST) from error


def read_run(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file. Raises ``PromptError``."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PromptError(
            f"{path} cannot be read as JSON ({type(error).__name__}).", _CALIBRATE_FIRST
        ) from error
    if not isinstance(data, dict):
        raise PromptError(f"{path} is not a benchmark's report.", _CALIBRATE_FIRST)
    return data


def _curves(data: dict[str, Any]) -> Curves:
    summary, by_block = data["summary"], blocks_of(data["summary"])
    foretold = sorted(summary.get("predicted") or (), key=lambda f: f["block_size"])
    if not foretold:
        raise ValueError("nothing was foretold")
    points = []
    for found in foretold:
        interval = by_block[found["block_size"]]["decode_speedup_over"]["baseline_loop"]
        median = interval["median"]
        points.append(
            Point(
                block_size=found["block_size"],
                tau=found["tau"],
                draft_s=found["draft_s"],
                verify_s=found["verify_s"],
                predicted=found["predicted"],
                measured=median,
                low=median if interval["low"] is None else interval["low"],
                high=median if interval["high"] is None else interval["high"],
            )
        )
    checked = [block["lossless"] for block in by_block.values()]
    return Curves(
        points=tuple(points),
        ar_step_s=foretold[0]["ar_step_s"],
        num_prompts=summary["num_prompts"],
        num_equal=sum(c["num_equal"] for c in checked),
        num_checked=sum(c["num_checked"] for c in checked),
        about=data["provenance"],
    )


def page(curves: Curves, *, svg_name: str) -> str:
    """The page as Markdown; ``svg_name`` is the curve's file beside it."""
    about = curves.about
    return "\n".join(
        [
            f"# Predicted against measured: {about.get('pair_id') or about['draft_id']}",
            "",
            "Written by `python -m dflash.benchmark.curves`; nothing here is typed by hand.",
            "",
            *_verdict(curves),
            "",
            f"![Predicted and measured speedup by block size]({svg_name})",
            "",
            "| block | tau | draft, ms | verify, ms | predicted | measured | error | bar |",
            "|---:|---:|---:|---:|---:|---:|---:|---|",
            *(_row(point) for point in curves.points),
            "",
            *_basis(curves),
            "",
        ]
    )


def _verdict(curves: Curves) -> list[str]:
    worst, total = curves.worst, len(curves.points)
    return [
        f"**{curves.num_within} of {total} block sizes are within {BAR:.0%}**; the prediction is "
        f"furthest off at block {worst.block_size}: {worst.error:+.1%}.",
    ]


def _row(point: Point) -> str:
    within = "within" if abs(point.error) <= BAR else f"**missed by {abs(point.error) - BAR:.1%}**"
    return (
        f"| {point.block_size} | {point.tau:.2f} | {point.draft_s * 1e3:.2f} "
        f"| {point.verify_s * 1e3:.2f} | {point.predicted:.2f}x "
        f"| {point.measured:.2f}x [{point.low:.2f}, {point.high:.2f}] | {point.error:+.1%} "
        f"| {within} |"
    )


def _basis(curves: Curves) -> list[str]:
    about = curves.about
    before = about.get("calibration") or {}
    on = before.get("num_prompts")
    taken = f"on {on} prompts" if on else "from this run's largest block"
    return [
        "Predicted: T_ar * tau / (T_draft + T_verify), the advisor's own formula. Costs (one AR "
        f"step took {curves.ar_step_s * 1e3:.2f} ms) and tau (of what reached the answers, median "
        f"over prompts, {taken}) are those of a calibration of "
        f"{before.get('date', 'unknown date')}, an earlier run than the one measured.",
        "",
        f"Measured: decode speedup over our own loop at block 1, median of paired ratios over "
        f"{curves.num_prompts} prompts with bootstrap 95 % intervals; outputs equal to the "
        f"target's own in {curves.num_equal} of {curves.num_checked}.",
        "",
        f"{about['machine']}, {about['device']}, {about['dtype']}, "
        f"{about.get('num_threads') or 'unknown'} threads, {about['date']}, commit "
        f"{about.get('git_hash') or 'unknown'}, load average {about.get('load_average')}.",
        "",
        f"`{about.get('command', 'python -m dflash.benchmark')}`",
    ]


_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 640, 340, 52, 28, 16, 44


def svg(curves: Curves) -> str:
    """The two curves: measured as points with intervals, predicted as a line of squares."""
    top = 1.1 * max(max(p.high, p.predicted) for p in curves.points)
    largest = max(p.block_size for p in curves.points)

    def x(block: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * block / (largest + 1), 1)

    def y(speedup: float) -> float:
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * speedup / top, 1)

    line = " ".join(f"{x(p.block_size)},{y(p.predicted)}" for p in curves.points)
    step = 0.5 if top > 1 else 0.1
    levels = [round(i * step, 2) for i in range(int(top / step) + 1)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            'font-family="sans-serif" font-size="12" role="img">',
            "<title>Predicted and measured decode speedup by block size</title>",
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
            *(_level(level, y(level)) for level in levels),
            *(_tick(p.block_size, x(p.block_size)) for p in curves.points),
            f'<polyline points="{line}" fill="none" stroke="#c2410c" stroke-dasharray="5 4"/>',
            *(_predicted(x(p.block_size), y(p.predicted)) for p in curves.points),
            *(
                _measured(x(p.block_size), y(p.measured), y(p.low), y(p.high))
                for p in curves.points
            ),
            f'<text x="{_LEFT}" y="16" fill="#1d4ed8">measured, 95 % interval</text>',
            f'<text x="{_LEFT + 170}" y="16" fill="#c2410c">predicted (dashed)</text>',
            f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 6}" text-anchor="middle">block size</text>',
            "</svg>",
            "",
        ]
    )


def _level(level: float, y: float) -> str:
    weight = "#111111" if level == 1 else "#d4d4d4"  # 1: plain decoding
    return (
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="{weight}"/>'
        f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{level:g}x</text>'
    )


def _tick(block_size: int, x: float) -> str:
    return f'<text x="{x}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{block_size}</text>'


def _predicted(x: float, y: float) -> str:
    return f'<rect x="{x - 4}" y="{y - 4}" width="8" height="8" fill="#c2410c"/>'


def _measured(x: float, y: float, low: float, high: float) -> str:
    return (
        f'<line x1="{x}" x2="{x}" y1="{low}" y2="{high}" stroke="#1d4ed8" stroke-width="2"/>'
        f'<circle cx="{x}" cy="{y}" r="5" fill="#1d4ed8"/>'
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page, its curve and, with --pair, the pair's published rows."""
    parser = argparse.ArgumentParser(prog="python -m dflash.benchmark.curves", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN.json")
    parser.add_argument("--write", type=Path, metavar="PAGE.md", required=True)
    parser.add_argument("--pair", type=Path, metavar="PAIR.yaml", help="record the results there")
    args = parser.parse_args(argv)
    drawing = args.write.with_suffix(".svg")
    try:
        curves = read_curves(args.run)
        files = {args.write: page(curves, svg_name=drawing.name), drawing: svg(curves)}
        if args.pair:
            source = f"docs/{args.write.name}"
            files[args.pair] = with_published(args.pair, read_run(args.run), source=source)
        for path, text in files.items():
            write_whole(path, text)
    except DFlashError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write("\n".join(_verdict(curves)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
