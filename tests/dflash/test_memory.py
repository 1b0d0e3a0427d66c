"""Out of memory: one sentence, both caches gone, a smaller run named, the engine usable."""

from __future__ import annotations

import weakref

import pytest
import torch
from tiny_pair import write_tiny_pair

from dflash.engines import open_engine, torch_engine
from dflash.errors import EngineError
from dflash.memory import fitting, smaller_request
from dflash.pairs import resolve_pair
from dflash.schema import Message, Request, SamplingParams
from dflash.targets import LeanRun

SAID = {
    "torch": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "mlx": RuntimeError("[metal::malloc] Attempting to allocate 9 bytes which is greater than"),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return resolve_pair(*map(str, write_tiny_pair(tmp_path_factory.mktemp("pair"))))


def request(block_size: int, max_new_tokens: int = 20) -> Request:
    sampling = SamplingParams(max_new_tokens=max_new_tokens)
    return Request((Message("user", "the quick brown"),), sampling, block_size)


def full_after(num_forwards: int, monkeypatch, run_class: type, error: RuntimeError) -> list:
    """Let every run of a class fail at a later forward; return weak references to the runs."""
    runs: list[weakref.ref] = []
    original = run_class.forward
    num_seen = 0

    def forward(self, ids, num_logits):
        nonlocal num_seen
        if num_seen == 0:
            runs.append(weakref.ref(self))
        num_seen += 1
        if num_seen > num_forwards:
            raise error
        return original(self, ids, num_logits)

    monkeypatch.setattr(run_class, "forward", forward)
    return runs


@pytest.mark.parametrize("backend", ["torch", "mlx"])
def test_a_run_that_does_not_fit_loses_both_caches_and_names_a_smaller_one(
    pair, backend, monkeypatch
):
    if backend == "mlx":
        pytest.importorskip("mlx.core")
    engine = open_engine(backend, pair=pair)
    before = [e.emitted_ids for e in list(engine.stream(request(8)))[1:-1]]
    caches, run_class = _watch_draft_caches(backend, monkeypatch)
    with monkeypatch.context() as full:
        runs = full_after(2, full, run_class, SAID[backend])
        with pytest.raises(EngineError) as caught:
            list(engine.stream(request(8)))
    error = caught.value
    assert "did not fit in the memory of" in error.message
    assert error.hint == (
        "Try a shorter prompt, 10 new tokens instead of 20, block size 4 instead of 8."
    )
    assert len(runs) == len(caches) == 1
    assert runs[0]() is None and caches[0]() is None, "the error keeps a cache alive"
    assert [e.emitted_ids for e in list(engine.stream(request(8)))[1:-1]] == before


def _watch_draft_caches(backend: str, monkeypatch) -> tuple[list, type]:
    """Weak references to the draft caches of later runs, and the class of target runs."""
    caches: list[weakref.ref] = []

    def watched(make):
        def made(*args):
            cache = make(*args)
            caches.append(weakref.ref(cache))
            return cache

        return made

    if backend == "torch":
        from dflash.lean import LeanDraft

        monkeypatch.setattr(LeanDraft, "new_cache", watched(LeanDraft.new_cache))
        return caches, LeanRun
    from dflash import generate_mlx

    monkeypatch.setattr(generate_mlx, "make_cache", watched(generate_mlx.make_cache))
    return caches, generate_mlx.MlxRun


def test_a_pair_that_does_not_fit_is_refused_with_a_way_out(pair, monkeypatch):
    def no_room(*_args, **_options):
        raise SAID["torch"]

    monkeypatch.setattr(torch_engine, "load_draft", no_room)
    with pytest.raises(EngineError, match="did not fit in the memory of cpu.*smaller pair"):
        open_engine("torch", pair=pair, device="cpu")


def test_another_runtime_error_keeps_its_traceback():
    with (
        pytest.raises(RuntimeError, match="size mismatch"),
        fitting("a GPU", hint="", release=lambda: None),
    ):
        raise RuntimeError("size mismatch")


@pytest.mark.parametrize(
    ("block_size", "max_new_tokens", "hint"),
    [
        (16, 512, "a shorter prompt, 256 new tokens instead of 512, block size 8 instead of 16."),
        (1, 100, "a shorter prompt, 50 new tokens instead of 100."),
        (2, 1, "a shorter prompt."),
    ],
)
def test_only_settings_that_can_shrink_are_suggested(block_size, max_new_tokens, hint):
    assert smaller_request(request(block_size, max_new_tokens)) == f"Try {hint}"
