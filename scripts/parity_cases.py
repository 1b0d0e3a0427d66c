"""Small pairs for the parity check: random targets, drafts fitted for seconds, published layouts.

Knows how each case is built and written to disk. Knows nothing of how it is run or judged.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from dflash.borrowed import borrow
from dflash.model import DFlashConfig, DFlashDraftModel
from dflash.model2 import CandidateSelector, DFlash2DraftModel, DynamicConv
from dflash.targets import TransformersTarget

VOCAB, HIDDEN, LAYERS, MASK = 96, 64, 8, 95
WINDOW, TARGET_WINDOW = 8, 12  # of drafts; of targets that have one
PROMPTS = (
    (5, 17, 3, 80),  # shorter than any window
    tuple((7 * i + 11) % 90 for i in range(41)),  # five windows long
    tuple((13 * i * i + 5) % 89 for i in range(23)),
)
FIT_STEPS, FIT_TOKENS = 200, 48
Edit = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One pair. ``edit`` changes the written config.json, ``their_edit`` the copy that only the
    official package reads; ``why`` explains an expected difference in what is drafted or
    answered."""

    target: str
    name: str
    config: dict[str, Any] = field(default_factory=dict)  # DFlashConfig fields
    nested: dict[str, Any] = field(default_factory=dict)  # further dflash_config fields
    window: int | None = None
    num_taps: int = 3
    block_size: int = 16
    is_v2: bool = False
    edit: Edit | None = None
    their_edit: Edit | None = None
    why: str = ""
    draws: bool = False  # also compare above temperature 0


def _top_level_rope(config: dict[str, Any]) -> None:
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]


def _nested_block(config: dict[str, Any]) -> None:
    config["dflash_config"]["block_size"] = config.pop("block_size")


def _as_gpt_oss(config: dict[str, Any]) -> None:
    config["model_type"] = "gpt_oss"


def _targets_scale(config: dict[str, Any]) -> None:
    config["dflash_config"]["input_embedding_scale"] = HIDDEN**0.5


YARN = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
V2 = {"conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 16, "selector_top_k": 8}
HYBRID_WHY = (
    "the official loop rolls a gated-delta-net cache back with `crop`, which leaves rejected "
    "tokens in the recurrent state (transformers #49036); ours equals the target's own `generate`"
)
GEMMA_WHY = (
    "the official torch loop looks embeddings up unscaled; its MLX loop and vLLM (#41703) scale "
    "them as the target does, and so do we: other proposals, the same answer. Told that scale as "
    "`input_embedding_scale`, it drafts what we draft (the rows below)"
)
GPT_OSS = {"num_hidden_layers": 8, "attention_bias": True, "rope_parameters": YARN}
CASES = (
    Case("qwen3", "full", draws=True),
    Case("qwen3", "full, block size nested", edit=_nested_block),
    Case("qwen3", "full, rope_theta at the top", edit=_top_level_rope),
    Case("qwen3", "full, is_causal true", {"is_causal": True}),
    Case("qwen3", "full, 6 taps", num_taps=6),
    Case("qwen3", "windowed", window=WINDOW),
    Case("qwen3", "windowed, is_causal true", {"is_causal": True}, window=WINDOW),
    Case("qwen3", "windowed, is_causal false", {"is_causal": False}, window=WINDOW),
    Case("qwen3", "soft cap and output multiplier", {"final_logit_softcapping": 20.0},
         {"output_multiplier": 0.5}),
    Case("qwen3", "input_embedding_scale 3", nested={"input_embedding_scale": 3.0}),
    Case("qwen3", "gpt-oss style: 8 layers, bias, yarn", GPT_OSS, num_taps=6, block_size=8,
         edit=_as_gpt_oss),
    Case("gpt-oss", "gpt-oss style: 8 layers, bias, yarn", GPT_OSS, num_taps=6, block_size=8,
         edit=_as_gpt_oss),
    Case("llama", "full"),
    Case("llama", "windowed", window=WINDOW),
    Case("mistral", "full"),
    Case("mistral", "windowed", window=WINDOW),
    Case("hybrid", "full", why=HYBRID_WHY),
    Case("hybrid", "windowed", window=WINDOW, why=HYBRID_WHY),
    Case("gemma3", "full", why=GEMMA_WHY),
    Case("gemma3", "full, the official side told the scale", their_edit=_targets_scale),
    Case("qwen3", "DFlash 2", {"is_causal": False}, V2, block_size=8, is_v2=True,
         draws=True),
    Case("qwen3", "DFlash 2, windowed", {"is_causal": False}, V2, window=WINDOW, block_size=8,
         is_v2=True, edit=_nested_block),
    Case("qwen3", "DFlash 2, soft cap and multiplier", {"is_causal": False},
         V2 | {"final_logit_softcapping": 20.0, "output_multiplier": 0.2}, block_size=8,
         is_v2=True),
    Case("llama", "DFlash 2, windowed", {"is_causal": False}, V2, window=WINDOW, block_size=8,
         is_v2=True, draws=True),
    Case("hybrid", "DFlash 2", {"is_causal": False}, V2, block_size=8, is_v2=True,
         why=HYBRID_WHY),
)  # fmt: skip


def write_target(kind: str, folder: Path) -> PreTrainedModel:
    """A random target of the real class, with weights large enough that logits differ."""
    torch.manual_seed(3)
    shape: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 96,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.25,
        "eos_token_id": None,
        "bos_token_id": None,
        "pad_token_id": None,
    }
    linear = {f"linear_{name}_head_dim": 16 for name in ("key", "value")}
    builders: dict[str, Callable[[], PreTrainedModel]] = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=True)),
        "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=16)),
        "mistral": lambda: MistralForCausalLM(
            MistralConfig(**shape, sliding_window=TARGET_WINDOW)
        ),
        "gpt-oss": lambda: GptOssForCausalLM(
            GptOssConfig(
                **shape, head_dim=16, sliding_window=TARGET_WINDOW, num_local_experts=4,
                num_experts_per_tok=2, rope_parameters={"rope_type": "default",
                                                        "rope_theta": 150000.0},
            )
        ),
        # Untied: a random Gemma with a tied head repeats its input for ever.
        "gemma3": lambda: Gemma3ForCausalLM(
            Gemma3TextConfig(
                **shape | {"pad_token_id": 0}, head_dim=16, sliding_window=TARGET_WINDOW,
                tie_word_embeddings=False,
            )
        ),
        "hybrid": lambda: Qwen3_5ForCausalLM(
            Qwen3_5TextConfig(
                **shape, **linear, head_dim=32, linear_num_key_heads=2, linear_num_value_heads=4,
                layer_types=["linear_attention", "full_attention"] * (LAYERS // 2),
            )
        ),
    }  # fmt: skip
    target = builders[kind]().eval()
    target.save_pretrained(folder)
    return target


