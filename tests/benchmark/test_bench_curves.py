"""Predicted against measured becomes a page, a curve and the pair's published rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dflash.benchmark.curves import main, page, read_curves, svg
from dflash.presets import PRESETS, read_pair


def interval(median: float) -> dict[str, Any]:
    return {"median": median, "low": median - 0.1, "high": median + 0.1, "n": 12}


def block(size: int, speedup: float, tau: float) -> dict[str, Any]:
    group = {
        "num_prompts": 12, "decode_speedup": interval(speedup), "tau": interval(tau),
        "lossless": {"num_equal": 12, "num_checked": 12},
    }  # fmt: skip
    return {
        **group,
        "block_size": size,
        "by_category": {"code": group, "riddles": group},
        "decode_speedup_over": {"baseline_loop": interval(speedup)},
    }


def told(size: int, predicted: float) -> dict[str, Any]:
    return {
        "block_size": size, "predicted": predicted, "measured": 0, "tau": 3.0,
        "ar_step_s": 0.001, "draft_s": 0.0005, "verify_s": 0.0015,
    }  # fmt: skip


def run_of(pair_id: str = "demo") -> dict[str, Any]:
    return {
        "summary": {
            **block(8, 2.0, 4.0),
            "by_block_size": {"4": block(4, 1.5, 3.0), "8": block(8, 2.0, 4.0)},
            "predicted": [told(8, 2.3), told(4, 1.6)],
        },
        "provenance": {
            "pair_id": pair_id, "draft_id": "d", "dataset": "demo", "machine": "two cores",
            "device": "cpu", "dtype": "float32", "num_threads": 2, "backend": "torch",
            "date": "2026-12-01T20:15:00+00:00", "sampling": {"temperature": 0.0},
            "command": "python -m dflash.benchmark ...",
            "calibration": {"date": "2026-12-01T20:00:00+00:00", "num_prompts": 72},
        },
    }  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run_of()), "utf-8")
    return path


def test_every_block_is_held_against_the_bar_and_the_worst_is_named(run: Path) -> None:
    text = page(read_curves(run), svg_name="c.svg")
    assert "**1 of 2 block sizes are within 10%**" in text
    assert "furthest off at block 8: +15.0%" in text
    assert "| 4 | 3.00 | 0.50 | 1.50 | 1.60x | 1.50x [1.40, 1.60] | +6.7% | within |" in text
    assert "| **missed by 5.0%** |" in text
    assert "median over prompts, on 72 prompts" in text and "24 of 24" in text


def test_the_curve_is_an_image_with_a_mark_per_block_and_kind(run: Path) -> None:
    drawing = ElementTree.fromstring(svg(read_curves(run)))
    kinds = [child.tag.rpartition("}")[2] for child in drawing]
    assert kinds.count("circle") == 2 and kinds.count("rect") == 1 + 2
    bars = [c for c in drawing if c.get("stroke") == "#1d4ed8" and c.tag.endswith("line")]
    dots = [c for c in drawing if c.tag.endswith("circle")]
    for bar, dot in zip(bars, dots, strict=True):
        assert float(bar.get("y2", "")) < float(dot.get("cy", "")) < float(bar.get("y1", ""))


def test_the_pair_s_preset_takes_the_rows_and_stays_valid(run: Path, tmp_path: Path) -> None:
    preset = tmp_path / "demo.yaml"
    preset.write_text((PRESETS / "pairs" / "demo.yaml").read_text("utf-8"), "utf-8")
    for _ in range(2):  # a second run replaces the rows of the first
        flags = ["--write", str(tmp_path / "page.md"), "--pair", str(preset)]
        assert main([str(run), *flags]) == 0
    tables = read_pair(preset).published
    assert [(t.block_size, t.rows[0].speedup, t.rows[0].tau) for t in tables] == [
        (4, 1.5, 3.0), (8, 2.0, 4.0),
    ]  # fmt: skip
    assert [row.task for row in tables[0].rows] == [None, "code"]  # riddles are no task of ours
    assert tables[0].source == ("docs/page.md",) and "two cores" in tables[0].note


def test_rows_of_another_pair_are_refused_and_nothing_is_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.write_text(json.dumps(run_of("qwen3-8b")), "utf-8")
    preset = tmp_path / "demo.yaml"
    before = (PRESETS / "pairs" / "demo.yaml").read_text("utf-8")
    preset.write_text(before, "utf-8")
    assert main([str(run), "--write", str(tmp_path / "p.md"), "--pair", str(preset)]) == 2
    assert "not 'demo'" in capsys.readouterr().err
    assert preset.read_text("utf-8") == before
    assert not (tmp_path / "p.md").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"summary": {"block_size": 8}}'])
def test_a_file_without_predictions_is_one_sentence_with_what_to_run(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    path.write_text(text, "utf-8")
    assert main([str(path), "--write", str(tmp_path / "p.md")]) == 2
    assert "--calibrate" in capsys.readouterr().err
    assert not (tmp_path / "p.md").exists()
