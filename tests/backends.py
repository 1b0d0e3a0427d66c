"""The ways to run a pair in this process, behind one face, so that one suite holds for all.

Each opens a tiny random target of one family (``tiny_models``); its ``reference`` is the same
target in transformers, whose own ``generate`` says what is right.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny_models import build_draft, build_target

from dflash.drafts import ModuleDraft, open_draft
from dflash.generate import decode
from dflash.schema import Cycle, SamplingParams
from dflash.targets import TransformersTarget, open_target
from dflash.verify import Proposal

TAPS = (0, 2)
SHORT, LONG = [5, 17, 3, 80], [(7 * i + 11) % 90 for i in range(41)]


def own_answer(target, prompt: list[int], max_new_tokens: int) -> list[int]:
    """The target's own greedy output through transformers' generate."""
    ids = target.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=max_new_tokens,
        do_sample=False,
        pad_token_id=0,
    )
    return ids[0, len(prompt) :].tolist()


def emitted(events) -> list[int]:
    """The output ids of a run."""
    cycles = [e for e in events if isinstance(e, Cycle)]
    return [events[0].token_id] + [i for c in cycles for i in c.emitted_ids]


def guesses(answer: list[int], position: int, num_slots: int) -> list[int]:
    """The next tokens of an answer, wrong at every fifth: a mix of long and short acceptances
    that no random draft produces."""
    ahead = answer[position : position + num_slots]
    ahead += [0] * (num_slots - len(ahead))
    return [(t + ((position + i) % 5 == 0)) % 90 for i, t in enumerate(ahead)]


class OracleDraft:
    """A torch draft that knows the answer and errs at every fifth token."""

    def __init__(self, answer: list[int]) -> None:
        self.answer = answer

    def start(self, capacity, sampling, generator) -> OracleDraft:
        self.position = 0
        return self

    def propose(self, target_hidden, anchor_id: int, block_size: int) -> Proposal:
        self.position += target_hidden.shape[1] if self.position else 1
        return Proposal(tuple(guesses(self.answer, self.position, block_size - 1)))


class TorchModules:
    """transformers' own forward and our draft module: what every device but a CPU runs."""

    loop = staticmethod(decode)

    def __init__(self, kind: str, folder: Path) -> None:
        self.reference = build_target(kind)

    def target(self):
        return TransformersTarget(self.reference, TAPS)

    def begin(self, target):
        """A run that can be rolled back."""
        return target.start(64, tapped=True)

    def draft(self, **shape):
        return ModuleDraft(build_draft(self.reference, **shape), self.reference)

    def oracle(self, answer: list[int]):
        return OracleDraft(answer)

    def run(self, draft, prompt, block_size, *, max_new_tokens=24, stop_ids=(), target=None):
        """A decode's events, one by one."""
        return self.loop(
            target or self.target(),
            draft,
            prompt,
            sampling=SamplingParams(max_new_tokens=max_new_tokens),
            block_size=block_size,
            stop_ids=frozenset(stop_ids),
            context_length=512,
        )


class TorchLean(TorchModules):
    """What a CPU runs: the lean forwards where they are exact."""

    def target(self):
        return open_target(self.reference, TAPS)

    def draft(self, **shape):
        return open_draft(build_draft(self.reference, **shape), self.reference)


# What the published configs say to mlx-lm and a bare text config of transformers 5 does not.
_MLX_CONFIG = {
    "qwen3": {"rope_theta": 1e4},
    "hybrid": {"model_type": "qwen3_5", "full_attention_interval": 2},
    "qwen3_moe": {"num_experts": 4, "rope_theta": 1e4},
    "qwen3_next": {
        "full_attention_interval": 2,
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.25,
        "num_experts": 4,
    },
    "gemma3": {"sliding_window_pattern": 2, "rope_theta": 1e6, "rope_local_base_freq": 1e4},
    "gemma4": {"sliding_window_pattern": 2, "global_head_dim": 32},
}


class Mlx(TorchModules):
    """The MLX loop on the same weights."""

    def __init__(self, kind: str, folder: Path) -> None:
        super().__init__(kind, folder)
        pytest.importorskip("mlx.core")
        from mlx_lm.utils import load_model

        from dflash import generate_mlx

        self._mlx, self._folder = generate_mlx, folder
        self.loop = generate_mlx.decode
        self.reference.save_pretrained(folder / "target")
        path = folder / "target" / "config.json"
        config = json.loads(path.read_text()) | _MLX_CONFIG.get(kind, {})
        path.write_text(json.dumps(config))
        self.model, _ = load_model(folder / "target")

    def target(self):
        return self._mlx.MlxTarget(self.model, list(TAPS))

    def begin(self, target):
        return target.start(tapped=True)

    def draft(self, **shape):
        from dflash.model_mlx import load_draft

        build_draft(self.reference, **shape).save_pretrained(self._folder / "draft")
        return load_draft(self._folder / "draft")

    def oracle(self, answer: list[int]):
        return MlxOracle(answer)


class MlxOracle:
    """``OracleDraft`` in the shape of an MLX draft model: its logits are its guesses."""

    mask_token_id = 95
    config = SimpleNamespace(windows=[])

    def __init__(self, answer: list[int]) -> None:
        self.answer, self.position = answer, 0

    def scale_embeds(self, embeds):
        return embeds

    def __call__(self, embeds, target_hidden, cache):
        self.position += target_hidden.shape[1] if self.position else 1
        return embeds

    def shape_logits(self, logits):
        import mlx.core as mx

        ids = mx.array(guesses(self.answer, self.position, logits.shape[0]))
        return mx.arange(logits.shape[-1])[None] == ids[:, None]


# Every backend with every family it runs. The first families of each get every block size.
EVERY_BLOCK = [
    *((TorchLean, kind) for kind in ("llama", "qwen3")),
    *((TorchModules, kind) for kind in ("llama", "qwen3", "sliding", "hybrid")),
    *((Mlx, kind) for kind in ("llama", "qwen3", "hybrid")),
]
SOME_BLOCKS = [
    *((TorchModules, k) for k in ("gpt_oss", "gemma3", "gemma4", "qwen3_moe", "qwen3_next")),
    *((Mlx, k) for k in ("gemma3", "gemma4", "qwen3_moe", "qwen3_next")),
]
