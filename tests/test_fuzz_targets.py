"""Every target of scripts/fuzz.py takes the files it starts from and refuses garbage, at once."""

from __future__ import annotations

import random
import time

import pytest

from scripts.fuzz import Campaign
from scripts.fuzz_input import Choices, deepened, edited, flow_yaml
from scripts.fuzz_targets import EDITED, RAW, TARGETS, Target, load, try_input

NAMES = sorted(TARGETS)


@pytest.mark.parametrize("name", NAMES)
def test_a_target_accepts_its_seeds(name):
    target = load(name)
    assert len(target.seeds) >= 2
    assert [seed for seed in target.seeds if not try_input(target, seed)] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_target_takes_or_refuses_garbage_within_a_second(name):
    target = load(name)
    garbage = [b"", RAW, RAW + b"{", RAW + b"\xff\xfe" * 8, RAW + b"[" * 5000, RAW + b"null"]
    garbage += [EDITED + random.Random(i).randbytes(40) for i in range(5)]
    for data in garbage:
        start_s = time.process_time()
        try_input(target, data)
        assert time.process_time() - start_s < 1
    assert not try_input(target, RAW + b"\xff\xfe" * 8) or name in ("link", "server")


def test_a_fault_that_is_no_refusal_is_kept_once_with_its_input(tmp_path):
    def read(data: bytes) -> None:
        raise KeyError(data[0])

    campaign = Campaign("x", Target("x", read, ()), minutes=60.0, output=tmp_path)
    for data in (b"a", b"b"):
        campaign(data)
    assert campaign.executions == 2 and list(campaign.findings.values()) == ["KeyError: 97"]
    assert (tmp_path / "finding-1.bin").read_bytes() == b"a"


def test_the_same_bytes_give_the_same_edits_and_no_bytes_give_the_document():
    document = {"a": [1, {"b": "x"}], "c": None}
    assert edited([document], ("a", "b"), Choices(b"")) == document
    for seed in range(200):
        data = random.Random(seed).randbytes(30)
        one, two = (edited([document], ("a", "b"), Choices(data)) for _ in range(2))
        assert repr(one) == repr(two)
    assert document == {"a": [1, {"b": "x"}], "c": None}


def test_deep_nesting_and_flow_yaml_are_written_as_they_are_meant():
    assert (
        deepened('{"a": "@deep100@"}', Choices(b"")) == '{"a": ' + "[" * 100 + "1" + "]" * 100 + "}"
    )
    assert flow_yaml({"a": [1, None, "x: y"]}, Choices(b"")) == '{"a": [1, null, "x: y"]}'
