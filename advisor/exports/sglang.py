"""SGLang: ``sglang.launch_server``. Counts the whole block, anchor included.

Source: z-lab/dflash README; SGLang's DFLASH argument checks (window at least the block size).
"""

from __future__ import annotations

from advisor.exports.block_counts import engine_count
from advisor.exports.plan import Export, Plan, notes_for, shell

DEFAULT_MAX_RUNNING = 48  # what SGLang falls back to with DFLASH


def words(plan: Plan) -> list[str]:
    """The command as words, unquoted."""
    command = ["python", "-m", "sglang.launch_server", "--model-path", plan.target]
    if plan.is_off:
        return command
    command += ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", plan.draft]
    if plan.block_size is not None:
        count = engine_count("sglang", plan.block_size)
        command += ["--speculative-num-draft-tokens", str(count)]
    if plan.free_window:
        command += ["--speculative-draft-window-size", str(plan.free_window)]
    if plan.concurrency > DEFAULT_MAX_RUNNING:
        command += ["--max-running-requests", str(plan.concurrency)]
    return command


def export(plan: Plan) -> Export:
    """Render the launch command."""
    notes = notes_for(plan)
    if plan.free_window and not plan.is_off:
        older = "Older SGLang spells the window --speculative-dflash-draft-window-size."
        notes = (*notes, older)
    return Export(shell(*words(plan)), "serve-sglang.sh", notes)
