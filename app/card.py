"""What a run leaves behind: a result card as SVG and HTML, its cycles as CSV, itself as JSON.

Knows runs and words. Everything is self-contained: no link to a style sheet, font or picture.
"""

from __future__ import annotations

import csv
import io
import json
from html import escape

from app import view
from app.headline import lossless_words
from app.race import BASELINE, DFLASH
from app.runs import Run, dump_run, trace_text
from dflash.schema import Cycle

_WIDTH, _HEIGHT = 760, 400
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_MAX_PROMPT = 92
_NO_CSV = "This run has no single cycles, so there is no table of them (CSV) to save."
_NOTE = "tokens/s while decoding, first token excluded; both lanes one after the other in turns"


def takeaway(run: Run, link_query: str | None) -> str:
    """Everything the take-away buttons hand out, as one JSON for the browser."""
    cycles = csv_of(run)
    return json.dumps(
        {
            "name": _file_name(run),
            "json": dump_run(run),
            "csv": cycles,
            "no_csv": _NO_CSV if cycles is None else "",
            "svg": svg_card(run),
            "html": html_card(run),
            "query": link_query,
        },
        ensure_ascii=False,
    )


def csv_of(run: Run) -> str | None:
    """One row per cycle of both lanes; ``None`` for a run without cycles."""
    run = run.counted
    if not (run.baseline.cycles or run.dflash.cycles):
        return None
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["lane", "cycle", "t_s", "drafted", "accepted", "emitted", "draft_s", "verify_s", "text"]
    )
    for name, trace in (("baseline", run.baseline), ("dflash", run.dflash)):
        for number, cycle in enumerate(trace.cycles, 1):
            writer.writerow([name, number, *_csv_cells(cycle)])
    return out.getvalue()


def svg_card(run: Run) -> str:
    """The result as one picture: numbers, two bars, where it was measured."""
    comparison = run.comparison
    left, right = comparison.baseline, comparison.dflash
    top = max(left.output_tps or 0, right.output_tps or 0) or 1
    plain = run.told(BASELINE, view.rate(left.output_tps))
    drafted = run.told(DFLASH, view.rate(right.output_tps))
    tau = (
        f"{right.spec.tau:.2f}" + (f" of {run.shown_block}" if run.shown_block else "")
        if right.spec and right.spec.tau
        else "not reported"
    )
    facts = (
        ("tokens per cycle (τ)", run.told(DFLASH, tau)),
        ("end to end", view.factor(comparison.end_to_end_speedup)),
        ("time to first token", run.told(DFLASH, view.milliseconds(right.ttft_s))),
        ("text", lossless_words(run, comparison)),
    )
    cells = "".join(
        _text(32 + 178 * n, 268, name, 13, "#555c64")
        + _text(32 + 178 * n, 290, value, 15, weight=600)
        for n, (name, value) in enumerate(facts)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" font-family="{_FONT}" role="img" '
        f'aria-label="{escape(_headline(run))}"><rect width="100%" height="100%" fill="#ffffff"/>'
        f'<rect width="8" height="100%" fill="#009E73"/>'
        + _text(32, 92, view.factor(comparison.speedup), 64, "#00694d", 700)
        + _text(34, 120, f"decode speedup, {run.source}", 14, "#555c64")
        + _text(250, 62, ", ".join(filter(None, (run.pair_id, run.block_words))), 18, weight=600)
        + _text(250, 88, _shortened(run.prompt), 13, "#555c64")
        + _text(250, 112, _situation(run), 13, "#555c64")
        + _bar(150, "one at a time", plain, (left.output_tps or 0) / top, "#7a8088")
        + _bar(194, "DFlash", drafted, (right.output_tps or 0) / top, "#009E73")
        + cells
        + _text(32, 336, _NOTE, 12, "#555c64")
        + _text(32, 356, run.where, 12, "#555c64")
        + _text(32, 376, _versions(run), 12, "#555c64")
        + "</svg>"
    )


