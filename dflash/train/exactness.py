"""How often the demo target is right: greedy answers to prompts that no training saw."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from dflash.train.corpus import KINDS, Task, draw_tasks, is_right
from dflash.train.rows import encoded
from dflash.train.target_recipe import TargetRecipe


@dataclass(frozen=True, slots=True)
class Exactness:
    """How many of ``num`` held-out prompts of one kind were answered rightly, decoding greedily."""

    kind: str
    num_right: int
    num: int


@torch.no_grad()
def measure_exactness(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, recipe: TargetRecipe
) -> list[Exactness]:
    """Greedy answers to ``recipe.eval_num`` held-out prompts of every kind, marked by the judge."""
    results = []
    for kind in KINDS:
        tasks = draw_tasks(kind, recipe.eval_num, recipe.eval_seed)
        texts: list[str] = []
        for at in range(0, len(tasks), 25):
            texts += _answers(model, tokenizer, tasks[at : at + 25], recipe.max_answer_tokens)
        right = sum(is_right(kind, task, text) for task, text in zip(tasks, texts, strict=True))
        results.append(Exactness(kind, right, len(tasks)))
    return results


def _answers(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    tasks: list[Task],
    max_new_tokens: int,
) -> list[str]:
    prompts = [encoded(tokenizer, task)[0] for task in tasks]
    width = max(map(len, prompts))
    pad = tokenizer.pad_token_id
    ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = (ids != pad).long()
    out = model.generate(
        ids, attention_mask=mask, max_new_tokens=max_new_tokens, do_sample=False, pad_token_id=pad
    )
    return tokenizer.batch_decode(out[:, width:], skip_special_tokens=True)
