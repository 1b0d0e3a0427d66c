"""The torch engine on a tiny pair saved to disk: text, clocks, refusals, isolation."""

from __future__ import annotations

import time

import pytest
import torch
from tiny_models import VOCAB, build_draft, build_target
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from dflash.engines import open_engine
from dflash.errors import BlockSizeError, EngineError
from dflash.pairs import resolve_pair
from dflash.schema import Cycle, Finished, Message, Prefilled, Request, SamplingParams


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level tokens only, so that any character can be cut in the middle."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {c: i for i, c in enumerate(alphabet[: VOCAB - 1])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    target = build_target("llama")
    target.save_pretrained(folder / "target")
    build_draft(target, block_size=8).save_pretrained(folder / "draft")
    byte_tokenizer().save_pretrained(folder / "target")
    return open_engine("torch", pair=resolve_pair(str(folder / "target"), str(folder / "draft")))


def ask(block_size: int, **sampling) -> Request:
    return Request(
        (Message("user", "Hi there"),), SamplingParams(max_new_tokens=20, **sampling), block_size
    )


def ids_of(events) -> list[int]:
    return [events[0].token_id] + [i for e in events if isinstance(e, Cycle) for i in e.emitted_ids]


def test_both_lanes_give_the_same_tokens_and_the_pieces_join_to_the_text(engine):
    plain = list(engine.stream(ask(1)))
    fast = list(engine.stream(ask(8)))
    assert ids_of(plain) == ids_of(fast)
    for events in (plain, fast):
        pieces = events[0].piece + "".join(p for e in events[1:-1] for p in e.pieces)
        text = engine.decode(ids_of(events))
        assert text.startswith(pieces)
        assert set(text[len(pieces) :]) <= {"\ufffd"}
    assert isinstance(plain[0], Prefilled)
    assert isinstance(plain[-1], Finished)
    assert plain[-1].spec is None
    assert fast[-1].spec.tau >= 1


def test_a_lanes_clock_does_not_count_the_time_it_is_suspended(engine):
    lane = engine.stream(ask(4))
    next(lane)
    time.sleep(0.5)
    rest = list(lane)
    assert rest[-1].t_s < 0.45


def test_a_block_above_the_trained_one_is_refused_before_anything_runs(engine):
    with pytest.raises(BlockSizeError, match="1 to 8, got 9"):
        next(engine.stream(ask(9)))


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(engine):
    long = Request((Message("user", "x" * 600),), SamplingParams(), 4)
    with pytest.raises(EngineError, match="600 tokens and this model's context is 512"):
        next(engine.stream(long))


def test_an_abandoned_stream_leaves_the_engine_as_it_was(engine):
    before = ids_of(list(engine.stream(ask(8))))
    lane = engine.stream(ask(8))
    next(lane), next(lane)
    lane.close()
    assert ids_of(list(engine.stream(ask(8)))) == before


def test_an_unknown_backend_is_refused_by_name():
    with pytest.raises(EngineError, match="no backend called 'cuda'"):
        open_engine("cuda")


def test_the_mlx_engine_gives_the_torch_engines_tokens(engine):
    pytest.importorskip("mlx.core")
    mlx = open_engine("mlx", pair=engine.pair)
    for block_size in (1, 5, 8):
        assert ids_of(list(mlx.stream(ask(block_size)))) == ids_of(
            list(engine.stream(ask(block_size)))
        )
    mlx.close()


def test_bfloat16_runs_and_its_draft_follows_the_targets_dtype(engine):
    half = open_engine("torch", pair=engine.pair, dtype=torch.bfloat16)
    assert next(half.draft_model.parameters()).dtype == torch.bfloat16
    assert list(half.stream(ask(4)))[-1].num_output_tokens == 20
