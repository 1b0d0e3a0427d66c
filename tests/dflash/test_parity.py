"""The parity check's own rules: what counts as equal, and which kept results are used again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dflash.schema import Cycle, SamplingParams
from scripts.parity_cases import Case
from scripts.parity_kept import Part, read_part, write_part
from scripts.parity_report import CaseRow, markdown, verdict
from scripts.parity_sampled import SampledRow

CASE = Case("qwen3", "windowed, is_causal false")
EXPLAINED = Case("hybrid", "full", why="the official loop keeps rejected tokens")
CYCLES = [
    Cycle(0.1, (5, 6), 1, 7, (5, 7), 0.01, 0.02),
    Cycle(0.2, (8,), 0, 9, (9,), 0.01, 0.02),
]
THEIRS = {"output_ids": [4, 5, 7, 9], "blocks": [[4, 5, 6], [7, 8, 1]], "tokens_per_cycle": [2, 1]}


def row(case: Case, *, reference=(4, 5, 7, 9), **theirs) -> CaseRow:
    found = CaseRow(case, 3, ())
    ours = ([4, 5, 7, 9], CYCLES)
    found.add(list(reference), ours, ours, THEIRS | theirs)
    return found


def test_equal_answers_drafts_and_lengths_are_equal_and_a_narrowed_block_is_not_compared():
    found = row(CASE)
    assert verdict(found) == "equal"
    assert found.num_cycles == 1  # the second block is narrower on our side


@pytest.mark.parametrize(
    "theirs",
    [{"output_ids": [4, 5, 7, 8]}, {"blocks": [[4, 5, 0]]}, {"tokens_per_cycle": [1, 1]}],
    ids=lambda theirs: next(iter(theirs)),
)
def test_a_difference_needs_a_reason(theirs):
    assert verdict(row(CASE, **theirs)) == "DIFFERENT"
    assert verdict(row(EXPLAINED, **theirs)) == "explained"


def test_a_reason_never_covers_an_answer_of_ours_that_is_not_the_targets_own():
    assert verdict(row(EXPLAINED, reference=(4, 5, 7, 8))) == "DIFFERENT"
    assert verdict(replace(row(EXPLAINED), not_loaded=("fc.weight",))) == "DIFFERENT"


def test_a_part_is_read_back_equal_and_only_when_the_same_made_it(tmp_path):
    setting = SamplingParams(temperature=1.5, top_k=4, top_p=0.9)
    sampled = SampledRow(CASE, setting, 800, 0.4, 0.5, 1.6, 1.5, None)
    part = Part((row(CASE), row(CASE)), (sampled,), {"dflash": "0.1.0"})
    made_by = {"date": "2026-12-01", "draws": 800}
    assert read_part(tmp_path, CASE, made_by) is None
    write_part(tmp_path, CASE, made_by, part)
    assert read_part(tmp_path, CASE, made_by) == part
    assert read_part(tmp_path, CASE, made_by | {"draws": 400}) is None
    assert read_part(tmp_path, EXPLAINED, made_by) is None


def test_the_table_counts_its_verdicts_and_names_reasons_and_versions():
    rows = [row(CASE), row(EXPLAINED, output_ids=[4, 5, 7, 8])]
    text = markdown(rows, [], {"date": "2026-12-01", "ours: torch": "2.13.0"})
    assert "1 rows equal, 1 explained, 0 unexplained." in text
    assert "[1] the official loop keeps rejected tokens." in text
    assert "- ours: torch 2.13.0" in text and "- date 2026-12-01" in text