def html_card(run: Run) -> str:
    """The card as a page of its own, with the prompt, the answer and the table of cycles."""
    rows = [
        (n, len(c.draft_ids), c.num_accepted, f"{c.draft_s * 1e3:.2f}", f"{c.verify_s * 1e3:.2f}")
        for n, c in enumerate(run.counted.dflash.cycles, 1)
    ]
    headers = ("cycle", "drafted", "accepted", "draft, ms", "verify, ms")
    cycles = view.table(headers, rows, "Cycles") if rows else "<p>No single cycles are known.</p>"
    failures = "".join(f"<p>{escape(text)}</p>" for text in run.failures.values())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(_headline(run))}</title><style>body{{font-family:{_FONT};margin:24px auto;"
        "max-width:800px;color:#1c1f23;padding:0 12px}svg{max-width:100%;height:auto;border:1px "
        "solid #dfe3e6;border-radius:8px}pre{white-space:pre-wrap;background:#f6f7f8;padding:10px;"
        "border-radius:6px}td,th{padding:2px 12px 2px 0;text-align:left}.sr-only{display:none}"
        f"</style></head><body><h1>{escape(_headline(run))}</h1>{failures}"
        f"{svg_card(run)}"
        f"<h2>Prompt</h2><pre>{escape(run.prompt)}</pre>"
        f"<h2>Answer</h2><pre>{escape(trace_text(run.dflash))}</pre>"
        f"<h2>Cycles</h2>{cycles}</body></html>"
    )


def _file_name(run: Run) -> str:
    parts = ("dflash", run.pair_id, run.block_words.replace(" ", ""), run.id)
    return "-".join(filter(None, parts)).replace("/", "-")


def _headline(run: Run) -> str:
    speedup = run.comparison.speedup
    gained = f"{view.factor(speedup)} decode speedup" if speedup else "no speedup to tell"
    return f"DFlash on {run.pair_id}: {gained}"


def _text(x: int, y: int, text: str, size: int, colour: str = "#1c1f23", weight: int = 400) -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}" font-weight="{weight}">'
        f"{escape(_printable(text))}</text>"
    )


def _bar(y: int, name: str, pace: str, share: float, colour: str) -> str:
    width = round(430 * share)
    return (
        _text(32, y + 22, name, 14)
        + f'<rect x="150" y="{y}" width="{width}" height="32" rx="3" fill="{colour}"/>'
        + _text(160 + width, y + 22, pace, 15, weight=600)
    )


def _situation(run: Run) -> str:
    info = run.dflash.engine
    temperature = run.dflash.request.sampling.temperature
    how = "greedy" if temperature == 0 else f"temperature {temperature:g}"
    state = "stopped half way, " if run.stopped else ""
    return f"{state}{how}, {info.backend}, {info.device}, {info.dtype}"


def _versions(run: Run) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(run.versions.items()))


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _MAX_PROMPT else flat[: _MAX_PROMPT - 1] + "…"


def _printable(text: str) -> str:
    """XML takes no control characters."""
    return "".join(c for c in text if c.isprintable())


def _csv_cells(cycle: Cycle) -> list[object]:
    text = "".join(cycle.pieces)
    # A cell that starts like a formula is quoted, so that a spreadsheet shows it as text.
    safe = f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
    return [
        f"{cycle.t_s:.6f}",
        len(cycle.draft_ids),
        cycle.num_accepted,
        len(cycle.emitted_ids),
        f"{cycle.draft_s:.6f}",
        f"{cycle.verify_s:.6f}",
        safe,
    ]


def summary(run: Run) -> dict[str, object]:
    """One row of the table of runs that the browser keeps."""
    comparison = run.comparison
    spec = comparison.dflash.spec
    return {
        "id": run.id,
        "date": run.date,
        "pair": run.pair_id,
        "block": run.shown_block,
        "prompt": _shortened(run.prompt),
        "tokens": comparison.dflash.num_output_tokens,
        "speedup": comparison.speedup,
        "end_to_end": comparison.end_to_end_speedup,
        "tau": run.told(DFLASH, spec.tau if spec else None),
        "dflash_tps": run.told(DFLASH, comparison.dflash.output_tps),
        "baseline_tps": run.told(BASELINE, comparison.baseline.output_tps),
        "ttft_s": comparison.dflash.ttft_s,
        "lossless": lossless_words(run, comparison),
        "stopped": run.stopped,
        "source": run.source,
        "machine": run.machine,
    }
