"""Trains the demo target from nothing on the demo corpus. Knows nothing of drafts.

Matrices are trained with Muon, embeddings and norms with AdamW, weights in fp32. Where the machine
multiplies bf16 faster than fp32, which is measured, the forward and backward passes run in bf16.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from dflash.train.corpus import KINDS, TRAINING_SEED_START, draw_tasks
from dflash.train.exactness import Exactness, measure_exactness
from dflash.train.forward import compiled_where_possible
from dflash.train.rows import BEGIN_ID, END_ID, PAD_ID, Batch, chunk_batches, drill_batches
from dflash.train.target_recipe import TargetRecipe
from dflash.train.tokenizer import train_tokenizer

log = logging.getLogger(__name__)

_STATE_FILE = "training_state.pt"


@dataclass(slots=True)
class _Run:
    """A training under way."""

    model: LlamaForCausalLM
    optimizers: list[torch.optim.Optimizer]
    loss_of: Callable[[Tensor, Tensor], Tensor]
    step: int = 0
    chunk: int = 0
    num_tokens: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)


def pretrain(folder: Path, *, recipe: TargetRecipe) -> list[Exactness]:
    """Train a target and write it to ``folder`` as an ordinary transformers folder, in bf16.

    A run that was killed goes on from its last state in ``folder``. Returns the final exactness on
    held-out prompts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(folder, recipe)
    run = _start(folder, recipe)
    dtype = matmul_dtype()
    log.info("training %d parameters in %s", run.model.num_parameters(), dtype)
    while _progress(run, recipe) < 1:
        if run.step < recipe.drill_steps:
            batches = drill_batches(recipe, run.chunk)
        else:
            batches = chunk_batches(tokenizer, recipe, run.chunk)
        for batch in batches:
            _train_step(run, batch, recipe, dtype)
            _report(run, recipe, folder, tokenizer)
            if _progress(run, recipe) >= 1:
                break
        run.chunk += 1
    save_target(run.model, tokenizer, folder)
    _save_state(run, folder)
    final = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    results = measure_exactness(final, tokenizer, recipe)
    _write_report(run, recipe, results, folder)
    return results


def matmul_dtype() -> torch.dtype:
    """bf16 where a product of training's size is faster in it than in fp32, else fp32."""
    spent_s = {}
    for dtype in (torch.float32, torch.bfloat16):
        states, weight = torch.ones(2048, 256, dtype=dtype), torch.ones(768, 256, dtype=dtype)
        F.linear(states, weight)
        start = time.perf_counter()
        for _ in range(10):
            F.linear(states, weight)
        spent_s[dtype] = time.perf_counter() - start
    return min(spent_s, key=lambda dtype: spent_s[dtype])


def save_target(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write weights (bf16), configuration and tokenizer so that ``from_pretrained`` reads them."""
    kept = LlamaForCausalLM(model.config)
    kept.load_state_dict(model.state_dict())
    kept.bfloat16()
    kept.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=[tokenizer.eos_token_id],
        pad_token_id=tokenizer.pad_token_id,
        do_sample=False,
    )
    kept.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _tokenizer(folder: Path, recipe: TargetRecipe) -> PreTrainedTokenizerFast:
    if (folder / "tokenizer.json").exists():
        return PreTrainedTokenizerFast.from_pretrained(folder)
    tasks = [
        task
        for kind in KINDS
        for task in draw_tasks(kind, recipe.tokenizer_tasks, TRAINING_SEED_START)
    ]
    texts = (text for task in tasks for text in (task.prompt, task.answer))
    return train_tokenizer(texts, folder, vocab_size=recipe.vocab_size)


def _new_model(recipe: TargetRecipe) -> LlamaForCausalLM:
    torch.manual_seed(recipe.seed)
    config = LlamaConfig(
        vocab_size=recipe.vocab_size,
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.num_layers,
        num_attention_heads=recipe.num_heads,
        num_key_value_heads=recipe.num_kv_heads,
        head_dim=recipe.head_dim,
        max_position_embeddings=recipe.context_length,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=BEGIN_ID,
        eos_token_id=END_ID,
        pad_token_id=PAD_ID,
    )
    # compiled plain attention is faster here than the fused kernel, whose backward pass is slow
    return LlamaForCausalLM._from_config(config, attn_implementation="eager")


def _start(folder: Path, recipe: TargetRecipe) -> _Run:
    """A new run, or the one whose state lies in the folder."""
    model = _new_model(recipe)
    matrices = [p for name, p in model.model.layers.named_parameters() if p.ndim == 2]
    held = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in held]
    run = _Run(
        model,
        [
            torch.optim.Muon(
                matrices, lr=recipe.matrix_rate, weight_decay=recipe.weight_decay, momentum=0.95
            ),
            torch.optim.AdamW(others, lr=recipe.other_rate, weight_decay=0.0, betas=(0.9, 0.95)),
        ],
        _loss_of(model, compiled=recipe.compiled),
    )
    if (folder / _STATE_FILE).exists():
        state = torch.load(folder / _STATE_FILE, weights_only=True)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(run.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        run.step, run.chunk = state["step"], state["chunk"] + 1
        run.num_tokens, run.seconds = state["num_tokens"], state["seconds"]
        log.info("going on from step %d", run.step)
    return run


def _loss_of(model: LlamaForCausalLM, *, compiled: bool) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss of ids and wanted ids, both ``[B, S]``; -100 marks what is not learned."""

    def loss_of(ids: Tensor, wanted: Tensor) -> Tensor:
        # padding is on the right only, so the causal mask alone keeps it out of sight
        states = model.model(input_ids=ids, use_cache=False).last_hidden_state
        logits = model.lm_head(states).float()
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())

    return compiled_where_possible(loss_of, model.device) if compiled else loss_of


