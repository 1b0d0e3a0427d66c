"""Messages to token ids and back, one id at a time. Knows tokenizers; no model and no clock.

The pieces of a run, joined, are exactly the decoded output: a piece stays '' while the bytes of
a character are still arriving, and the id that completes it carries the whole character.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from dflash.schema import Cycle, Event, Message, Prefilled

_UNFINISHED = "\ufffd"  # what decoding shows for bytes that are not a whole character yet


class Detokenizer:
    """Feed ids in order; each ``add`` returns the text that id completed."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._start = 0  # where the ids still needed for context begin
        self._shown = 0  # ids whose text has been returned

    def add(self, token_id: int) -> str:
        """Return the new text, '' while a character is incomplete."""
        self._ids.append(token_id)
        before = self._decode(self._ids[self._start : self._shown])
        text = self._decode(self._ids[self._start :])
        if text.endswith(_UNFINISHED) or len(text) < len(before):
            return ""
        # Earlier ids stay as context because some tokenizers decode a first id differently.
        self._start, self._shown = self._shown, len(self._ids)
        return text[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        """Special tokens are shown: what was generated is what a visitor sees."""
        return self._tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )


def encode_chat(
    tokenizer: Any, messages: tuple[Message, ...], *, enable_thinking: bool = False
) -> list[int]:
    """The prompt's token ids through the chat template, rendered and tokenised in one go so that
    no BOS is doubled (OpenRLHF issue #393). Without a template the last message is the prompt."""
    if tokenizer.chat_template is None:
        return list(tokenizer.encode(messages[-1].content))
    rendered = tokenizer.apply_chat_template(
        [dataclasses.asdict(m) for m in messages],
        add_generation_prompt=True,
        enable_thinking=enable_thinking,
        return_dict=False,  # mlx-lm's tokenizer knows no other form
    )
    return list(rendered)


def with_text(event: Event, detokenizer: Detokenizer) -> Event:
    """Fill in the text of the ids an event brings."""
    if isinstance(event, Prefilled):
        return dataclasses.replace(event, piece=detokenizer.add(event.token_id))
    if isinstance(event, Cycle):
        pieces = tuple(detokenizer.add(i) for i in event.emitted_ids)
        return dataclasses.replace(event, pieces=pieces)
    return event
