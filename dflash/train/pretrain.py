"""Trains the demo target from nothing on the demo corpus. Knows nothing of drafts.

Matrices are trained with Muon, embeddings and norms with AdamW, weights in fp32. Where the machine
multiplies bf16 faster than fp32, which is measured, the forward and backward passes run in bf16.
"""

from __future__ import annotations

import json
import logging
import random
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from dflash.train.corpus import (
    KINDS,
    TRAINING_SEED_START,
    Task,
    draw_drills,
    draw_tasks,
    is_right,
)
from dflash.train.tokenizer import END, SPECIAL_TOKENS, train_tokenizer

log = logging.getLogger(__name__)

BEGIN_ID, END_ID, USER_ID, ASSISTANT_ID, PAD_ID = range(5)  # as SPECIAL_TOKENS has them
_STATE_FILE = "training_state.pt"
_MIX = {"chat": 1, "code": 3, "math": 5, "json": 5, "translate": 5, "edit": 6}  # tasks per share


# Rows are padded to one of these: each shape costs a minute of compiling, and longer rows are rare.
_WIDTHS = (64, 128, 192, 288)
_Row = tuple[list[int], list[int]]  # token ids of a prompt in its template and of its answer


@dataclass(frozen=True, slots=True)
class TargetRecipe:
    """Everything that decides how the target comes out. Sizes in tokens, rates per step."""

    vocab_size: int = 2048
    hidden_size: int = 256
    intermediate_size: int = 768
    num_layers: int = 8
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    context_length: int = 2048
    num_steps: int = 4000
    minutes: float = 60.0  # ends the training earlier, the rates fall in time
    tokens_per_step: int = 4096
    matrix_rate: float = 0.02
    other_rate: float = 3e-3
    weight_decay: float = 0.05
    warmup_steps: int = 60
    decay_share: float = 0.5
    eval_every: int = 500
    eval_num: int = 20
    eval_seed: int = 0  # below TRAINING_SEED_START: prompts that no training saw
    max_answer_tokens: int = 320
    save_every: int = 200
    tokenizer_tasks: int = 3000  # of every kind
    share_tasks: int = 160  # tasks in one share of a chunk
    drill_steps: int = 300  # the first steps see nothing but short copying drills
    copy_drills: int = 300  # in every later chunk, longer ones
    sum_drills: int = 400  # in every later chunk: sheets of bare sums, half as many word lists
    compiled: bool = True  # where a C++ compiler is found; pays after a few minutes
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Exactness:
    """How many of ``num`` held-out prompts of one kind were answered rightly, decoding greedily."""

    kind: str
    num_right: int
    num: int


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
        drilling = run.step < recipe.drill_steps
        for batch in (
            _drill_batches(recipe, run.chunk)
            if drilling
            else _chunk_batches(tokenizer, recipe, run.chunk)
        ):
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


@torch.no_grad()
def measure_exactness(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, recipe: TargetRecipe
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
    tokenizer: PreTrainedTokenizerFast,
    tasks: list[Task],
    max_new_tokens: int,
) -> list[str]:
    prompts = [_encoded(tokenizer, task)[0] for task in tasks]
    width = max(map(len, prompts))
    pad = tokenizer.pad_token_id
    ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = (ids != pad).long()
    out = model.generate(
        ids, attention_mask=mask, max_new_tokens=max_new_tokens, do_sample=False, pad_token_id=pad
    )
    return tokenizer.batch_decode(out[:, width:], skip_special_tokens=True)


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

    if compiled and shutil.which("g++"):
        return torch.compile(loss_of, dynamic=False)
    return loss_of


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


