"""Plotly figures of one run, each with a caption made from its data by rules, and its table.

Knows runs and Plotly; knows no Gradio. Colours carry the same meaning as on the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import plotly.graph_objects as go

from app import captions, view
from app.progress import progress
from app.runs import Run
from app.whatif import Prediction, cycle_cost
from dflash.metrics import acceptance_by_position, median_interval
from dflash.schema import Cycle, Trace

Figure: TypeAlias = go.Figure

INK = "#7a8088"  # the autoregressive lane: 3:1 against the page in both modes
GREEN = "#009E73"  # accepted, and the DFlash lane
BLUE = "#0072B2"  # bonus
RED = "#D55E00"  # rejected
GREY = "#999999"  # never judged
DRAFT = "#E69F00"
VERIFY = "#56B4E9"
OTHER = "#999999"
_REPEATS = "Speedup over repeats"
_GRID = "rgba(128,128,128,0.22)"
_MAX_POINTS = 600  # a line on a phone shows no more
_SHORT_AXIS = 10
_MAX_CYCLES = 200  # bars and heat map rows; the table has the same rows


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure (``None`` when the run cannot give it), its sentence, and the same as a table."""

    title: str
    figure: go.Figure | None
    caption: str
    headers: tuple[str, ...] = ()
    rows: tuple[tuple[object, ...], ...] = ()


def build_charts(run: Run, repeats: Sequence[float] = ()) -> tuple[Chart, ...]:
    """Every chart of one run, in the order of ``CHART_TITLES``.

    ``repeats`` are the speedups of every run of this very request, oldest first.
    """
    return (*(build(run.counted) for build in _BUILDERS.values()), over_repeats(repeats))


def tokens_over_time(run: Run) -> Chart:
    """Tokens written against each lane's own clock."""
    figure = empty_figure("seconds on the lane's own clock", "tokens")
    rows: list[tuple[object, ...]] = []
    top = 0
    lanes = (("Autoregressive", run.baseline, INK, "dot"), ("DFlash", run.dflash, GREEN, "solid"))
    for name, trace, colour, dash in lanes:
        points = _thinned(progress(trace), _MAX_POINTS)
        if not points:
            continue
        figure.add_scatter(
            x=[t for t, _ in points],
            y=[n for _, n in points],
            name=name,
            mode="lines",
            line={"color": colour, "shape": "hv", "width": 2.5, "dash": dash},
        )
        rows += [(name, f"{t:.3f}", n) for t, n in _thinned(points, 40)]
        top = max(top, points[-1][1])
    # Of two lanes one may have failed: a single line would have no name.
    figure.update_layout(yaxis=whole(top), showlegend=True)
    return Chart(
        "Tokens over time",
        figure if rows else None,
        captions.tokens_over_time(run),
        ("lane", "s", "tokens"),
        tuple(rows),
    )


def cycle_time(run: Run) -> Chart:
    """One median cycle by part, against one autoregressive step."""
    step, cycle = cycle_cost(run.baseline), cycle_cost(run.dflash)
    title = "Time of one cycle"
    if step is None or cycle is None:
        return _without(title, run)
    figure = empty_figure("ms", "")
    names = ["one AR step", f"one cycle, block {cycle.block_size}"]
    parts = (
        ("draft", DRAFT, (step.draft_s, cycle.draft_s), "/"),
        ("verify (target)", VERIFY, (step.verify_s, cycle.verify_s), ""),
        ("other", OTHER, (step.other_s, cycle.other_s), "."),
    )
    for name, colour, seconds, shape in parts:
        figure.add_bar(
            y=names,
            x=[s * 1e3 for s in seconds],
            name=name,
            orientation="h",
            marker={"color": colour, "pattern": {"shape": shape, "size": 5}},
        )
    figure.update_layout(barmode="stack", yaxis={"autorange": "reversed"})
    rows = tuple((name, *(f"{s * 1e3:.2f}" for s in seconds)) for name, _, seconds, _ in parts)
    return Chart(
        title, figure, captions.cycle_time(run), ("part", "AR step, ms", "cycle, ms"), rows
    )


