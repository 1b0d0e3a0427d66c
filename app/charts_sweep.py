"""The heat map of a sweep: kinds x block sizes. Knows summaries and Plotly; knows no Gradio."""

from __future__ import annotations

from app.charts import Chart, empty_figure
from dflash.benchmark.summary import BlockSummary

_TITLE = "Decode speedup"


def heat_map(blocks: tuple[BlockSummary, ...]) -> Chart:
    """Median decode speedup per cell; cells that lose are red and below 1."""
    kinds = sorted({kind for block in blocks for kind in block.by_category})
    sizes = [block.block_size for block in blocks]
    values = [[_cell(block, kind) for block in blocks] for kind in kinds]
    known = [v for row in values for v in row if v is not None]
    if not known:
        return Chart(_TITLE, None, "Nothing is measured yet.")
    low, high = min(0.5, *known), max(1.5, *known)
    even = (1 - low) / (high - low)  # where the colour turns: at 1, wherever the ends are
    figure = empty_figure("block size", "")
    figure.add_heatmap(
        x=[str(size) for size in sizes], y=kinds, z=values,
        text=[["" if v is None else f"{v:.2f}×" for v in row] for row in values],
        texttemplate="%{text}", zmin=low, zmax=high,
        colorscale=[[0, "#D55E00"], [even, "#f7f7f7"], [1, "#009E73"]], showscale=False,
        textfont={"color": "#111"},
    )  # fmt: skip
    figure.update_xaxes(type="category")  # digits would be read as a scale with sizes between
    caption = (
        f"{sum(v < 1 for v in known)} of {len(known)} cells are slower than one token at a time; "
        f"the best is {max(known):.2f}×."
    )
    return Chart(_TITLE, figure, caption)


def _cell(block: BlockSummary, kind: str) -> float | None:
    group = block.by_category.get(kind)
    return group.decode_speedup.median if group and group.decode_speedup else None