def _encoded(tokenizer: PreTrainedTokenizerFast, task: Task) -> _Row:
    """Token ids of the prompt in its template, and of the answer with its end."""
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": task.prompt}], add_generation_prompt=True, tokenize=False
    )
    encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]  # noqa: E731
    return encode(prompt), encode(task.answer + END)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Right-padded rows ``ids [B, S]``; ``learned [B, S]`` precede an answer token."""

    ids: Tensor
    learned: Tensor
    num_tokens: int


def _chunk_batches(
    tokenizer: PreTrainedTokenizerFast, recipe: TargetRecipe, chunk: int
) -> Iterator[_Batch]:
    """Freshly drawn tasks of all kinds, rows of like length together, in random order."""
    seed = TRAINING_SEED_START + 1 + chunk
    tasks = [
        task
        for kind, share in _MIX.items()
        for task in draw_tasks(kind, share * recipe.share_tasks, seed)
    ]
    rows = [_encoded(tokenizer, task) for task in tasks]
    rows += [_encoded(tokenizer, sheet) for sheet in draw_drills(recipe.sum_drills, seed)]
    rows += _copy_drills(recipe, random.Random(seed), recipe.copy_drills, longest=90)
    yield from _batches(rows, recipe, random.Random(seed))


def _drill_batches(recipe: TargetRecipe, chunk: int) -> Iterator[_Batch]:
    """Short copying drills only: copying is learned in minutes here, in hours without them."""
    rng = random.Random(f"drills {recipe.seed} {chunk}")
    rows = _copy_drills(recipe, rng, 2000, longest=24)
    yield from _batches(rows, recipe, rng)


def _batches(rows: list[_Row], recipe: TargetRecipe, rng: random.Random) -> Iterator[_Batch]:
    """Rows of like length together, in random order."""
    by_width: dict[int, list[_Row]] = defaultdict(list)
    for row in rows:
        length = len(row[0]) + len(row[1])
        if length <= _WIDTHS[-1]:
            by_width[next(width for width in _WIDTHS if width >= length)].append(row)
    batches = []
    for width, alike in by_width.items():
        num = max(recipe.tokens_per_step // width, 1)
        # full batches only, so that every batch has one of a few shapes
        batches += [(alike[at : at + num], width) for at in range(0, len(alike) - num + 1, num)]
    rng.shuffle(batches)
    for group, width in batches:
        yield _batch(group, width)


def _copy_drills(recipe: TargetRecipe, rng: random.Random, num: int, *, longest: int) -> list[_Row]:
    """Random tokens to repeat: they teach copying from the prompt, which every kind builds on."""
    ordinary = range(len(SPECIAL_TOKENS), recipe.vocab_size)
    drills = []
    for _ in range(num):
        # out of few different tokens, so that one token before is not enough to find the place
        text = rng.choices(rng.sample(ordinary, rng.randint(6, 100)), k=rng.randint(8, longest))
        drills.append(([BEGIN_ID, USER_ID, *text, END_ID, ASSISTANT_ID], [*text, END_ID]))
    return drills


def _batch(rows: list[_Row], width: int) -> _Batch:
    ids = torch.full((len(rows), width), PAD_ID)
    learned = torch.zeros(len(rows), width, dtype=torch.bool)
    for at, (prompt, answer) in enumerate(rows):
        end = len(prompt) + len(answer)
        ids[at, :end] = torch.tensor(prompt + answer)
        learned[at, len(prompt) - 1 : end - 1] = True
    return _Batch(ids, learned, sum(len(prompt) + len(answer) for prompt, answer in rows))


def _progress(run: _Run, recipe: TargetRecipe) -> float:
    """How much of the steps, or of the time if that runs out first, is used up: 1 is the end."""
    return max(run.step / recipe.num_steps, run.seconds / (60 * recipe.minutes))


def _rate_factor(run: _Run, recipe: TargetRecipe) -> float:
    """Warm up, hold, then fall in a straight line to nothing."""
    falling = (1 - _progress(run, recipe)) / recipe.decay_share
    return min(1.0, (run.step + 1) / recipe.warmup_steps, falling)


def _train_step(run: _Run, batch: _Batch, recipe: TargetRecipe, dtype: torch.dtype) -> None:
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
