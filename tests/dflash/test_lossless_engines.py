"""The losslessness suite from a request to a text, for every engine a user can choose.

The three servers are played by our torch engine, each in its dialect: what is held to the suite
there is the whole path behind the wire. ``scripts/race_vllm.py`` does the same with a real vLLM.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import torch
from backends import own_answer
from tiny_pair import write_tiny_pair

from dflash.engines import Windowed, open_engine
from dflash.errors import CheckpointError
from dflash.pairs import resolve_pair
from dflash.schema import Chunk, Cycle, Finished, Message, Prefilled, Request, SamplingParams

LOCAL, SERVED = ("torch", "mlx"), ("vllm", "sglang", "llamacpp")
BLOCK_SIZES = (2, 5, 8)
MESSAGES = (Message("user", "the quick brown fox"),)
NUM_TOKENS = 30


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return resolve_pair(*map(str, write_tiny_pair(tmp_path_factory.mktemp("pair"))))


@pytest.fixture(scope="module")
def ours(pair):
    return open_engine("torch", pair=pair, device="cpu", dtype=torch.float32)


@pytest.fixture(scope="module")
def answer(ours):
    """The target's own greedy answer, by transformers' generate."""
    return own_answer(ours.model, ours.encode(MESSAGES), NUM_TOKENS)


@pytest.fixture(scope="module", params=[*LOCAL, *SERVED])
def open_with(request, pair, ours):
    """Open one engine; a server has its block size from the start."""
    if request.param == "mlx":
        pytest.importorskip("mlx.core")

    def opened(block_size: int):
        if request.param in LOCAL:
            return open_engine(request.param, pair=pair)
        servers = PlayedServers(request.param, ours, block_size)
        return open_engine(
            request.param,
            base_url="http://dflash.test",
            baseline_url="http://plain.test",
            make_transport=lambda: httpx.MockTransport(servers.respond),
        )

    opened.name = request.param
    return opened


def ask(block_size: int, max_new_tokens: int = NUM_TOKENS) -> Request:
    return Request(MESSAGES, SamplingParams(max_new_tokens=max_new_tokens), block_size)


def text_of(events) -> str:
    """What a visitor is shown."""
    shown = ""
    for event in events:
        if isinstance(event, Prefilled):
            shown += event.piece
        elif isinstance(event, Cycle):
            shown += "".join(event.pieces)
        elif isinstance(event, Chunk):
            shown += event.text
    return shown


class PlayedServers:
    """Two servers, with and without drafts, that answer as our torch engine does."""

    def __init__(self, dialect: str, ours, block_size: int) -> None:
        self.dialect, self.ours, self.block_size = dialect, ours, block_size

    def respond(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"object": "list", "data": [{"id": "tiny"}]})
        if request.url.path != "/v1/chat/completions":
            return httpx.Response(404, json={"detail": "Not Found"})
        body = json.loads(request.content)
        with_draft = request.url.host == "dflash.test"
        asked = ask(self.block_size if with_draft else 1, body["max_tokens"])
        assert body["temperature"] == 0 and body["messages"][-1]["content"] == "the quick brown fox"
        events = list(self.ours.stream(asked))
        if not body["stream"]:
            return httpx.Response(200, json=self._whole(events))
        lines = [f"data: {json.dumps(e)}\n\n".encode() for e in self._stream(events)]
        headers = {"content-type": "text/event-stream"}
        return httpx.Response(200, headers=headers, content=iter([*lines, b"data: [DONE]\n\n"]))

    def _stream(self, events) -> Iterator[dict]:
        for event in events[:-1]:
            yield {"choices": [{"index": 0, "delta": {"content": text_of([event])}}]}
        finished = events[-1]
        last = {"delta": {}, "index": 0, "finish_reason": finished.finish_reason}
        yield {"choices": [last]}
        usage = {"completion_tokens": finished.num_output_tokens, "prompt_tokens": 4}
        yield {"choices": [], "usage": usage} | self._reported(finished)

    def _whole(self, events) -> dict:
        message = {"role": "assistant", "content": text_of(events)}
        choice = {"index": 0, "message": message, "finish_reason": events[-1].finish_reason}
        usage = {"completion_tokens": events[-1].num_output_tokens}
        return {"choices": [choice | self._reported(events[-1], whole=True)], "usage": usage}

    def _reported(self, finished: Finished, *, whole: bool = False) -> dict:
        """Acceptance, where and as this server tells it."""
        spec = finished.spec
        if spec is None:
            return {}
        if self.dialect == "vllm":
            told = {
                "num_spec_steps": spec.num_cycles,
                "num_draft_tokens": spec.num_draft_tokens,
                "num_accepted_draft_tokens": spec.num_accepted_tokens,
            }
            return {"metrics": {"speculative_decoding": told}}
        if self.dialect == "sglang":
            told = {
                "spec_verify_ct": spec.num_cycles,
                "spec_num_proposed_drafts": spec.num_draft_tokens,
                "spec_num_correct_drafts": spec.num_accepted_tokens,
            }
            return {"meta_info": told} if whole else {}
        told = {"draft_n": spec.num_draft_tokens, "draft_n_accepted": spec.num_accepted_tokens}
        return {"timings": told}


def test_both_lanes_show_the_targets_own_answer(open_with, ours, answer):
    text = ours.decode(answer)
    for block_size in BLOCK_SIZES:
        engine = open_with(block_size)
        for lane in (block_size, 1):
            events = list(engine.stream(ask(lane)))
            shown = text_of(events)
            assert text.startswith(shown) and set(text[len(shown) :]) <= {"\ufffd"}
            assert events[-1].num_output_tokens == len(answer), f"block {lane}"
        engine.close()


def test_acceptance_means_the_same_for_every_engine(open_with, ours):
    for block_size in BLOCK_SIZES:
        engine = open_with(block_size)
        wanted = list(ours.stream(ask(block_size)))[-1].spec
        found = list(engine.stream(ask(block_size)))[-1].spec
        assert found.num_draft_tokens == wanted.num_draft_tokens
        assert found.num_accepted_tokens == wanted.num_accepted_tokens
        # llama.cpp tells no number of cycles, and none is made up.
        assert found.tau == (None if open_with.name == "llamacpp" else wanted.tau)
        assert list(engine.stream(ask(1)))[-1].spec is None


@pytest.mark.parametrize("max_new_tokens", [1, 2, 7])
def test_the_length_limit_is_kept_by_every_engine(open_with, ours, answer, max_new_tokens):
    engine = open_with(8)
    events = list(engine.stream(ask(8, max_new_tokens)))
    assert events[-1].num_output_tokens == max_new_tokens
    assert events[-1].finish_reason == "length"
    assert ours.decode(answer).startswith(text_of(events))


@pytest.mark.parametrize("backend", LOCAL)
def test_a_free_window_changes_what_the_draft_sees_and_never_the_answer(backend, pair, answer):
    if backend == "mlx":
        pytest.importorskip("mlx.core")
    engine = open_engine(backend, pair=pair)
    assert isinstance(engine, Windowed) and engine.has_free_window
    narrow = engine.with_window(2)
    assert isinstance(narrow, Windowed) and not narrow.has_free_window
    for block_size in BLOCK_SIZES:
        drafts = {}
        for name, asked in (("wide", engine), ("narrow", narrow)):
            events = list(asked.stream(ask(block_size)))
            cycles = [e for e in events if isinstance(e, Cycle)]
            emitted = [i for cycle in cycles for i in cycle.emitted_ids]
            assert [events[0].token_id, *emitted] == answer
            drafts[name] = [cycle.draft_ids for cycle in cycles]
        assert drafts["wide"] != drafts["narrow"]
    with pytest.raises(CheckpointError, match="a window of 2"):
        open_engine(backend, pair=windowed_pair(pair)).with_window(8)


def windowed_pair(pair):
    """The same pair with a draft that was trained with a window of 2."""
    folder = Path(pair.draft_id).with_name("windowed")
    shutil.copytree(pair.draft_id, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    config |= {"layer_types": ["sliding_attention"], "sliding_window": 2, "is_causal": False}
    (folder / "config.json").write_text(json.dumps(config))
    return replace(pair, draft_id=str(folder))


def test_a_window_given_is_the_window_trained(pair):
    given = open_engine("torch", pair=pair).with_window(2)
    trained = open_engine("torch", pair=windowed_pair(pair))
    cycles = [
        [e.draft_ids for e in engine.stream(ask(8)) if isinstance(e, Cycle)]
        for engine in (given, trained)
    ]
    assert cycles[0] == cycles[1]
