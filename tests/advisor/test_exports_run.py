"""The exported transformers script runs as it stands, on a tiny real pair."""

from __future__ import annotations

import runpy

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from advisor.answer import recommend_for
from advisor.exports import render
from advisor.gather import Request
from tests.tiny_models import VOCAB, build_draft, build_target


def save_pair(folder) -> None:
    """A random target with a word tokenizer, and a random draft for it."""
    target = build_target("llama")
    target.save_pretrained(folder / "target")
    build_draft(target).save_pretrained(folder / "draft")
    words = {f"w{i}": i for i in range(VOCAB - 1)} | {"?": VOCAB - 1}
    tokenizer = Tokenizer(WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?", eos_token="w1")
    fast.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    fast.save_pretrained(folder / "target")


def test_the_transformers_script_generates(tmp_path, capsys):
    save_pair(tmp_path)
    answer = recommend_for(
        Request(
            draft=str(tmp_path / "draft"),
            target=str(tmp_path / "target" / "config.json"),
            max_new_tokens=8,
        )
    )
    assert answer.knobs["block_size"].value == 16
    script = tmp_path / "generate.py"
    script.write_text(render(answer, "transformers").text, encoding="utf-8")
    runpy.run_path(str(script))
    assert capsys.readouterr().out.strip()