def _save_state(run: _Run, folder: Path) -> None:
    state = {
        "model": run.model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in run.optimizers],
        "step": run.step,
        "chunk": run.chunk,
        "num_tokens": run.num_tokens,
        "seconds": run.seconds,
    }
    torch.save(state, folder / f"{_STATE_FILE}.part")
    (folder / f"{_STATE_FILE}.part").replace(folder / _STATE_FILE)


def _progress(run: _Run, recipe: TargetRecipe) -> float:
    """How much of the steps, or of the time if that runs out first, is used up: 1 is the end."""
    return max(run.step / recipe.num_steps, run.seconds / (60 * recipe.minutes))


def _rate_factor(run: _Run, recipe: TargetRecipe) -> float:
    """Warm up, hold, then fall in a straight line to nothing."""
    falling = (1 - _progress(run, recipe)) / recipe.decay_share
    return min(1.0, (run.step + 1) / recipe.warmup_steps, falling)


def _train_step(run: _Run, batch: Batch, recipe: TargetRecipe, dtype: torch.dtype) -> None:
    start = time.perf_counter()
    factor = _rate_factor(run, recipe)
    for optimizer, rate in zip(
        run.optimizers, (recipe.matrix_rate, recipe.other_rate), strict=True
    ):
        for group in optimizer.param_groups:
            group["lr"] = rate * factor
    wanted = batch.ids.roll(-1, dims=1).masked_fill(~batch.learned, -100)
    with torch.autocast("cpu", dtype, enabled=dtype == torch.bfloat16):
        loss = run.loss_of(batch.ids, wanted)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
    for optimizer in run.optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    run.losses.append(loss.item())
    run.step += 1
    run.num_tokens += batch.num_tokens
    run.seconds += time.perf_counter() - start


def _report(
    run: _Run,
    recipe: TargetRecipe,
    folder: Path,
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    if run.step % 20 == 0:
        recent = run.losses[-20:]
        log.info(
            "step %d loss %.4f, %.1f M tokens, %.0f tokens/s",
            run.step, sum(recent) / len(recent), run.num_tokens / 1e6, run.num_tokens / run.seconds,
        )  # fmt: skip
    if run.step % recipe.save_every == 0:
        _save_state(run, folder)
        save_target(run.model, tokenizer, folder)
    if run.step % recipe.eval_every == 0:
        run.model.eval()
        results = measure_exactness(run.model, tokenizer, recipe)
        run.model.train()
        log.info(
            "step %d right: %s",
            run.step,
            ", ".join(f"{r.kind} {r.num_right}/{r.num}" for r in results),
        )


def _write_report(run: _Run, recipe: TargetRecipe, results: list[Exactness], folder: Path) -> None:
    report = {
        "recipe": asdict(recipe),
        "num_parameters": run.model.num_parameters(),
        "training_tokens": run.num_tokens,
        "training_seconds": round(run.seconds),
        "exactness": [asdict(result) for result in results],
    }
    (folder / "training_report.json").write_text(json.dumps(report, indent=2) + "\n")