def acceptance_positions(run: Run) -> Chart:
    """How often each position of the block was accepted."""
    title = "Acceptance by position"
    positions = acceptance_by_position(run.comparison.dflash.spec)
    if not positions:
        return Chart(title, None, captions.acceptance_positions(run))
    figure = empty_figure("position in the block", "accepted in, % of cycles")
    numbers = list(range(1, len(positions) + 1))
    shares = [100 * p for p in positions]
    figure.add_bar(x=numbers, y=shares, marker={"color": GREEN}, name="accepted", showlegend=False)
    figure.update_layout(yaxis={"range": [0, 100]}, xaxis={"dtick": 1 if len(numbers) < 20 else 2})
    rows = tuple((k, f"{s:.1f}") for k, s in zip(numbers, shares, strict=True))
    return Chart(
        title, figure, captions.acceptance_positions(run), ("position", "% of cycles"), rows
    )


def accepted_per_cycle(run: Run) -> Chart:
    """Accepted drafts cycle by cycle."""
    title = "Accepted per cycle"
    cycles = _drafted(run)
    if not cycles:
        return _without(title, run)
    figure = empty_figure("cycle", "drafts accepted")
    numbers, values = list(range(1, len(cycles) + 1)), [c.num_accepted for c in cycles]
    figure.add_bar(x=numbers, y=values, marker={"color": GREEN}, name="accepted", showlegend=False)
    figure.update_layout(xaxis=whole(len(values)), yaxis=whole(max(values)))
    mean = sum(values) / len(values)
    add_level(figure, mean, f"mean {mean:.1f}")
    return Chart(
        title,
        figure,
        captions.accepted_per_cycle(run),
        ("cycle", "accepted"),
        tuple(zip(numbers[:_MAX_CYCLES], values, strict=False)),
    )


def heat_map(run: Run) -> Chart:
    """Cycle by position: accepted, rejected, never judged."""
    title = "Where blocks end"
    cycles = _drafted(run)[:_MAX_CYCLES]
    if not cycles:
        return _without(title, run)
    width = run.block_size - 1
    states = {None: "", 0: "never judged", 1: "rejected", 2: "accepted"}
    grid = [[_state(c, k) for c in cycles] for k in range(width)]
    figure = empty_figure("cycle", "position")
    scale = [(0, GREY), (1 / 3, GREY), (1 / 3, RED), (2 / 3, RED), (2 / 3, GREEN), (1, GREEN)]
    figure.add_heatmap(
        z=grid,
        x=list(range(1, len(cycles) + 1)),
        y=list(range(1, width + 1)),
        customdata=[[states[state] for state in row] for row in grid],
        hovertemplate="cycle %{x}, position %{y}: %{customdata}<extra></extra>",
        zmin=0,
        zmax=2,
        colorscale=scale,
        xgap=1,
        ygap=1,
        colorbar={
            "tickvals": [1 / 3, 1, 5 / 3],
            "ticktext": [states[0], states[1], states[2]],
            "thickness": 8,
        },
    )
    figure.update_layout(xaxis=whole(len(cycles)), yaxis=whole(width))
    rows = tuple((n, c.num_accepted, len(c.draft_ids)) for n, c in enumerate(cycles, 1))
    return Chart(title, figure, captions.heat_map(run), ("cycle", "accepted", "drafted"), rows)


def histogram(run: Run) -> Chart:
    """How many cycles accepted how many drafts."""
    title = "Histogram"
    spec = run.comparison.dflash.spec
    if spec is None or not spec.acceptance_histogram or not spec.num_cycles:
        return Chart(title, None, captions.histogram(run))
    figure = empty_figure("drafts accepted in one cycle", "cycles")
    values = list(spec.acceptance_histogram)
    figure.add_bar(x=list(range(len(values))), y=values, marker={"color": GREEN}, showlegend=False)
    figure.update_layout(xaxis={"dtick": 1 if len(values) < 20 else 2}, yaxis=whole(max(values)))
    rows = tuple(enumerate(values))
    return Chart(title, figure, captions.histogram(run), ("accepted", "cycles"), rows)


