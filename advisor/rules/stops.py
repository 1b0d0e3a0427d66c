"""Rules about the ids that end generation."""

from __future__ import annotations

from advisor.rules.case import Case, Fault, rule
from advisor.values import shown

UNION = "https://github.com/lvyufeng/PocketLLM/pull/133"
_START_MARKS = ("<|im_start|>", "<start_of_turn>", "<|start_header_id|>", "<|start|>", "<think>")


@rule("stops.out-of-vocabulary", "error", "stop_token_ids", evidence=UNION)
def out_of_vocabulary(case: Case) -> Fault | None:
    """A stop id is negative or has no row in the target's vocabulary, so it never comes."""
    rows = case.embedding_rows
    for token, source in case.stop_ids.items():
        if token < 0:
            return Fault(f"Stop id {token} of {source} is negative.", "Correct eos_token_id.")
        if rows is not None and token >= rows:
            return Fault(
                f"Stop id {token} of {source} is outside the vocabulary of {rows}.",
                "Tokenizer and target do not belong together, or eos_token_id is wrong.",
            )
    return None


@rule("stops.missing", "warning", "stop_token_ids", evidence=UNION)
def missing(case: Case) -> Fault | None:
    """Neither tokenizer nor target names a stop id, so every answer runs to the length limit."""
    if case.tokenizer is None or case.stop_ids:
        return None
    return Fault(
        "Neither the tokenizer nor the target's config names an end-of-text id.",
        "Give the folder with generation_config.json, or set the stop ids by hand.",
    )


@rule("stops.starts-a-turn", "error", "stop_token_ids",
      evidence="https://github.com/Luce-Org/lucebox/pull/97")  # fmt: skip
def starts_a_turn(case: Case) -> Fault | None:
    """A stop id is a token that begins a turn rather than one that ends it."""
    if case.tokenizer is None:
        return None
    for token, source in case.stop_ids.items():
        text = case.tokenizer.special_tokens.get(token)
        if text in _START_MARKS:
            return Fault(
                f"Stop id {token} of {source} is {shown(text)}, which begins a turn.",
                "Use the end-of-turn id; generation would otherwise never stop where it should.",
            )
    return None


@rule("stops.disjoint", "warning", "stop_token_ids", evidence=UNION)
def disjoint(case: Case) -> Fault | None:
    """Tokenizer and target name entirely different stop ids."""
    if case.tokenizer is None or case.target is None:
        return None
    ours, theirs = set(case.tokenizer.eos_token_ids), set(case.target.eos_token_ids)
    if not ours or not theirs or ours & theirs:
        return None
    return Fault(
        f"The tokenizer stops at {shown(sorted(ours))}, the target's config at "
        f"{shown(sorted(theirs))}: no id in common.",
        "Stop at all of them; if the files come from different models, use the target's tokenizer.",
    )


@rule("stops.draft-differs", "note", "stop_token_ids", evidence=UNION)
def draft_differs(case: Case) -> Fault | None:
    """The draft's config names an end-of-text id that neither target nor tokenizer has."""
    value = case.draft.raw.get("eos_token_id")
    if type(value) is not int or not case.stop_ids or value in case.stop_ids:
        return None
    return Fault(
        f"The draft's config names end-of-text id {value}; the target stops at "
        f"{shown(sorted(case.stop_ids))}.",
        "Check that the draft was trained for this model family; only the target's ids are used.",
    )
