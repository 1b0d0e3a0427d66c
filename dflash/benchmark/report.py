"""The benchmark's report: JSON, CSV and a table for people. Knows the summary's values and the
names of the output format; measures nothing."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dflash.benchmark.foretold import Foretold
from dflash.benchmark.lossless import Difference
from dflash.benchmark.runner import ArmName, Run, Skipped
from dflash.benchmark.summary import (
    ArmStats,
    BlockSummary,
    GroupSummary,
    Pairing,
    arm_stats,
)
from dflash.metrics import MedianInterval
from dflash.whole_file import write_whole

ARM_TITLES: dict[ArmName, str] = {
    "baseline_loop": "our loop at block 1",
    "baseline_generate": "transformers generate",
    "dflash": "DFlash",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """What a command found: a text for people, a value for JSON, whether it was cut short, and
    the files still to be written: a full disk must not lose what is shown."""

    text: str
    data: Any
    interrupted: bool = False
    files: dict[Path, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """Everything one benchmark found. ``blocks`` has one entry per block size, in asked order."""

    blocks: tuple[BlockSummary, ...]
    headline: BlockSummary
    runs: tuple[Run, ...]
    pairings: dict[int, list[Pairing]]
    differences: tuple[Difference, ...]
    skipped: tuple[Skipped, ...]
    provenance: dict[str, Any]
    foretold: tuple[Foretold, ...] = ()  # empty without a calibration of this pair and machine


def to_json(report: Report) -> dict[str, Any]:
    """Give the documented output format. Speedups are ratios, times are seconds."""
    summary = _block_json(report.headline)
    if len(report.blocks) > 1:
        summary["by_block_size"] = {str(b.block_size): _block_json(b) for b in report.blocks}
    if report.foretold:
        summary["predicted"] = [
            {**dataclasses.asdict(f), "error": f.error} for f in report.foretold
        ]
    if report.skipped:
        summary["skipped"] = [dataclasses.asdict(s) for s in report.skipped]
    return {
        "summary": summary,
        "runs": [
            _run_json(pairing, block_size, report.differences)
            for block_size, pairings in report.pairings.items()
            for pairing in pairings
        ],
        "provenance": report.provenance,
    }


def blocks_of(summary: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The summaries by block size of a written report; one of a single block has no table."""
    by_block = summary.get("by_block_size") or {summary["block_size"]: summary}
    return {int(block): found for block, found in by_block.items()}


def write_json(path: Path, data: Any) -> None:
    """Write one JSON file, whole or not at all. Raises ``StorageError``."""
    write_whole(path, json_text(data))


def json_text(data: Any) -> str:
    """What a JSON file of ours holds."""
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def csv_text(runs: Iterable[Run]) -> str:
    """One row per measured run, in the order they ran."""
    rows = [_csv_row(run) for run in runs]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def table(report: Report) -> str:
    """The report for people: block sizes, then kinds of prompt, then what it rests on."""
    head = report.headline
    sections = [
        "\n".join(_rows("block", [(str(b.block_size), b.overall) for b in report.blocks])),
        f"Kinds of prompt at block {head.block_size}:\n"
        + "\n".join(_rows("kind", sorted(head.by_category.items()))),
        "\n".join(_notes(report)),
    ]
    if report.foretold:
        sections.insert(2, "\n".join(_foretold_rows(report.foretold)))
    return "\n\n".join(sections)


def _block_json(block: BlockSummary) -> dict[str, Any]:
    over = block.decode_speedup_over.items()
    return {
        **_group_json(block.overall),
        "by_category": {name: _group_json(g) for name, g in block.by_category.items()},
        "block_size": block.block_size,
        "baseline": block.baseline,
        "decode_speedup_over": {name: _interval_json(value) for name, value in over},
    }


def _group_json(group: GroupSummary) -> dict[str, Any]:
    """The group's fields as they are, except that equality is one nested object."""
    data: dict[str, Any] = {
        field.name: _interval_json(getattr(group, field.name))
        for field in dataclasses.fields(group)
        if field.name not in ("num_equal", "num_checked")
    }
    data["lossless"] = {"num_equal": group.num_equal, "num_checked": group.num_checked}
    return data


def _interval_json(value: Any) -> Any:
    return dataclasses.asdict(value) if isinstance(value, MedianInterval) else value


def _run_json(
    pairing: Pairing, block_size: int, differences: Sequence[Difference]
) -> dict[str, Any]:
    arms = {
        "baseline_loop": pairing.loop,
        "baseline_generate": pairing.generate,
        "dflash": pairing.dflash,
    }
    key = (pairing.prompt_index, block_size)
    difference = next((d for d in differences if (d.prompt_index, d.block_size) == key), None)
    return {
        "prompt_index": pairing.prompt_index,
        "category": pairing.category,
        "repeat": pairing.repeat,
        "block_size": block_size,
        "arms": {name: _arm_json(arm) for name, arm in arms.items() if arm is not None},
        "difference": dataclasses.asdict(difference) if difference else None,
    }


