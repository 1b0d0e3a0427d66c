"""Measurement files are used to the letter or refused in one sentence that names the fault."""

from __future__ import annotations

import json

import pytest

from advisor.evidence_files import EvidenceError, read_costs, read_tau_per_position

GOOD = {"ar_step_s": 0.01, "draft_s": {"4": 0, "8": 0.002}, "verify_s": {"4": 0.011, "8": 0.012}}


def write(tmp_path, content) -> object:
    path = tmp_path / "file.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_good_files_are_read_as_they_stand(tmp_path):
    costs = read_costs(write(tmp_path, {**GOOD, "machine": "mine"}))
    assert (costs.ar_step_s, costs.draft_s, costs.verify_s) == (
        0.01, {4: 0.0, 8: 0.002}, {4: 0.011, 8: 0.012},
    )  # fmt: skip
    assert read_tau_per_position(write(tmp_path, [1, 0.5, 0])) == (1.0, 0.5, 0.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ar_step_s": 0}, "ar_step_s is 0 s; it must be above 0"),
        ({"ar_step_s": -1}, "ar_step_s is -1 s"),
        ({"ar_step_s": True}, "true or false, not a number"),
        ({"ar_step_s": "0.1"}, "ar_step_s is text, not a number"),
        ({"ar_step_s": None}, "ar_step_s is null"),
        ({"ar_step_s": 10**400}, "too large a number"),
        ({"draft_s": {}}, "draft_s is empty"),
        ({"draft_s": [1]}, "is a list"),
        ({"draft_s": {"4": -0.1}}, "draft_s[4] is -0.1 s"),
        ({"verify_s": {"4": 0}}, "verify_s[4] is 0 s"),
        ({"verify_s": {"four": 0.1}}, "'four', which is not a block size"),
        ({"verify_s": {"0": 0.1}}, "'0', which is not a block size"),
        ({"verify_s": {"4": 0.1, "04": 0.2}}, "gives block size 4 twice"),
        ({"verify_s": {"16": 0.1}}, "no block size has both"),
    ],
)
def test_a_bad_value_is_named(tmp_path, change, said):
    with pytest.raises(EvidenceError) as caught:
        read_costs(write(tmp_path, {**GOOD, **change}))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is not JSON"),
        ("[NaN]", "not a finite number"),
        ("[Infinity]", "not a finite number"),
        ("[]", "empty"),
        ("[1.5]", "position 1 is 1.5, not between 0 and 1"),
        ("[0.5, -0.1]", "position 2 is -0.1"),
        ('{"a": 1}', "is a list, not an object"),
        ("[" * 100_000, "is not JSON"),
        ("[" + "9" * 5000 + "]", "is not JSON"),
    ],
)
def test_a_bad_acceptance_file_is_named(tmp_path, content, said):
    with pytest.raises(EvidenceError) as caught:
        read_tau_per_position(write(tmp_path, content))
    assert said in str(caught.value)


def test_a_key_written_twice_is_refused(tmp_path):
    text = '{"ar_step_s": 1, "ar_step_s": 2, "draft_s": {"4": 1}, "verify_s": {"4": 1}}'
    with pytest.raises(EvidenceError, match="written twice"):
        read_costs(write(tmp_path, text))


def test_folders_and_missing_files_are_named(tmp_path):
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(EvidenceError, match="is not a file"):
            read_costs(path)