def waterfall(run: Run) -> Chart:
    """Every cycle's time by part, against one autoregressive step."""
    title = "Time cycle by cycle"
    cycles, step = _drafted(run)[:_MAX_CYCLES], cycle_cost(run.baseline)
    if not cycles or step is None:
        return _without(title, run)
    figure = empty_figure("cycle", "ms")
    numbers = list(range(1, len(cycles) + 1))
    other_s = _other_s(run.dflash)[: len(cycles)]
    parts = (
        ("draft", DRAFT, [c.draft_s for c in cycles]),
        ("verify", VERIFY, [c.verify_s for c in cycles]),
        ("other", OTHER, other_s),
    )
    for name, colour, seconds in parts:
        figure.add_bar(x=numbers, y=[s * 1e3 for s in seconds], name=name, marker={"color": colour})
    add_level(figure, step.total_s * 1e3, "one AR step")
    figure.update_layout(barmode="stack", xaxis=whole(len(cycles)))
    rows = tuple(
        (n, f"{c.draft_s * 1e3:.2f}", f"{c.verify_s * 1e3:.2f}", f"{s * 1e3:.2f}")
        for n, c, s in zip(numbers, cycles, other_s, strict=True)
    )
    return Chart(
        title,
        figure,
        captions.waterfall(run),
        ("cycle", "draft, ms", "verify, ms", "other, ms"),
        rows,
    )


def wasted_work(run: Run) -> Chart:
    """What became of every drafted token, and of the target's passes."""
    title = "Work kept and wasted"
    cycles = _drafted(run)
    if not cycles:
        return _without(title, run)
    kept = sum(c.num_accepted for c in cycles)
    rejected = sum(c.num_accepted < len(c.draft_ids) for c in cycles)
    unjudged = sum(len(c.draft_ids) for c in cycles) - kept - rejected
    figure = empty_figure("drafted tokens", "")
    parts = (
        ("kept", GREEN, kept, ""),
        ("rejected", RED, rejected, "x"),
        ("never judged", GREY, unjudged, "."),
    )
    for name, colour, value, shape in parts:
        figure.add_bar(
            y=["drafted"],
            x=[value],
            name=name,
            orientation="h",
            marker={"color": colour, "pattern": {"shape": shape, "size": 5}},
            text=[f"{value}"],
        )
    figure.update_layout(barmode="stack", xaxis=whole(kept + rejected + unjudged))
    rows = tuple((name, value) for name, _, value, _ in parts)
    return Chart(title, figure, captions.wasted_work(run), ("drafted tokens", "number"), rows)


def speedup_so_far(run: Run) -> Chart:
    """The speedup at every length of the answer, with the break-even line at 1."""
    title = "Speedup as the answer grows"
    left, right = progress(run.baseline), progress(run.dflash)
    points = _thinned(_ratios(left, right), _MAX_POINTS)
    if run.comparison.speedup is None or len(points) < 2:
        return Chart(title, None, captions.speedup_so_far(run))
    figure = empty_figure("tokens of the answer", "× faster than one at a time")
    figure.add_scatter(
        x=[n for n, _ in points],
        y=[r for _, r in points],
        mode="lines",
        line={"color": GREEN, "width": 2.5},
        showlegend=False,
    )
    add_level(figure, 1, "break-even")
    figure.update_layout(yaxis={"rangemode": "tozero"}, xaxis=whole(points[-1][0]))
    rows = tuple((n, f"{r:.2f}") for n, r in _thinned(points, 40))
    return Chart(title, figure, captions.speedup_so_far(run), ("tokens", "speedup"), rows)


def over_repeats(speedups: Sequence[float]) -> Chart:
    """The speedup of every repeat of a request, with the median's interval as a band."""
    spread = median_interval(speedups, seed=0)
    if spread is None:
        return Chart(_REPEATS, None, captions.over_repeats(None))
    figure = empty_figure("run of this very request", "× decode speedup")
    numbers = list(range(1, len(speedups) + 1))
    if spread.low is not None and spread.high is not None:
        figure.add_hrect(y0=spread.low, y1=spread.high, fillcolor=GREEN, opacity=0.18, line_width=0)
    figure.add_scatter(
        x=numbers, y=list(speedups), mode="markers", marker={"color": GREEN, "size": 9},
        showlegend=False,
    )  # fmt: skip
    add_level(figure, 1, "break-even")
    figure.update_layout(yaxis={"rangemode": "tozero"}, xaxis={"dtick": 1})
    rows = tuple((n, f"{s:.2f}") for n, s in zip(numbers, speedups, strict=True))
    return Chart(_REPEATS, figure, captions.over_repeats(spread), ("run", "speedup"), rows)


