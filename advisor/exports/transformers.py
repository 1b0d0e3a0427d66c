"""transformers: a runnable script on this project's own torch engine. Counts the whole block."""

from __future__ import annotations

from advisor.exports.block_counts import engine_count
from advisor.exports.plan import Export, Plan, notes_for, shell, window_words

_DEFAULT_TOKENS = 512


def export(plan: Plan) -> Export:
    """Render a script that generates with the recommended settings."""
    block = (
        "None" if plan.block_size is None else str(engine_count("transformers", plan.block_size))
    )
    window = f", sliding_window_size={plan.free_window}" if plan.free_window else ""
    text = f'''\
"""Generate with DFlash through transformers. The block size counts the anchor."""

from transformers import AutoModelForCausalLM, AutoTokenizer

from dflash import load_draft

TARGET = {plan.target!r}
DRAFT = {plan.draft!r}

tokenizer = AutoTokenizer.from_pretrained(TARGET)
target = AutoModelForCausalLM.from_pretrained(TARGET, dtype="auto").eval()
draft = load_draft(DRAFT, dtype=target.dtype, device=target.device{window})
messages = [{{"role": "user", "content": "How many positive whole-number divisors does 196 have?"}}]
inputs = tokenizer.apply_chat_template(
    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
)
input_ids = inputs["input_ids"].to(target.device)
output = draft.spec_generate(
    input_ids=input_ids,
    max_new_tokens={plan.output_tokens or _DEFAULT_TOKENS},
    temperature={float(plan.temperature)!r},
    target=target,
    block_size={block},
)
print(tokenizer.decode(output[0, input_ids.shape[1] :], skip_special_tokens=True))
'''
    return Export(text, "generate.py", notes_for(plan))


def command(plan: Plan) -> Export:
    """Render the command that measures this setting."""
    words = ["python", "-m", "dflash.benchmark", "--backend", "transformers", "--model"]
    words += [plan.target, "--draft-model", plan.draft, "--dataset", "gsm8k"]
    if plan.block_size is not None:
        words += ["--block-size", str(engine_count("transformers", plan.block_size))]
    words += window_words(plan)
    return Export(shell(*words), "benchmark.sh", notes_for(plan))
