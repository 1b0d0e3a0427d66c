"""Results of single parity cases on disk, so that a long check can be made in parts.

A part made by other versions, on another day or with another number of draws is not used.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from dflash.benchmark.report import write_json
from dflash.schema import SamplingParams
from scripts.parity_cases import Case
from scripts.parity_report import CaseRow
from scripts.parity_sampled import SampledRow


@dataclass(frozen=True, slots=True)
class Part:
    """Everything found out about one case. ``official`` holds the other side's versions."""

    rows: tuple[CaseRow, ...]
    sampled: tuple[SampledRow, ...]
    official: dict[str, str]


def write_part(folder: Path, case: Case, made_by: dict[str, Any], part: Part) -> None:
    """Keep one case's results, in ``folder``."""
    body = {
        "made_by": made_by,
        "rows": [_plain(row) for row in part.rows],
        "sampled": [_plain(row) | {"setting": asdict(row.setting)} for row in part.sampled],
        "official": part.official,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_json(_path(folder, case), body)


def read_part(folder: Path, case: Case, made_by: dict[str, Any]) -> Part | None:
    """The kept results of a case, if they were made by the same."""
    path = _path(folder, case)
    if not path.is_file():
        return None
    body = json.loads(path.read_text(encoding="utf-8"))
    if body["made_by"] != made_by:
        return None
    return Part(
        tuple(
            CaseRow(**row | {"case": case, "not_loaded": tuple(row["not_loaded"])})
            for row in body["rows"]
        ),
        tuple(
            SampledRow(**row | {"case": case, "setting": SamplingParams(**row["setting"])})
            for row in body["sampled"]
        ),
        body["official"],
    )


def _plain(row: CaseRow | SampledRow) -> dict[str, Any]:
    """A row's counts, without the case that it is about."""
    return {f.name: getattr(row, f.name) for f in fields(row) if f.name != "case"}


def _path(folder: Path, case: Case) -> Path:
    return folder / (re.sub(r"\W+", "-", f"{case.target} {case.name}".lower()).strip("-") + ".json")