def what_if(
    options: Sequence[Prediction], chosen: int, measured: dict[int, float], source: str
) -> go.Figure:
    """Predicted speedup over block size, with the block sizes that were really run on it.

    ``source`` is the badge word of the run they belong to.
    """
    figure = empty_figure("block size", "× decode speedup")
    figure.add_scatter(
        x=[p.block_size for p in options],
        y=[p.speedup for p in options],
        name="modelled",
        mode="lines+markers",
        line={"color": GREEN, "dash": "dot"},
        marker={"size": [11 if p.block_size == chosen else 5 for p in options]},
    )
    figure.add_scatter(
        x=list(measured),
        y=list(measured.values()),
        name=source,
        mode="markers",
        marker={"color": BLUE, "size": 11, "symbol": "diamond"},
    )
    add_level(figure, 1, "break-even")
    figure.update_layout(yaxis={"rangemode": "tozero"}, xaxis=whole(len(options)))
    return figure


_BUILDERS: dict[str, Callable[[Run], Chart]] = {
    "Tokens over time": tokens_over_time,
    "Time of one cycle": cycle_time,
    "Acceptance by position": acceptance_positions,
    "Speedup as the answer grows": speedup_so_far,
    "Accepted per cycle": accepted_per_cycle,
    "Where blocks end": heat_map,
    "Histogram": histogram,
    "Time cycle by cycle": waterfall,
    "Work kept and wasted": wasted_work,
}
CHART_TITLES: tuple[str, ...] = (*_BUILDERS, _REPEATS)


def empty_figure(x: str, y: str) -> go.Figure:
    """A figure in the page's look, with titled axes and nothing on it."""
    axis = {"gridcolor": _GRID, "zerolinecolor": _GRID, "linecolor": _GRID, "automargin": True}
    return go.Figure(
        layout={
            "height": 250,
            "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"size": 12, "color": INK, "family": "system-ui, sans-serif"},
            "xaxis": {**axis, "title": {"text": x, "standoff": 6}},
            "yaxis": {**axis, "title": {"text": y, "standoff": 6}},
            # Plotly would turn the names of stacked bars round.
            "legend": {
                "orientation": "h",
                "traceorder": "normal",
                "y": 1.02,
                "yanchor": "bottom",
                "x": 0,
            },
            "uirevision": "kept",
            "bargap": 0.15,
            "hovermode": "closest",
        }
    )


def whole(top: int) -> dict[str, int]:
    """An axis that counts up to ``top``: a short one would get ticks at halves by itself."""
    return {"dtick": 1} if top <= _SHORT_AXIS else {}


def add_level(figure: go.Figure, y: float, name: str) -> None:
    """A dashed line across the figure, named in the legend: a label on it would cover data."""
    line = {"color": INK, "dash": "dash"}
    figure.add_hline(y=y, line=line, name=name, showlegend=True)
    figure.update_layout(showlegend=True)


def _without(title: str, run: Run) -> Chart:
    return Chart(title, None, captions.nothing_to_draw(run))


def _drafted(run: Run) -> list[Cycle]:
    return [c for c in run.dflash.cycles if c.draft_ids]


def _state(cycle: Cycle, position: int) -> int | None:
    if position >= len(cycle.draft_ids):
        return None
    return 2 if position < cycle.num_accepted else int(position == cycle.num_accepted)


def _other_s(trace: Trace) -> list[float]:
    before = trace.prefilled.t_s if trace.prefilled else 0.0
    result = []
    for cycle in trace.cycles:
        if cycle.draft_ids:
            result.append(max(0.0, cycle.t_s - before - cycle.draft_s - cycle.verify_s))
        before = cycle.t_s
    return result


def _ratios(
    left: list[tuple[float, int]], right: list[tuple[float, int]]
) -> list[tuple[int, float]]:
    """(tokens, baseline seconds / DFlash seconds) since the first token, where both got there."""
    if not left or not right:
        return []
    result, at = [], 0
    for seconds, tokens in right[1:]:
        while at < len(left) and left[at][1] < tokens:
            at += 1
        if at == len(left):
            break
        spent_s = seconds - right[0][0]
        if spent_s > 0 and tokens > 1:
            result.append((tokens, (left[at][0] - left[0][0]) / spent_s))
    return result


def _thinned(points: list[Any], limit: int) -> list[Any]:
    if len(points) <= limit:
        return points
    stride = len(points) / limit
    return [points[int(i * stride)] for i in range(limit - 1)] + [points[-1]]


def chart_table(chart: Chart) -> str:
    """The chart's data as a folded table."""
    if not chart.rows:
        return ""
    return view.folded("as a table", view.table(chart.headers, chart.rows, chart.title))
