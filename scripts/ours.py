"""Our side of a comparison with another implementation: flags, prompts, and timed answers."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash.benchmark.options import positive
from dflash.benchmark.prompts import Prompt, load_prompts
from dflash.engines import open_engine
from dflash.engines.torch_engine import TorchEngine
from dflash.errors import EngineError
from dflash.pairs import ensure_local, resolve_pair
from dflash.schema import Message, Request, SamplingParams, Trace
from dflash.stops import stop_token_ids


def parser(
    description: str, env_dir: Path, *, dataset_required: bool = True
) -> argparse.ArgumentParser:
    """The flags that every comparison has."""
    root = argparse.ArgumentParser(description=description)
    root.add_argument("--model", default="demo", help="a pair id, a hub id or a folder")
    root.add_argument("--draft-model", help="a hub id or a folder; not needed for a pair id")
    root.add_argument("--dataset", required=dataset_required, metavar="NAME|FILE.jsonl")
    root.add_argument("--limit", type=positive, default=24)
    root.add_argument("--block-size", type=positive, help="default: the trained one")
    root.add_argument("--max-new-tokens", type=positive, default=128)
    root.add_argument("--threads", type=positive, help="CPU threads of both sides")
    root.add_argument("--env-dir", type=Path, default=env_dir, help="the peer's environment")
    root.add_argument("--output", type=Path, metavar="FILE.json")
    return root


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of ours. ``wall_s`` is the whole request as its caller sees it."""

    trace: Trace
    wall_s: float


class Ours:
    """Our torch engine on the pair that both sides answer with."""

    def __init__(self, args: argparse.Namespace, *, device: str | None = None) -> None:
        self.pair = resolve_pair(args.model, args.draft_model)
        target, draft = ensure_local(self.pair)
        if draft is None:
            raise EngineError(f"{args.model} has no draft.", "Name one with --draft-model.")
        self.target_path, self.draft_path = str(target), str(draft)
        options: dict[str, Any] = {"device": device} if device else {}
        engine = open_engine("torch", pair=self.pair, **options)
        assert isinstance(engine, TorchEngine)
        self.engine = engine
        self.block_size: int = args.block_size or engine.trained_block_size
        self.stop_ids = sorted(stop_token_ids(engine.model, engine.tokenizer))
        self.prompts: list[Prompt] = load_prompts(args.dataset, limit=args.limit)
        self._sampling = SamplingParams(max_new_tokens=args.max_new_tokens)

    def request(self, prompt: Prompt, block_size: int) -> Request:
        """The greedy request that stands for a prompt's first turn."""
        return Request((Message("user", prompt.turns[0]),), self._sampling, block_size)

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """The ids that both sides are given, so that no template can differ."""
        return self.engine.encode(self.request(prompt, 1).messages)

    def answer(self, prompt: Prompt, block_size: int) -> Answer:
        """Answer one prompt, timed."""
        request = self.request(prompt, block_size)
        started_s = time.perf_counter()
        events = tuple(self.engine.stream(request))
        wall_s = time.perf_counter() - started_s
        return Answer(Trace(request, self.engine.info, events), wall_s)


def num_whole_blocks(trace: Trace) -> int:
    """How many cycles from the start were as wide as the block on any side.

    Near the length limit implementations draft blocks of different widths, and a draft that sees
    another number of slots proposes other tokens: acceptance there is not comparable.
    """
    limit, num_tokens = trace.request.sampling.max_new_tokens, 1
    for index, cycle in enumerate(trace.cycles):
        if limit - num_tokens < trace.request.block_size:
            return index
        num_tokens += len(cycle.emitted_ids)
    return len(trace.cycles)
