"""What is being measured: an opened engine and its second baseline. Knows how a command line names
models; knows no protocol and no report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from dflash.benchmark.library import GenerateBaseline
from dflash.benchmark.runner import Arm
from dflash.close_look import CloseLook
from dflash.engines import Engine, Windowed, open_engine
from dflash.engines.torch_engine import TorchEngine
from dflash.errors import EngineError, PairError
from dflash.pairs import resolve_pair


@dataclass(frozen=True, slots=True)
class Subject:
    """An engine ready to be measured. ``generate`` exists for torch only."""

    engine: Engine
    pair_id: str
    trained_block_size: int
    num_threads: int
    generate: GenerateBaseline | None
    look: CloseLook | None  # explains differences

    @property
    def has_free_window(self) -> bool:
        """Whether the draft may be given a window: every layer was trained on full attention."""
        return isinstance(self.engine, Windowed) and self.engine.has_free_window

    def with_window(self, sliding_window_size: int) -> Subject:
        """The same, with the draft's context bounded. Raises ``CheckpointError`` for a draft that
        has a window of its own."""
        assert isinstance(self.engine, Windowed)
        return replace(self, engine=self.engine.with_window(sliding_window_size))

    def arms(self, block_sizes: Sequence[int], *, loop_only: bool) -> tuple[Arm, ...]:
        """The baselines and one DFlash arm per block size, in the order of a forward pass."""
        arms = [Arm("baseline_loop", 1, self.engine)]
        if self.generate is not None and not loop_only:
            arms.append(Arm("baseline_generate", 1, self.generate))
        return (*arms, *(Arm("dflash", b, self.engine) for b in block_sizes))


def open_subject(
    backend: str, model: str, draft_model: str | None, *, device: str | None, threads: int | None
) -> Subject:
    """Open an engine on a pair id, or on a target and a draft named by hub id or folder.

    Raises ``DFlashError`` children; ``PairError`` where there is no draft.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    pair = resolve_pair(model, draft_model)
    if device and backend != "torch":
        raise EngineError(
            f"{backend} chooses its own device, not {device!r}.", "Leave out --device."
        )
    options: dict[str, Any] = {"device": device} if device else {}
    engine = open_engine(backend, pair=pair, **options)
    if engine.trained_block_size is None:
        raise PairError(f"{model} has no draft to measure.", "Name one with --draft-model.")
    return Subject(
        engine=engine,
        pair_id=pair.id,
        trained_block_size=engine.trained_block_size,
        num_threads=torch.get_num_threads(),
        generate=GenerateBaseline(engine) if isinstance(engine, TorchEngine) else None,
        look=engine if isinstance(engine, CloseLook) else None,
    )