def _arm_json(arm: ArmStats) -> dict[str, Any]:
    return {
        "time_per_output_token": arm.tpot_s,
        "acceptance_lengths": list(arm.acceptance_lengths),
        "time_to_first_token": arm.ttft_s,
        "num_prompt_tokens": arm.num_prompt_tokens,
        "num_output_tokens": arm.num_output_tokens,
        "decode_s": arm.decode_s,
        "draft_s": arm.draft_s,
        "verify_s": arm.verify_s,
        "draft_prefill_s": arm.draft_prefill_s,
        "peak_memory_bytes": arm.peak_memory_bytes,
        "position": arm.position,
    }


def _csv_row(run: Run) -> dict[str, Any]:
    stats = arm_stats(run)
    return {
        "prompt_index": run.prompt_index,
        "category": run.category,
        "repeat": run.repeat,
        "arm": run.arm,
        "block_size": run.block_size,
        **{k: v for k, v in _arm_json(stats).items() if k != "acceptance_lengths"},
        "tau": stats.spec.tau if stats.spec else None,
    }


def _rows(label: str, groups: Sequence[tuple[str, GroupSummary]]) -> list[str]:
    width = max(len(label), *(len(name) for name, _ in groups))
    header = (
        f"{label:>{width}}  {'decode speedup':>22}  {'end to end':>10}  {'tau':>6}"
        f"  {'tok/s':>7}  {'AR tok/s':>8}  {'equal':>9}"
    )
    return [header] + [f"{name:>{width}}  {_cells(group)}" for name, group in groups]


def _cells(group: GroupSummary) -> str:
    equal = f"{group.num_equal}/{group.num_checked}" if group.num_checked else "-"
    return (
        f"{_interval(group.decode_speedup):>22}  {_median(group.end_to_end_speedup):>10}"
        f"  {_median(group.tau):>6}  {_per_second(group.tpot_s):>7}"
        f"  {_per_second(group.baseline_tpot_s):>8}  {equal:>9}"
    )


def _foretold_rows(found: Sequence[Foretold]) -> list[str]:
    header = f"{'block':>5}  {'predicted':>9}  {'measured':>8}  {'error':>6}"
    return [f"Decode speedup over {ARM_TITLES['baseline_loop']}, from the calibration:", header] + [
        f"{f.block_size:>5}  {f.predicted:>8.2f}x  {f.measured:>7.2f}x  {100 * f.error:>+5.0f}%"
        for f in found
    ]


def _notes(report: Report) -> list[str]:
    head, about = report.headline, report.provenance
    chosen = ""
    if len(report.blocks) > 1:
        chosen = f" Block {head.block_size} is the best of {len(report.blocks)} on these prompts."
    notes = [
        f"Medians of per-prompt paired ratios, {head.overall.num_prompts} prompts, bootstrap 95 %"
        f" intervals; the baseline is {ARM_TITLES[head.baseline]} (the faster one).{chosen}",
        f"TTFT {_ms(head.overall.ttft_s)} against {_ms(head.overall.baseline_ttft_s)}; "
        f"draft prefill {_ms(head.overall.draft_prefill_s)}, counted as decode.",
        f"{about['machine']}, {about['device']}, {about['dtype']}, {about['backend']}.",
    ]
    for skipped in report.skipped:
        notes.append(f"Prompt {skipped.prompt_index} was left out: {skipped.reason}")
    return notes + [_difference_note(d) for d in report.differences]


def _difference_note(difference: Difference) -> str:
    where = f"prompt {difference.prompt_index} ({difference.category})"
    note = f"Block {difference.block_size}, {where}: differs from token {difference.token_index} on"
    if difference.verdict is None:
        return f"{note}; why is unknown."
    apart = f"the target's best two logits are {difference.margin:.2g} apart there"
    meaning = {"tie": "a rounding tie", "fault": "no rounding, a fault"}
    return f"{note}; {apart}: {meaning[difference.verdict]}."


def _interval(value: MedianInterval | None) -> str:
    if value is None:
        return "-"
    if value.low is None or value.high is None:
        return f"{value.median:.2f}x"
    return f"{value.median:.2f}x [{value.low:.2f}, {value.high:.2f}]"


def _median(value: MedianInterval | None) -> str:
    return "-" if value is None else f"{value.median:.2f}"


def _per_second(tpot_s: MedianInterval | None) -> str:
    return "-" if tpot_s is None else f"{1 / tpot_s.median:.0f}"


def _ms(value: MedianInterval | None) -> str:
    return "unknown" if value is None else f"{1000 * value.median:.0f} ms"
