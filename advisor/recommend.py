"""One recommendation from one situation: ladder, verdict, estimates, alternatives, findings.

Pure and quick: everything it needs is in the situation. Unknown numbers stay ``None``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from advisor import against_guide, estimates, knobs, remarks, training, verdict
from advisor.exports import commands
from advisor.exports.draft_config import config_for
from advisor.predict import outlook
from advisor.schema import Finding, Knob, Recommendation
from advisor.situation import Situation


def recommend(situation: Situation, findings: tuple[Finding, ...] = ()) -> Recommendation:
    """Answer all four knobs, whether DFlash pays, and why.

    ``findings`` are those of the config doctor; the answer adds its own after them.
    """
    view = outlook(situation)
    settled = {
        "block_size": knobs.block_size(situation, view),
        "target_layer_ids": knobs.target_layer_ids(situation),
        "sliding_window_size": knobs.sliding_window_size(situation),
        "mask_token_id": knobs.mask_token_id(situation),
    }
    block = settled["block_size"]
    chosen = view.at(block.value)
    judged, headline = verdict.verdict(view, block, chosen)
    memory = estimates.memory(situation, settled)
    own = [
        *remarks.beyond_trained(situation, view),
        *remarks.rising_acceptance(situation),
        *remarks.faster_predicted(situation, view, block, chosen),
        *remarks.faster_published(situation, block),
        *remarks.assumed_depth(situation, settled["target_layer_ids"]),
        *remarks.does_not_fit(situation, memory),
        *remarks.costs_at_one(situation),
        *remarks.unknown_machine(situation),
        *against_guide.contradictions(settled, situation),
    ]
    stopped = verdict.blocked((*findings, *own))
    if stopped is not None and block.rung != "measured":
        judged, headline = "off", stopped
    answer = Recommendation(
        mode=situation.mode,
        verdict=judged,
        headline=headline,
        knobs=settled,
        estimate=estimates.estimates(block, view, memory),
        break_even_tau=estimates.break_even(view, chosen),
        alternatives=verdict.alternatives(view, block, chosen),
        findings=(*findings, *own),
        exports={},
        inputs=_inputs(situation),
        training=_training(situation, settled),
        curve=tuple(estimates.curve_point(row) for row in view.rows),
        target_name=situation.target_name,
        draft_name=situation.draft_name,
        draft_config=config_for(situation, settled),
    )
    written = commands(answer)
    return replace(
        answer,
        exports={engine: export.text for engine, export in written.items()},
        export_notes={engine: export.notes for engine, export in written.items()},
    )


def _inputs(situation: Situation) -> dict[str, Any]:
    """What was asked: the fields as given, with the workload even when it came from a form."""
    work = situation.workload
    asked = {
        "task": work.task,
        "prompt_tokens": work.prompt_tokens,
        "max_new_tokens": work.output_tokens,
        "concurrency": work.concurrency,
        "temperature": work.temperature,
    }
    return {**{k: v for k, v in asked.items() if v is not None}, **situation.inputs}


def _training(situation: Situation, settled: dict[str, Knob]) -> dict[str, Any] | None:
    if situation.mode != "train":
        return None
    taps = settled["target_layer_ids"].value
    return training.plan(
        situation,
        block_size=settled["block_size"].value or knobs.PUBLISHED_BLOCK_SIZE,
        num_taps=len(taps) if taps else knobs.PUBLISHED_NUM_TAPS,
    )
