"""TensorRT-LLM: ``trtllm-serve`` with a speculative config file. Counts drafts, so B - 1.

Source: DFlashDecodingConfig of TensorRT-LLM 1.4 (max_draft_len, speculative_model, mask_token_id,
target_layer_ids).
"""

from __future__ import annotations

import json
from typing import Any

from advisor.exports.block_counts import engine_count
from advisor.exports.plan import Export, Plan, notes_for, shell

CONFIG_FILE = "dflash-trtllm.yaml"
WINDOW_NOTE = (
    "TensorRT-LLM has no option for the draft's window: it follows the draft's config.json. "
    "Export draft-config to get one with the window."
)


def settings(plan: Plan) -> dict[str, Any]:
    """The speculative_config block, as plain values."""
    config: dict[str, Any] = {"decoding_type": "DFlash", "speculative_model": plan.draft}
    if plan.block_size is not None:
        config["max_draft_len"] = engine_count("tensorrt-llm", plan.block_size)
    if plan.mask_token_id is not None:
        config["mask_token_id"] = plan.mask_token_id
    if plan.target_layer_ids is not None:
        config["target_layer_ids"] = list(plan.target_layer_ids)
    return config


def words(plan: Plan) -> list[str]:
    """The command as words, unquoted."""
    command = ["trtllm-serve", plan.target]
    if not plan.is_off:
        command += ["--extra_llm_api_options", CONFIG_FILE]
    return command


def export(plan: Plan) -> Export:
    """Render the config file and the command that uses it, as one shell script."""
    notes = notes_for(plan)
    if plan.is_off:
        return Export(shell(*words(plan)), "serve-tensorrt-llm.sh", notes)
    if plan.free_window:
        notes = (*notes, WINDOW_NOTE)
    # JSON is YAML; quoted whole, so that no name can end the file early.
    config = json.dumps({"speculative_config": settings(plan)})
    text = f"printf '%s\\n' {shell(config)} > {CONFIG_FILE} && {shell(*words(plan))}"
    return Export(text, "serve-tensorrt-llm.sh", notes)
