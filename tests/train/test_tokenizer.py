"""The demo tokenizer: lossless, one way to spell a name, and no way to spell the mask."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from dflash.train.corpus import KINDS, draw_tasks
from dflash.train.tokenizer import MASK, train_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    texts = [
        task.prompt + task.answer for kind in KINDS for task in draw_tasks(kind, 40, 1_000_000)
    ]
    train_tokenizer(texts, folder, vocab_size=700)
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(
    "text",
    [
        "  two  spaces\n\n    and\tTABs ",
        "Ünïcödé 漢字 🦊",
        "x1=23;\r\n",
        "lápices y años",
        "\u0000\u200b",
    ],
)
def test_any_text_survives_the_round_trip(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", KINDS)
def test_the_corpus_survives_the_round_trip(tokenizer: PreTrainedTokenizerBase, kind: str) -> None:
    for task in draw_tasks(kind, 20, 3):
        assert tokenizer.decode(tokenizer.encode(task.answer)) == task.answer


@pytest.mark.parametrize("text", [MASK, f"a {MASK} b", MASK * 3, "<|mask", "<|user|><|mask|>"])
def test_no_text_becomes_the_mask(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    mask_id = tokenizer.convert_tokens_to_ids(MASK)
    assert tokenizer.convert_ids_to_tokens(mask_id) == MASK
    assert mask_id not in tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_name_is_the_same_tokens_wherever_it_stands(tokenizer: PreTrainedTokenizerBase) -> None:
    name = tokenizer.encode("Belmira")
    for text in ("Then Belmira", '"Belmira', "\nBelmira", "Hi,Belmira"):
        assert tokenizer.encode(text)[-len(name) :] == name


def test_digits_stand_alone(tokenizer: PreTrainedTokenizerBase) -> None:
    pieces = tokenizer.convert_ids_to_tokens(tokenizer.encode("1234 and 56"))
    assert all(sum(map(str.isdigit, piece)) <= 1 for piece in pieces)


def test_the_chat_template_marks_turns_and_leaves_out_a_system_turn(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    turns = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "Bye"},
    ]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|begin|><|user|>Hello<|end|><|assistant|>Hi<|end|><|user|>Bye<|end|><|assistant|>"
    )
    assert tokenizer.eos_token == "<|end|>"
    ids = tokenizer.apply_chat_template(turns, return_dict=False, add_generation_prompt=True)
    assert ids == tokenizer.encode(text, add_special_tokens=False)
