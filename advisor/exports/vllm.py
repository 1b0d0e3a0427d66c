"""vLLM: ``vllm serve`` with a JSON speculative config. Counts drafts, so B - 1.

Source: vLLM docs/features/speculative_decoding and the z-lab/dflash README (vLLM 0.20.1 and later;
DFlash 2 from 0.28, https://github.com/vllm-project/vllm/pull/52816).
"""

from __future__ import annotations

import json
from typing import Any

from advisor.exports.block_counts import engine_count
from advisor.exports.plan import Export, Plan, notes_for, shell

WINDOW_NOTE = (
    "vLLM has no flag for the draft's window: it follows layer_types and sliding_window in the "
    "draft's config.json. Export draft-config to get one with the window."
)


def words(plan: Plan) -> list[str]:
    """The command as words, unquoted."""
    command = ["vllm", "serve", plan.target]
    if not plan.is_off:
        command += ["--speculative-config", json.dumps(speculative_config(plan))]
    return command


def speculative_config(plan: Plan) -> dict[str, Any]:
    """The JSON that vLLM reads."""
    config: dict[str, Any] = {"method": "dflash", "model": plan.draft}
    if plan.block_size is not None:
        config["num_speculative_tokens"] = engine_count("vllm", plan.block_size)
    return config


def export(plan: Plan) -> Export:
    """Render the ``vllm serve`` command."""
    notes = notes_for(plan)
    if plan.free_window and not plan.is_off:
        notes = (*notes, WINDOW_NOTE)
    return Export(shell(*words(plan)), "serve-vllm.sh", notes)
