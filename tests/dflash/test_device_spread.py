"""A target whose layers lie on several devices. The devices are made up: fake tensors know their
device and refuse to be mixed, and hold no data."""

from __future__ import annotations

import pytest
import torch
from tiny_models import build_target
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from dflash.borrowed import Borrowed
from dflash.engines import torch_engine
from dflash.errors import EngineError
from dflash.targets import TransformersTarget

FIRST, SECOND = torch.device("cuda:0"), torch.device("cuda:1")


@pytest.fixture
def fake_devices():
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


def test_taps_from_several_devices_meet_on_the_embeddings(fake_devices):
    target = TransformersTarget(build_target("qwen3"), (0, 1, 3))
    target.device = FIRST  # where a sharded target keeps its embedding
    kept = {i: torch.empty(1, 5, 64, device=FIRST if i < 2 else SECOND) for i in (0, 1, 3)}
    with pytest.raises(RuntimeError, match="same device|different devices"):
        torch.cat(list(kept.values()), dim=-1)
    together = target.side_by_side(kept)
    assert together.device == FIRST
    assert together.shape == (1, 5, 3 * 64)


class Head(nn.Module):
    """Stands for a head: what matters is that it works on its own device only."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.empty(93, 64, device=SECOND))

    def forward(self, hidden):
        return torch.cat((hidden, self.weight))


def test_a_head_on_another_device_is_reached_and_its_logits_come_back(fake_devices):
    hidden, head = torch.empty(3, 64, device=FIRST), Head()
    with pytest.raises(RuntimeError, match="same device|different devices"):
        head(hidden)
    logits = Borrowed(nn.Embedding(4, 64), head, looked_up=False, scale=1.0).logits(hidden)
    assert logits.device == FIRST
    assert logits.shape == (96, 64)


@pytest.mark.parametrize(
    ("name", "is_there"), [("cuda", True), ("cuda:1", True), ("cuda:9", False)]
)
def test_a_card_that_is_not_there_is_refused_by_its_number(name, is_there, monkeypatch):
    monkeypatch.setattr(torch_engine, "best_device", lambda: "cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    if is_there:
        assert torch_engine.usable_device(name) == torch.device(name)
        return
    with pytest.raises(EngineError, match="no device 'cuda:9' here"):
        torch_engine.usable_device(name)