def write_draft(case: Case, target: PreTrainedModel, folder: Path) -> None:
    """Build the case's draft, fit it a little so that blocks are partly accepted, write it."""
    torch.manual_seed(5)
    num_layers = case.config.get("num_hidden_layers", 2)
    kinds = ["sliding_attention" if case.window else "full_attention"] * (num_layers - 1)
    base: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 96,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "max_position_embeddings": 131072,
        "layer_types": [*kinds, "sliding_attention" if case.is_v2 and case.window else
                        "full_attention"],
        "sliding_window": case.window,
        "num_target_layers": LAYERS,
        "block_size": case.block_size,
        "dflash_config": {
            "mask_token_id": MASK,
            "target_layer_ids": [1, 3, 4, 5, 6, 0][: case.num_taps],
        }
        | case.nested,
        "initializer_range": 0.08,
    }  # fmt: skip
    draft_class = DFlash2DraftModel if case.is_v2 else DFlashDraftModel
    draft = draft_class(DFlashConfig(**(base | case.config)))
    _randomise_added_parts(draft)
    fit(draft, target, case.block_size)
    draft.save_pretrained(folder)
    if case.edit:
        edit_config(folder, case.edit)


def edit_config(folder: Path, edit: Edit) -> None:
    """Change a written config.json."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    edit(config)
    path.write_text(json.dumps(config), encoding="utf-8")


def _randomise_added_parts(draft: DFlashDraftModel) -> None:
    """Give convolutions, selectors and biases effects that can be seen."""
    for module in draft.modules():
        if isinstance(module, DynamicConv):
            nn.init.normal_(module.base_kernel, std=0.1)
            module.base_kernel.data[:, 0] += 1
        elif isinstance(module, CandidateSelector):
            for parameter in module.parameters():
                nn.init.normal_(parameter, std=0.5)
        elif isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.normal_(module.bias, std=0.3)


def fit(draft: DFlashDraftModel, target: PreTrainedModel, block_size: int) -> None:
    """Teach the draft the target's own greedy answers to the prompts, for a few seconds."""
    texts = [_read(target, draft, prompt) for prompt in PROMPTS]
    borrowed = borrow(target, scale=draft.config.trained("input_embedding_scale"))
    optimizer = torch.optim.Adam(draft.parameters(), lr=3e-3)
    draft.train()
    for step in range(FIT_STEPS):
        ids, taps, start = texts[step % len(texts)]
        anchor = start + (11 * step) % (len(ids) - block_size - start)
        slots = torch.tensor([[int(ids[anchor])] + [MASK] * (block_size - 1)])
        positions = torch.arange(anchor + block_size)[None]
        hidden = draft(borrowed.embed(slots).detach(), taps[:, :anchor], positions)
        logits = draft.shape_logits(borrowed.logits(hidden[0, 1:]))
        loss = nn.functional.cross_entropy(logits, ids[anchor + 1 : anchor + block_size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    draft.eval()


def _read(
    target: PreTrainedModel, draft: DFlashDraftModel, prompt: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Prompt and answer ids, their tapped states, and where the answer begins."""
    answer = own_answer(target, list(prompt), FIT_TOKENS)
    tapped = TransformersTarget(target, tuple(draft.target_layer_ids))
    with torch.no_grad():
        _, taps = tapped.start(len(prompt) + FIT_TOKENS, tapped=True).forward([*prompt, *answer], 1)
    assert taps is not None
    return torch.tensor([*prompt, *answer]), taps, len(prompt)


def own_answer(target: PreTrainedModel, prompt: list[int], max_new_tokens: int) -> list[int]:
    """The target's own greedy answer through transformers' ``generate``."""
    ids = target.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=max_new_tokens,
        do_sample=False,
        pad_token_id=0,
    )
    return ids[0, len(prompt) :].tolist()
