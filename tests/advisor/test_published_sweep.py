"""A published sweep over block sizes stands on its rung: shown and argued with, not obeyed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.predict import outlook
from advisor.published import Known, published
from advisor.recommend import recommend
from advisor.schema import Costs, DraftSpec
from advisor.situation import Situation
from dflash.presets import PairPreset
from dflash.strict_yaml import parse_yaml, validated

PAIR = """
id: p
title: "p"
status: embedded
target: {hub_id: a/t, source: ["https://example.com"]}
draft: {hub_id: a/d, block_size: 16, source: ["https://example.com"]}
published:
"""
TABLE = """
  - where: "python -m dflash.benchmark, 2026-12-01"
    source: [docs/page.md]
    block_size: %d
    temperature: 0.0
    note: "two cores."
    rows:
      - {benchmark: "all", tau: %s, speedup: %s}
      - {benchmark: "code", task: code, tau: %s, speedup: %s}
"""
ROWS = ((4, 3.0, 1.5, 3.5, 1.6), (8, 4.0, 1.9, 6.0, 2.2), (16, 5.0, 1.6, 9.0, 2.4))


def pair() -> PairPreset:
    text = PAIR + "".join(TABLE % row for row in ROWS)
    return validated(parse_yaml(text, name="p"), PairPreset, name="p")


def situation(**changes) -> Situation:
    """The pair's draft as its own config would give it, with what the catalogue publishes."""
    known = Known(pair(), pair().draft)
    asked = {"task": changes.pop("task", None), "temperature": changes.pop("temperature", 0.0)}
    draft = DraftSpec(dialect="z-lab", name="a/d", block_size=16, raw={"block_size": 16})
    return Situation(draft=draft, published=published(known, **asked), **changes)


def test_the_checkpoint_stays_above_the_sweep_and_says_what_the_sweep_says():
    answer = recommend(situation())
    block = answer.knobs["block_size"]
    assert (block.value, block.rung, block.rungs["published"]) == (16, "checkpoint", 8)
    assert "fastest at 8" in block.reason
    note = next(f for f in answer.findings if f.id == "block-size.faster-published")
    for part in ("1.90x at block size 8", "1.60x at 16", "two cores", "2026-12-01"):
        assert part in note.message
    assert "--tune" in note.hint


def test_the_sweep_is_the_answer_where_only_the_catalogue_knows_the_draft():
    known = situation()
    block = recommend(replace(known, draft=replace(known.draft, raw={}))).knobs["block_size"]
    assert (block.value, block.rung) == (8, "published")
    assert "1.50x at 4, 1.90x at 8, 1.60x at 16" in block.reason


def test_the_sweep_of_the_task_asked_for_is_taken():
    answer = recommend(situation(task="code"))
    block = answer.knobs["block_size"]
    assert (block.value, block.rungs["published"]) == (16, 16)
    assert not any(f.id == "block-size.faster-published" for f in answer.findings)
    assert "elsewhere" not in block.reason


def test_a_calibration_here_is_joined_with_the_sweep_s_own_tau_at_each_block():
    costs = Costs(0.01, dict.fromkeys((4, 8, 16), 0.001), {4: 0.011, 8: 0.012, 16: 0.03})
    rows = {row.block_size: row for row in outlook(situation(costs=costs)).rows}
    assert rows[8].speedup == pytest.approx(0.01 * 4.0 / 0.013)
    assert (rows[8].tau.low, rows[8].tau.high) == (4.0, 6.0)  # over the kinds of text
    assert rows[8].source == "modelled"


def test_a_sweep_taken_greedily_says_nothing_of_sampled_text():
    assert situation(temperature=1.0).published.speeds == ()
