"""The advisor's curve: predicted speedup by block size, with measured points on it.

Knows recommendations and Plotly; knows no Gradio.
"""

from __future__ import annotations

from advisor.schema import Recommendation
from app import view
from app.charts import BLUE, GREEN, Chart, add_level, empty_figure, whole

_TITLE = "Speedup by block size"


def speedup_curve(answer: Recommendation) -> Chart:
    """Predicted points as a line with its interval, measured ones as diamonds, break-even at 1."""
    points = [p for p in answer.curve if p["speedup"] is not None]
    if not points:
        return Chart(_TITLE, None, "No curve: the machine's costs or the acceptance are not known.")
    figure = empty_figure("block size", "speedup")
    figure.update_layout(xaxis=whole(max(p["block_size"] for p in points)))
    measured = [p for p in points if p["source"] == "measured"]
    predicted = [p for p in points if p["source"] != "measured"]
    if predicted:
        _add_band(figure, predicted)
        figure.add_scatter(
            x=[p["block_size"] for p in predicted], y=[p["speedup"] for p in predicted],
            mode="lines+markers", name="predicted", line={"color": GREEN, "dash": "dash"},
        )  # fmt: skip
    if measured:
        figure.add_scatter(
            x=[p["block_size"] for p in measured], y=[p["speedup"] for p in measured],
            mode="lines+markers", name="measured here", line={"color": BLUE},
            marker={"symbol": "diamond", "size": 9},
        )  # fmt: skip
    add_level(figure, 1, "break-even")
    rows = tuple(
        (p["block_size"], view.factor(p["speedup"]), view.number(p["tau"]), p["source"])
        for p in points
    )
    return Chart(_TITLE, figure, _caption(answer, points), ("block", "speedup", "τ", "from"), rows)


def _add_band(figure, points) -> None:  # type: ignore[no-untyped-def]
    known = [p for p in points if p["low"] is not None and p["high"] is not None]
    if not known:
        return
    xs = [p["block_size"] for p in known]
    figure.add_scatter(
        x=xs + xs[::-1], y=[p["high"] for p in known] + [p["low"] for p in known][::-1],
        fill="toself", fillcolor="rgba(0,158,115,0.12)", line={"width": 0}, hoverinfo="skip",
        name="interval",
    )  # fmt: skip


def _caption(answer: Recommendation, points: list[dict]) -> str:  # type: ignore[type-arg]
    best = max(points, key=lambda p: p["speedup"])
    chosen = answer.knobs["block_size"].value
    if best["speedup"] <= 1:
        return "No block size is predicted to beat one token at a time."
    if best["block_size"] == chosen:
        return f"{chosen} is the fastest of the {len(points)} block sizes looked at."
    return (
        f"{best['block_size']} is the fastest predicted; {chosen} is advised: "
        f"{answer.knobs['block_size'].reason}."
    )
