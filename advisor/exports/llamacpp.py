"""llama.cpp: ``llama-server``. Counts drafts, so B - 1; its own default would be 3.

Source: llama.cpp PR 22105 (DFlash), 27342 (DFlash 2) and common/arg.cpp; the draft must first be
converted with convert_hf_to_gguf.py --target-model-dir.
"""

from __future__ import annotations

from advisor.exports.block_counts import engine_count
from advisor.exports.plan import Export, Plan, notes_for, shell

CONVERT_NOTE = (
    "llama.cpp reads GGUF: convert both models first (convert_hf_to_gguf.py, for the draft with "
    "--target-model-dir)."
)
WINDOW_NOTE = (
    "llama.cpp has no flag for the draft's window: it follows the converted checkpoint. Convert "
    "from the config that the draft-config export writes."
)


def words(plan: Plan) -> list[str]:
    """The command as words, unquoted."""
    command = ["llama-server", "-m", plan.target]
    if plan.is_off:
        return command
    command += ["--spec-draft-model", plan.draft, "--spec-type", "draft-dflash"]
    if plan.block_size is not None:
        count = engine_count("llamacpp", plan.block_size)
        command += ["--spec-draft-n-max", str(count)]
    if plan.concurrency > 1:
        command += ["-np", str(plan.concurrency)]
    return command


def export(plan: Plan) -> Export:
    """Render the ``llama-server`` command."""
    notes = list(notes_for(plan))
    if not (plan.target.endswith(".gguf") and (plan.is_off or plan.draft.endswith(".gguf"))):
        notes.append(CONVERT_NOTE)
    if plan.free_window and not plan.is_off:
        notes.append(WINDOW_NOTE)
    return Export(shell(*words(plan)), "serve-llamacpp.sh", tuple(notes))
