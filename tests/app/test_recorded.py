"""Recorded runs: how they are made, and that those in the project are true to their format."""

from __future__ import annotations

import dataclasses

import pytest

from app import recorded
from app.record_traces import record
from app.runs import dump_run, load_run
from app.session import PairChoice


def test_a_recording_reads_back_with_every_word_it_needs(counting_engine, ask):
    run = record(counting_engine(), PairChoice("demo"), ask(), kind="code", repeats=3)
    again = load_run(dump_run(run), source="recorded")
    assert again == dataclasses.replace(run, source="recorded")
    assert again.kind == "code" and again.machine and again.date
    for cycle in again.dflash.cycles:
        assert all(i in again.words for i in cycle.draft_ids)


def test_a_run_names_its_models_without_this_machines_folders(counting_engine, ask):
    engine = counting_engine()
    engine.info = dataclasses.replace(
        engine.info, target_id="/home/me/secret/demo/target", draft_id="z-lab/Qwen3-4B-DFlash-b16"
    )
    run = record(engine, PairChoice("demo"), ask(), kind="code", repeats=1)
    assert run.dflash.engine.target_id == "demo/target"
    assert run.dflash.engine.draft_id == "z-lab/Qwen3-4B-DFlash-b16"
    assert "secret" not in dump_run(run)


def test_a_damaged_recording_is_left_out_and_the_rest_is_shown(
    counting_engine, ask, tmp_path, monkeypatch
):
    run = record(counting_engine(), PairChoice("demo"), ask(), kind="code", repeats=1)
    (tmp_path / "1-good.json").write_text(dump_run(run))
    (tmp_path / "2-bad.json").write_text("{}")
    monkeypatch.setattr(recorded, "TRACES", tmp_path)
    recorded.recorded_runs.cache_clear()
    assert [r.id for r in recorded.recorded_runs()] == [run.id]
    recorded.recorded_runs.cache_clear()


@pytest.mark.parametrize("path", sorted(recorded.TRACES.glob("*.json")), ids=lambda p: p.name)
def test_a_shipped_recording_is_whole_small_and_lossless(path):
    run = load_run(path.read_text(encoding="utf-8"), source="recorded")
    assert path.stat().st_size < 300_000
    assert run.machine and run.date and run.kind and not run.stopped
    assert run.comparison.outputs_match
