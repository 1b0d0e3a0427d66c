"""From runs to figures: paired ratios, the faster baseline, categories, differences, files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_engine import ScriptedEngine

from dflash.benchmark.foretold import foretold
from dflash.benchmark.lossless import find_differences
from dflash.benchmark.prompts import Prompt
from dflash.benchmark.report import Report, csv_text, table, to_json, write_json
from dflash.benchmark.runner import Arm, Plan, Run, measure
from dflash.benchmark.summary import arm_stats, best_block, pair_up, summarise
from dflash.close_look import Candidate, Divergence, SlotOdds
from dflash.measurements import Calibration, Provenance, StepCosts
from dflash.schema import SamplingParams, Trace

PROMPTS = [Prompt("code", ("one",)), Prompt("math", ("two",)), Prompt("math", ("three",))]
PROVENANCE = {"machine": "test", "device": "cpu", "dtype": "float32", "backend": "scripted"}


def run_all(
    engine: ScriptedEngine,
    *,
    generate: ScriptedEngine | None = None,
    blocks: tuple[int, ...] = (4,),
) -> list[Run]:
    arms = [Arm("baseline_loop", 1, engine)]
    if generate:
        arms.append(Arm("baseline_generate", 1, generate))
    arms += [Arm("dflash", b, engine) for b in blocks]
    steps = measure(Plan(tuple(arms), tuple(PROMPTS), SamplingParams(), repeats=2))
    return [s for s in steps if isinstance(s, Run)]


class Look:
    """Finds the same gap everywhere, and remembers what it was asked."""

    def __init__(self, gap: float = 0.125) -> None:
        self.gap = gap
        self.asked: list[tuple[Trace, Trace, int]] = []

    def divergence(self, baseline: Trace, dflash: Trace, index: int) -> Divergence:
        self.asked.append((baseline, dflash, index))
        ids = (baseline.output_ids[index], dflash.output_ids[index])
        best = (Candidate(ids[0], 2.0, 0.5), Candidate(ids[1], 2.0 - self.gap, 0.4))
        return Divergence(index, *ids, best, best)

    def slot_odds(self, trace: Trace) -> Iterator[tuple[SlotOdds, ...]]:
        return iter(())


def make_report(runs: list[Run], gap: float = 0.125) -> Report:
    differences = find_differences(runs, look=Look(gap))
    pairings = pair_up(runs)
    blocks = tuple(
        summarise(p, differences, block_size=b, checked=True, seed=0) for b, p in pairings.items()
    )
    return Report(
        blocks, best_block(blocks), tuple(runs), pairings, tuple(differences), (), PROVENANCE
    )


def test_the_speedup_is_the_ratio_of_times_per_token_and_tau_counts_the_bonus() -> None:
    engine = ScriptedEngine()
    (block,) = make_report(run_all(engine)).blocks
    # 15 tokens after the first: cycles of 4, 4, 4 and 3; the first also pays the draft prefill.
    decode_s = 4 * 0.15 + 0.05
    assert block.overall.decode_speedup is not None and block.overall.tau is not None
    assert block.overall.decode_speedup.median == pytest.approx(1.5 / decode_s)
    assert block.overall.decode_speedup.n == 3
    assert block.overall.tau.median == pytest.approx(1 + (3 + 3 + 3 + 2) / 4)
    assert block.overall.end_to_end_speedup is not None
    assert block.overall.end_to_end_speedup.median == pytest.approx(2.0 / (0.5 + decode_s))
    assert block.overall.draft_prefill_s is not None
    assert block.overall.draft_prefill_s.median == pytest.approx(0.05)


@pytest.mark.parametrize(("step_s", "name"), [(0.07, "baseline_generate"), (0.2, "baseline_loop")])
def test_the_faster_baseline_is_the_one_the_headline_is_measured_from(
    step_s: float, name: str
) -> None:
    runs = run_all(ScriptedEngine(), generate=ScriptedEngine(step_s=step_s))
    (block,) = make_report(runs).blocks
    assert block.baseline == name
    over = block.decode_speedup_over
    assert over["baseline_generate"] and over["baseline_loop"] and block.overall.decode_speedup
    assert block.overall.decode_speedup == over[block.baseline]
    assert over["baseline_generate"].median == pytest.approx(
        over["baseline_loop"].median * step_s / 0.1
    )


def test_categories_hold_their_own_prompts_only() -> None:
    (block,) = make_report(run_all(ScriptedEngine())).blocks
    assert {c: g.num_prompts for c, g in block.by_category.items()} == {"code": 1, "math": 2}


def test_equal_outputs_are_counted_and_a_difference_is_placed_with_its_margin() -> None:
    equal = make_report(run_all(ScriptedEngine())).headline.overall
    assert (equal.num_equal, equal.num_checked) == (3, 3)
    look, runs = Look(), run_all(ScriptedEngine(wrong_from=5))
    differences = find_differences(runs, look=look)
    assert sorted((d.prompt_index, d.token_index, d.margin, d.verdict) for d in differences) == [
        (i, 5, 0.125, "tie") for i in range(3)
    ]
    assert [(a.request.block_size, b.request.block_size, i) for a, b, i in look.asked] == [
        (1, 4, 5)
    ] * 3
    wrong = make_report(runs).headline.overall
    assert (wrong.num_equal, wrong.num_checked) == (0, 3)


def test_the_json_has_the_documented_form_and_per_block_summaries_when_there_are_several() -> None:
    runs = run_all(ScriptedEngine(), generate=ScriptedEngine(), blocks=(2, 4))
    data = json.loads(json.dumps(to_json(make_report(runs)), allow_nan=False))
    assert set(data) == {"summary", "runs", "provenance"}
    summary = data["summary"]
    for name in ("decode_speedup", "end_to_end_speedup", "tau"):
        assert set(summary[name]) == {"median", "low", "high", "n"}
    assert summary["lossless"] == {"num_equal": 3, "num_checked": 3}
    assert summary["num_prompts"] == 3
    assert set(summary["by_category"]) == {"code", "math"}
    assert set(summary["by_block_size"]) == {"2", "4"}
    assert summary["block_size"] == 4  # accepts three drafts a cycle, so 4 beats 2
    assert len(data["runs"]) == 3 * 2 * 2
    for run in data["runs"]:
        assert set(run["arms"]) == {"baseline_loop", "baseline_generate", "dflash"}
        for name, arm in run["arms"].items():
            assert arm["time_per_output_token"] == pytest.approx(arm["decode_s"] / 15)
            tokens = sum(arm["acceptance_lengths"])
            assert tokens == 15, name
    one = to_json(make_report(run_all(ScriptedEngine())))
    assert "by_block_size" not in one["summary"]


def test_the_table_names_block_kinds_baseline_machine_and_every_difference() -> None:
    text = table(make_report(run_all(ScriptedEngine(wrong_from=5), blocks=(4, 8)), gap=0.5))
    assert "our loop at block 1 (the faster one)" in text
    assert "best of 2 on these prompts" in text
    for words in (
        "code",
        "math",
        "0/3",
        "token 5 on",
        "0.5 apart there: no rounding, a fault",
        "3 prompts",
        "float32",
    ):
        assert words in text


def test_the_json_is_written_whole_and_the_csv_has_a_row_per_run(tmp_path: Path) -> None:
    runs = run_all(ScriptedEngine())
    write_json(tmp_path / "out" / "runs.json", to_json(make_report(runs)))
    rows = list(csv.DictReader(csv_text(runs).splitlines()))
    assert len(rows) == len(runs)
    assert float(rows[0]["time_per_output_token"]) == pytest.approx(0.1)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["runs.json"]


def test_a_one_token_answer_gives_no_ratio_instead_of_a_wild_one() -> None:
    runs = run_all(ScriptedEngine(answer=(9,)))
    assert arm_stats(runs[0]).tpot_s is None
    (block,) = make_report(runs).blocks
    assert block.overall.decode_speedup is None and block.overall.tau is None
    assert block.overall.num_prompts == 3
    assert "-" in table(make_report(runs))


def test_a_calibration_foretells_every_block_from_the_largest_ones_acceptance() -> None:
    engine = ScriptedEngine(draft_prefill_s=0.0)
    report = make_report(run_all(engine, blocks=(2, 4)))
    costs = StepCosts(
        context_tokens=3, ar_step_s=0.1, draft_s={2: 0.02, 4: 0.02}, verify_s={2: 0.13, 4: 0.13}
    )
    about = Provenance(target_id="t", draft_id="d", machine_id="m", machine="m", date="2026")
    found = foretold(
        report.blocks, report.pairings, Calibration(provenance=about, by_context=(costs,))
    )
    assert [f.block_size for f in found] == [2, 4]
    # Three cycles of 4 and one of 3 at block 4; at block 2 every cycle keeps 2.
    assert [f.predicted for f in found] == pytest.approx([0.1 * 2 / 0.15, 0.1 * 3.75 / 0.15])
    assert all(abs(f.error) < 0.1 for f in found)


def test_a_calibration_that_ran_each_block_foretells_with_what_each_accepted() -> None:
    report = make_report(run_all(ScriptedEngine(draft_prefill_s=0.0), blocks=(2, 4)))
    costs = StepCosts(
        context_tokens=3, ar_step_s=0.1, draft_s={2: 0.02, 4: 0.02}, verify_s={2: 0.13, 4: 0.13}
    )
    about = Provenance(target_id="t", draft_id="d", machine_id="m", machine="m", date="2026")
    calibration = Calibration(provenance=about, by_context=(costs,), tau_by_block={2: 1.5, 4: 3.0})
    found = foretold(report.blocks, report.pairings, calibration)
    assert [f.predicted for f in found] == pytest.approx([0.1 * 1.5 / 0.15, 0.1 * 3.0 / 0.15])
