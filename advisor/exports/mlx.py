"""MLX on Apple silicon: a Python script on this project's MLX engine, and its benchmark command.

Counts the whole block. ``sliding_window_size`` is for drafts with full attention only.
"""

from __future__ import annotations

from advisor.exports.block_counts import engine_count
from advisor.exports.plan import Export, Plan, notes_for, shell, window_words

_DEFAULT_TOKENS = 512


def words(plan: Plan) -> list[str]:
    """The command that measures this setting, as words, unquoted."""
    command = ["python", "-m", "dflash.benchmark", "--backend", "mlx", "--model", plan.target]
    command += ["--draft-model", plan.draft, "--dataset", "gsm8k"]
    if plan.block_size is not None:
        command += ["--block-size", str(engine_count("mlx", plan.block_size))]
    return command + window_words(plan)


def command(plan: Plan) -> Export:
    """Render the command line alone."""
    return Export(shell(*words(plan)), "benchmark-mlx.sh", notes_for(plan))


def export(plan: Plan) -> Export:
    """Render the Python script, with the command line as its last note."""
    block = "None" if plan.block_size is None else str(engine_count("mlx", plan.block_size))
    window = f", sliding_window_size={plan.free_window}" if plan.free_window else ""
    text = f'''\
"""Generate with DFlash on Apple silicon. The block size counts the anchor."""

from dflash.generate_mlx import stream_generate
from dflash.model_mlx import load, load_draft

model, tokenizer = load({plan.target!r})
draft = load_draft({plan.draft!r}{window})
for response in stream_generate(
    model,
    draft,
    tokenizer,
    "How many positive whole-number divisors does 196 have?",
    block_size={block},
    max_tokens={plan.output_tokens or _DEFAULT_TOKENS},
    temperature={float(plan.temperature)!r},
):
    print(response.text, end="", flush=True)
print()
'''
    shown = "Measure the same setting: see the command export of this engine."
    return Export(text, "generate_mlx.py", (*notes_for(plan), shown))
