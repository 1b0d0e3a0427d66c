"""Measurements survive the disk, are found by pair and machine, and never half written."""

from __future__ import annotations

import json

import pytest

from dflash.measurements import (
    Calibration,
    Interval,
    MeasurementError,
    Provenance,
    StepCosts,
    TunedBlock,
    TuneResult,
    latest_for,
    load,
    measurements_dir,
    save,
)


def about(date="2026-12-01T10:00:00+00:00", machine_id="m1", **more) -> Provenance:
    return Provenance(
        target_id="t", draft_id="d", machine_id=machine_id, machine="2 cores", date=date, **more
    )


def calibration(**more) -> Calibration:
    costs = tuple(
        StepCosts(context_tokens=n, ar_step_s=0.01, draft_s={4: 0.001}, verify_s={4: 0.02})
        for n in (64, 1024)
    )
    return Calibration(provenance=about(**more), by_context=costs, tau_per_position=(0.5, 0.2))


def tuning(**more) -> TuneResult:
    block = TunedBlock(
        block_size=4, decode_speedup=Interval(median=1.5, low=1.4, high=1.6, n=8), tau=2.5
    )
    return TuneResult(
        provenance=about(**more), tuned=(block,), judged=block, num_tuning_prompts=6,
        num_judging_prompts=6,
    )  # fmt: skip


@pytest.mark.parametrize("measurement", [calibration(), tuning(pair_id="demo")])
def test_a_measurement_reads_back_as_it_was_saved(tmp_path, measurement):
    path = save(measurement, tmp_path)
    assert load(path, type(measurement)) == measurement
    assert not list(tmp_path.glob("*.part"))


def test_the_newest_of_this_pair_on_this_machine_is_found(tmp_path):
    save(calibration(), tmp_path)
    newer = calibration(date="2026-12-02T10:00:00+00:00")
    save(newer, tmp_path)
    save(calibration(machine_id="m2", date="2026-12-03T10:00:00+00:00"), tmp_path)
    (tmp_path / "calibration-broken.json").write_text("{")
    ids = {"target_id": "t", "draft_id": "d", "folder": tmp_path}
    assert latest_for(Calibration, "m1", **ids) == newer
    assert latest_for(TuneResult, "m1", **ids) is None
    assert latest_for(Calibration, "m3", **ids) is None
    assert latest_for(Calibration, "m1", pair_id="demo", folder=tmp_path) is None


def test_a_pair_is_also_found_by_its_id(tmp_path):
    save(tuning(pair_id="demo"), tmp_path)
    assert latest_for(TuneResult, "m1", pair_id="demo", folder=tmp_path) is not None


def test_the_nearest_context_is_used():
    assert calibration().nearest(900).context_tokens == 1024
    assert calibration().nearest(None).context_tokens == 64


@pytest.mark.parametrize(
    "change",
    [
        {"by_context": []},
        {"kind": "tune"},
        {"tau_per_position": [1.5]},
        {"surprise": 1},
        {"by_context": [{"context_tokens": 1, "ar_step_s": -1, "draft_s": {"4": 1}, "verify_s": {"4": 1}}]},
        {"by_context": [{"context_tokens": 1, "ar_step_s": 1, "draft_s": {"4": 1}, "verify_s": {"8": 1}}]},
    ],
)  # fmt: skip
def test_a_broken_file_is_refused_in_one_sentence(tmp_path, change):
    path = tmp_path / "calibration-x.json"
    path.write_text(json.dumps({**calibration().model_dump(mode="json"), **change}))
    with pytest.raises(MeasurementError) as caught:
        load(path, Calibration)
    assert str(path) in str(caught.value)


def test_the_store_can_be_moved_by_an_environment_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("DFLASH_MEASUREMENTS", str(tmp_path))
    assert measurements_dir() == tmp_path
