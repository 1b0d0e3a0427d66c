"""transformers' own ``generate`` as the second baseline.

Shares the weights of an opened torch engine, so that both baselines and DFlash answer with the
same numbers in memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.streamers import BaseStreamer

from dflash.budget import token_budget
from dflash.clock import synchronize
from dflash.engines.torch_engine import TorchEngine
from dflash.schema import (
    Cycle,
    EngineInfo,
    Event,
    Finished,
    Prefilled,
    Request,
    SamplingParams,
)
from dflash.stops import stop_token_ids
from dflash.targets import context_length
from dflash.text import Detokenizer


class GenerateBaseline:
    """The target's own ``generate``, one token per forward, behind the engine's stream shape."""

    def __init__(self, engine: TorchEngine) -> None:
        self._engine = engine
        self._stop_ids = stop_token_ids(engine.model, engine.tokenizer)
        self.info: EngineInfo = replace(engine.info, backend="transformers", draft_id=None)

    def stream(self, request: Request) -> Iterator[Event]:
        """Generate in one go, then yield what happened with the stamps taken meanwhile."""
        sampling = request.sampling
        prompt = self._engine.encode(request.messages, enable_thinking=sampling.enable_thinking)
        context = context_length(self._engine.model, len(prompt))
        budget = token_budget(len(prompt), sampling.max_new_tokens, context)
        ids = torch.tensor([prompt], device=self._engine.model.device)
        stamps = _Stamps(ids.device)
        torch.manual_seed(sampling.seed)  # generate() takes no generator of its own
        with torch.inference_mode():
            output = self._engine.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                generation_config=_generation_config(sampling, budget, self._stop_ids),
                streamer=stamps,
            )
        yield from self._events(output[0, len(prompt) :].tolist(), stamps.t_s, len(prompt))

    def _events(
        self, output_ids: list[int], stamps: Sequence[float], num_prompt_tokens: int
    ) -> Iterator[Event]:
        detokenizer = Detokenizer(self._engine.tokenizer)
        first = output_ids[0]
        yield Prefilled(stamps[0], num_prompt_tokens, first, detokenizer.add(first))
        for token, before_s, t_s in zip(output_ids[1:], stamps, stamps[1:], strict=False):
            step_s, piece = t_s - before_s, detokenizer.add(token)
            yield Cycle(t_s, (), 0, token, (token,), 0.0, step_s, (piece,))
        stopped = output_ids[-1] in self._stop_ids
        yield Finished(stamps[-1], "stop" if stopped else "length", len(output_ids), None)


class _Stamps(BaseStreamer):
    """Notes when every new token arrived. ``generate`` hands the prompt over first."""

    def __init__(self, device: torch.device) -> None:
        self.t_s: list[float] = []
        self._device = device
        self._prompt_seen = False
        self._start_s = time.perf_counter()

    def put(self, value: torch.Tensor) -> None:
        """Take one step's token."""
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        synchronize(self._device)
        self.t_s.append(time.perf_counter() - self._start_s)

    def end(self) -> None:
        """Nothing is pending."""


def _generation_config(
    sampling: SamplingParams, max_new_tokens: int, stop_ids: frozenset[int]
) -> GenerationConfig:
    """The same settings as our loop's, and none of the checkpoint's own defaults."""
    drawing: dict[str, Any] = {}
    if sampling.temperature > 0:
        drawing = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
        }
    return GenerationConfig(
        max_new_tokens=max_new_tokens,
        do_sample=sampling.temperature > 0,
        eos_token_id=sorted(stop_ids) or None,
        pad_token_id=min(stop_ids, default=0),
        use_cache=True,
        **drawing,
    )
