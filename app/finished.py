"""A run that has ended, as the page's views. Knows runs, charts and words; knows no engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from app import captions, charts, headline, view
from app.card import summary, takeaway
from app.charts import Chart, Figure
from app.formula import formula_block
from app.runs import LANE_NAMES, Run
from app.stage import StageHeader, StageWriter
from app.whatif import CycleCost, Prediction, best, predictions
from dflash.metrics import median_interval

_STOPPED_NOTE = "stopped here; the numbers so far are kept"


@dataclass(frozen=True, slots=True)
class Checked:
    """A block size that was predicted and then really run."""

    block_size: int
    predicted: float
    measured: float


@dataclass(frozen=True, slots=True)
class WhatIfView:
    """The what-if part. ``value`` is ``None`` where the slider stays as the user left it."""

    text: str
    figure: Figure | None = None
    maximum: int | None = None
    value: int | None = None


@dataclass(frozen=True, slots=True)
class PlaygroundView:
    """What changes on the page, in output order."""

    status: str | None = None
    headline: str | None = None
    stage: str | None = None
    charts: tuple[Chart, ...] | None = None
    running: bool | None = None
    what_if: WhatIfView | None = None
    takeaway: str | None = None
    kept: str | None = None  # the row that the browser's table of runs gains
    pair_card: str | None = None
    formula: str | None = None
    look: str | None = None  # what a second look at the run found


def finished_view(
    run: Run,
    stage_text: str,
    *,
    what_if: WhatIfView,
    link_query: str | None = None,
    repeats: Sequence[float] = (),
) -> PlaygroundView:
    """Everything the page shows of a run that has ended.

    ``repeats`` are the speedups of every run of this very request, this one included.
    """
    return PlaygroundView(
        status=_final_status(run),
        headline=headline.headline(run, median_interval(repeats, seed=0)),
        stage=stage_text,
        charts=charts.build_charts(run, repeats),
        running=False,
        what_if=what_if,
        takeaway=takeaway(run, link_query),
        formula=formula_block(run),
        look="",
        kept=json.dumps(summary(run), ensure_ascii=False) if run.source != "recorded" else None,
    )


def what_if_view(
    run: Run,
    block_size: int,
    *,
    measured: Mapping[int, float],
    costs: Mapping[int, CycleCost] | None = None,
    checked: Checked | None = None,
) -> WhatIfView:
    """The prediction for one block size, beside what was really measured."""
    options = predictions(run, costs)
    if len(options) < 2:
        return WhatIfView(f'<p class="caption">{escape(captions.nothing_to_draw(run))}</p>')
    sentence = captions.what_if(options, block_size)
    if block_size == run.block_size:
        sentence += captions.whole_race(run, options[-1].speedup > 1)
    text = f'<p class="caption">{view.badge("modelled")} {escape(sentence)}</p>'
    if checked:
        text += f'<p class="caption">{view.badge("measured here")} {escape(_check(checked))}</p>'
    text += view.folded("as a table", _options_table(options))
    figure = charts.what_if(options, block_size, dict(measured), run.source)
    return WhatIfView(text, figure, maximum=run.block_size, value=block_size)


def _options_table(options: Sequence[Prediction]) -> str:
    heads = ("block", "tokens per cycle", "tok/s", "speedup", "tokens per cycle to break even")
    rows = [
        (
            p.block_size, f"{p.tau:.2f}", view.rate(p.output_tps), view.factor(p.speedup),
            f"{p.tau_needed:.2f}",
        )
        for p in options
    ]  # fmt: skip
    return view.table(heads, rows, "Predicted speed by block size, modelled")


def first_what_if(run: Run, costs: Mapping[int, CycleCost] | None = None) -> WhatIfView:
    """The what-if part after a run: the slider starts at the predicted best."""
    top = best(predictions(run, costs))
    speedup = run.comparison.speedup
    measured = {run.block_size: speedup} if speedup else {}
    block_size = top.block_size if top else run.block_size
    return what_if_view(run, block_size, measured=measured, costs=costs)


def replay_text(run: Run, *, autoplay: bool = False) -> str:
    """The stage's lines for a run that is already over."""
    writer = StageWriter(run.word)
    writer.header(StageHeader(run.id, run.shown_block, run.source, run.where, autoplay))
    writer.add(run.events())
    for number, odds in enumerate(run.odds):
        writer.odds(number, odds)
    close_stage(writer, run)
    return writer.text


def close_stage(writer: StageWriter, run: Run) -> None:
    """Write the last lines of a run."""
    if run.stopped:
        writer.stopped(_STOPPED_NOTE)
    writer.end(headline.stage_end(run))


def _check(checked: Checked) -> str:
    error = checked.predicted / checked.measured - 1 if checked.measured else 0.0
    side = "too high" if error > 0 else "too low"
    return (
        f"Block {checked.block_size} really gave {view.factor(checked.measured)}; predicted were "
        f"{view.factor(checked.predicted)}, {abs(error) * 100:.0f} % {side}."
    )


def _final_status(run: Run) -> str:
    if run.failures:
        said = "; ".join(f"{LANE_NAMES[lane]}: {text}" for lane, text in run.failures.items())
        return view.status_line("bad", said)
    if run.stopped:
        return view.status_line("warn", "stopped half way; the numbers so far are kept")
    comparison = run.comparison
    what = {"recorded": f"a run recorded on {run.where}", "opened": "a run from a file"}.get(
        run.source, "finished"
    )
    if comparison.first_difference is not None and headline.is_sampled(run):
        return view.status_line(
            "good",
            f"{what}: two random draws from the same odds, so the texts differ",
            "Temperature 0 makes both write the same text.",
        )
    if comparison.first_difference is not None:
        place = f"{comparison.difference_unit} {comparison.first_difference + 1}"
        return view.status_line("warn", f"{what}; the two texts differ from {place}")
    if not comparison.outputs_match:
        return view.status_line("warn", f"{what}; {headline.lossless_words(run, comparison)}")
    return view.status_line("good", f"{what}: both lanes wrote the same text")
