"""The machine is described from what it says of itself, and its id is stable."""

from __future__ import annotations

from dataclasses import replace

from dflash import device


def test_this_machine_is_described():
    machine = device.detect()
    assert machine.num_cores >= 1
    assert machine.kind in ("gpu", "apple", "cpu")
    assert machine.title


def test_the_id_is_stable_and_differs_for_another_machine():
    machine = device.detect()
    assert device.machine_id() == device.machine_id(machine)
    assert device.machine_id(replace(machine, num_cores=machine.num_cores + 1)) != (
        device.machine_id()
    )


def test_nvidia_gpus_are_read_from_their_own_tool(monkeypatch):
    said = "NVIDIA H200, 143771\nNVIDIA H200, [N/A]"
    monkeypatch.setattr(device, "_output", lambda *command: said)
    assert device._nvidia_gpus() == (
        device.Gpu("NVIDIA H200", 143771 * 2**20), device.Gpu("NVIDIA H200", None),
    )  # fmt: skip


def test_a_missing_tool_means_unknown():
    assert device._output("no-such-tool-anywhere") is None
