"""What decides how the demo target comes out: sizes, rates, amounts. Numbers only."""

from __future__ import annotations

from dataclasses import dataclass


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
    num_steps: int = 9000
    minutes: float = 114.0  # ends the training earlier, the rates fall in time
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
    copy_drills: int = 600  # in every later chunk, longer ones
    sum_drills: int = 400  # in every later chunk: sheets of bare sums, half as many word lists
    compiled: bool = True  # where a C++ compiler is found; pays after a few minutes
    seed: int = 0
