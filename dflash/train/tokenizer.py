"""The demo pair's tokenizer: byte-level BPE, fitted to the corpus, with a mask no text can hold.

Digits stand alone, and a capitalised word never swallows the space before it: a name is then the
same tokens in a sentence, in quotes and in code, and copying it is the same act everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL_TOKENS = (  # in the order of their ids
    "<|begin|>", "<|end|>", "<|user|>", "<|assistant|>", "<|pad|>", "<|mask|>",
)  # fmt: skip
BEGIN, END, USER, ASSISTANT, PAD, MASK = SPECIAL_TOKENS
_PIECES = r"\n *| ?\p{Ll}+|\p{Lu}\p{Ll}*|\p{N}| ?[^\s\p{L}\p{N}]+|\s+|\p{L}+"

# The models were trained without a system turn: one in a request is left out rather than misread.
CHAT_TEMPLATE = (
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{%- if message['role'] == 'user' %}{{- '<|user|>' + message['content'] + '<|end|>' }}"
    "{%- elif message['role'] == 'assistant' %}"
    "{{- '<|assistant|>' + message['content'] + '<|end|>' }}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"
)


def train_tokenizer(
    texts: Iterable[str], folder: Path, *, vocab_size: int
) -> PreTrainedTokenizerFast:
    """Fit the tokenizer to ``texts``, write it to ``folder``, return it as it loads from there."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=_without_mask_marker(tokenizer),
        bos_token=BEGIN,
        eos_token=END,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    wrapped.save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def _without_mask_marker(tokenizer: Tokenizer) -> Tokenizer:
    """Keep the mask in the vocabulary but out of the markers looked for in text.

    No merge leads to it, so a text that spells ``<|mask|>`` becomes ordinary bytes.
    """
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [
        token for token in content["added_tokens"] if token["content"] != MASK
    ]
    return Tokenizer.from_str(json.dumps(content))
