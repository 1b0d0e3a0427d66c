"""The catalogue as a page: docs/catalogue.md is written from presets/ and never by hand.

Knows Markdown and the catalogue. ``python -m advisor.catalog_page`` writes the file again; a test
fails when it is stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from advisor.catalog import (
    HardwarePreset,
    all_hardware,
    load_guide_preset,
    load_workload,
)
from advisor.known import known_pairs
from dflash.presets import PRESETS, DraftFacts, PairPreset, load_prompt_set, preset_ids

PAGE = PRESETS.parent / "docs" / "catalogue.md"
UNKNOWN = "–"
_MACHINE_FIELDS = {
    "memory_bytes": "memory",
    "bandwidth_bytes_per_s": "bandwidth",
    "flops_per_s": "rates",
}

INTRO = """# Catalogue

Written from `presets/` by `python -m advisor.catalog_page`; change the files there, not this page.
A dash means that nobody has published the number. Block sizes count the anchor; taps are layer
outputs counted from 0; tau counts the bonus token. Mind the revision: several drafts
were uploaded again, in June 2026, under the same name with another architecture.

What was opened: the drafts' figures were read from copies of their config.json files, of papers,
issues and pull requests, not from the model hub itself. A source on the hub says where a file
is published. Machines say for themselves at which page a figure was read (on 2026-12-01), and for
which figures no page was opened: those stand as their maker is remembered to print them, and a
calibration of your own machine replaces them all. CPU classes are computed, not published.
"""


def catalogue_page() -> str:
    """Return the whole page."""
    pairs = known_pairs()
    parts = [INTRO, _pairs(pairs), _published(pairs), _hardware(all_hardware())]
    return "\n".join([*parts, _workloads(), _guide(), _prompts()])


def write_page(path: Path = PAGE) -> None:
    """Write docs/catalogue.md."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(catalogue_page(), encoding="utf-8")


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"## {title}", "", _row(head), _row(["---"] * len(head))]
    return "\n".join([*lines, *(_row(row) for row in rows), ""])


def _row(cells: Sequence[object]) -> str:
    texts = (UNKNOWN if cell in (None, "") else str(cell).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(texts)} |"


def _links(urls: Iterable[str]) -> str:
    return " ".join(f"[{i}]({_target(url)})" for i, url in enumerate(dict.fromkeys(urls), start=1))


def _target(url: str) -> str:
    return url.removeprefix("docs/") if url.startswith("docs/") else url


def _pairs(pairs: Iterable[PairPreset]) -> str:
    head = (
        "id", "status", "target", "draft", "revision", "block", "taps", "of layers",
        "draft layers", "window", "mask", "thinking", "sources",
    )  # fmt: skip
    rows = [_draft_row(pair, facts) for pair in pairs for facts in pair.drafts]
    return _table("Pairs", head, rows)


def _draft_row(pair: PairPreset, facts: DraftFacts) -> tuple[object, ...]:
    revision = " ".join(part for part in (facts.label, facts.revision) if part)
    taps = ", ".join(map(str, facts.target_layer_ids or ()))
    if not taps and facts.num_taps:
        taps = f"{facts.num_taps}, ids not published"
    extra = [url for urls in facts.field_sources.values() for url in urls]
    return (
        f"`{pair.id}`", pair.status, pair.target.hub_id or pair.target.path,
        facts.hub_id or facts.path, revision, facts.block_size, taps, facts.num_target_layers,
        _layers(facts), facts.sliding_window, facts.mask_token_id,
        {True: "on", False: "off", None: None}[facts.thinking],
        _links([*facts.source, *extra, *pair.target.source]),
    )  # fmt: skip


def _layers(facts: DraftFacts) -> str | None:
    if facts.num_layers is None:
        return None
    if facts.layer_types is None:
        return str(facts.num_layers)
    num_full = facts.layer_types.count("full_attention")
    parts = ((facts.num_layers - num_full, "sliding"), (num_full, "full"))
    return " + ".join(f"{count} {kind}" for count, kind in parts if count)


def _published(pairs: Iterable[PairPreset]) -> str:
    head = (
        "id", "draft", "where", "engine", "hardware", "benchmark", "T", "at once", "context",
        "block", "tau", "speedup", "source",
    )  # fmt: skip
    rows = [
        (
            f"`{pair.id}`", table.draft_label, table.where, table.engine, table.hardware,
            row.benchmark, table.temperature, row.concurrency, row.context_tokens,
            table.block_size, row.tau, row.speedup, _links(table.source),
        )
        for pair in pairs
        for table in pair.published
        for row in table.rows
    ]  # fmt: skip
    return _table("Published results", head, rows)


def _hardware(presets: Iterable[HardwarePreset]) -> str:
    head = (
        "id", "name", "memory, GB", "bandwidth, GB/s", "TFLOP/s, dense", "note", "maker's page",
        "read at", "page not opened for",
    )  # fmt: skip
    rows = (
        (
            f"`{preset.id}`",
            preset.name,
            _scaled(preset.memory_bytes, 1e9),
            _scaled(preset.bandwidth_bytes_per_s, 1e9),
            ", ".join(f"{k} {v / 1e12:.4g}" for k, v in preset.flops_per_s.items()),
            preset.note,
            _links(preset.source),
            _links(url for urls in preset.field_sources.values() for url in urls),
            ", ".join(_MACHINE_FIELDS[name] for name in preset.unread),
        )
        for preset in presets
    )
    return _table("Machines", head, rows)


def _scaled(value: float | None, unit: float) -> str | None:
    return None if value is None else f"{value / unit:.4g}"


def _workloads() -> str:
    presets = [load_workload(workload_id) for workload_id in preset_ids("workloads")]
    rows = [
        (
            f"`{p.id}`",
            p.task,
            p.prompt_tokens,
            p.output_tokens,
            p.concurrency,
            p.temperature,
            p.basis,
        )
        for p in presets
    ]
    head = ("id", "task", "prompt tokens", "output tokens", "at once", "T", "basis")
    return _table("Workloads", head, rows)


def _guide() -> str:
    presets = [load_guide_preset(guide_id) for guide_id in preset_ids("guide")]
    rows = [
        (
            f"`{p.id}`", p.title, p.block_size,
            f"{p.block_size_low}-{p.block_size_high}" if p.block_size_low else None,
            ", ".join(map(str, p.target_layer_ids)) if p.target_layer_ids else "uniform",
            p.sliding_window_size, p.mask_token,
        )
        for p in presets
    ]  # fmt: skip
    head = ("id", "for", "block, example", "block, range", "taps", "window", "mask")
    return _table("The tuning guide's cases", head, rows)


def _prompts() -> str:
    sets = [load_prompt_set(set_id) for set_id in preset_ids("prompts")]
    rows = [(f"`{s.id}`", len(s.prompts), s.prompts[0].turns[0].split("\n")[0]) for s in sets]
    return _table("Prompt sets", ("id", "prompts", "the first one begins"), rows)


if __name__ == "__main__":
    write_page()
