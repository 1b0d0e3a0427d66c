"""Special tokens out of tokenizer_config.json, generation_config.json and tokenizer.json.

Knows how those files spell stop, begin, pad and mask tokens. Knows no file system and no rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.schema import Finding, TokenizerSpec
from advisor.values import Fields


@dataclass(frozen=True, slots=True)
class TokenizerReading:
    """A tokenizer's special tokens, and the values that had the wrong type."""

    spec: TokenizerSpec
    findings: tuple[Finding, ...] = ()


def read_tokenizer(*files: Mapping[str, Any]) -> TokenizerReading:
    """Unite what tokenizer_config.json, generation_config.json and the like say, in that order.

    Stop ids are united, since generation ends at any of them; other ids come from the first file
    that has them. Tokens given as text are looked up in the files' own tables.
    """
    findings: list[Finding] = []
    texts: dict[int, str] = {}
    for raw in files:
        texts.update(_token_texts(raw))
    by_text = {text: token for token, text in texts.items()}
    eos: dict[int, None] = {}
    single: dict[str, int] = {}
    for raw in files:
        fields = Fields(raw, findings)
        eos.update(dict.fromkeys(fields.integer_or_list("eos_token_id", "stop_token_ids")))
        eos.update(dict.fromkeys(_looked_up(raw.get("eos_token"), by_text)))
        for key in ("bos", "pad", "mask", "unk"):
            token = fields.integer(f"{key}_token_id")
            found = [token] if token is not None else _looked_up(raw.get(f"{key}_token"), by_text)
            if found:
                single.setdefault(key, found[0])
    spec = TokenizerSpec(
        eos_token_ids=tuple(eos),
        bos_token_id=single.get("bos"),
        pad_token_id=single.get("pad"),
        mask_token_id=single.get("mask"),
        unk_token_id=single.get("unk"),
        num_tokens=_num_tokens(files),
        special_tokens=texts,
        chat_template=_first(files, "chat_template", str),
        adds_bos=_first(files, "add_bos_token", bool),
    )
    return TokenizerReading(spec, tuple(findings))


def _token_texts(raw: Mapping[str, Any]) -> dict[int, str]:
    """Special tokens by id, from tokenizer_config.json's or tokenizer.json's own table."""
    found: dict[int, str] = {}
    table = raw.get("added_tokens_decoder")
    for key, entry in table.items() if isinstance(table, dict) else ():
        content = entry.get("content") if isinstance(entry, dict) else None
        if isinstance(content, str) and key.isascii() and key.isdigit() and len(key) < 12:
            found[int(key)] = content
    listed = raw.get("added_tokens")
    for entry in listed if isinstance(listed, list) else ():
        token, content = (
            (entry.get("id"), entry.get("content")) if isinstance(entry, dict) else (0, 0)
        )
        if isinstance(content, str) and isinstance(token, int) and not isinstance(token, bool):
            found[token] = content
    return found


def _looked_up(token: Any, by_text: Mapping[str, int]) -> list[int]:
    text = token.get("content") if isinstance(token, dict) else token
    return [by_text[text]] if isinstance(text, str) and text in by_text else []


def _num_tokens(files: tuple[Mapping[str, Any], ...]) -> int | None:
    for raw in files:
        vocab = raw["model"].get("vocab") if isinstance(raw.get("model"), dict) else None
        if isinstance(vocab, dict | list) and vocab:
            added = raw.get("added_tokens")
            return max(len(vocab), 1 + max(_token_texts({"added_tokens": added}), default=-1))
    return None


def _first(files: tuple[Mapping[str, Any], ...], key: str, kind: type) -> Any:
    return next((raw[key] for raw in files if isinstance(raw.get(key), kind)), None)
