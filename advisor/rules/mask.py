"""Rules about mask_token_id: what fills the slots that are to be drafted."""

from __future__ import annotations

from advisor.rules.case import Case, Fault, rule
from advisor.values import shown

NEVER_GUESS = "https://github.com/NVIDIA-NeMo/Automodel/pull/2461"
ROWS = "https://github.com/NVIDIA/Model-Optimizer/pull/1621"
_PADDING_ROWS = 4096  # no published embedding is padded by more
_TURN_MARKS = ("<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>",
               "<start_of_turn>", "<end_of_turn>", "<think>", "</think>")  # fmt: skip


@rule("mask.missing", "error", "mask_token_id", evidence=NEVER_GUESS)
def missing(case: Case) -> Fault | None:
    """mask_token_id is not written; it is never replaced by pad, EOS or unk."""
    if not case.has_file or case.mask_token_id is not None or _is_misfit(case):
        return None
    return Fault(
        "mask_token_id is missing, and no other token stands in for it: a wrong mask runs "
        "without an error at poor acceptance.",
        "Take it from the draft's published config.json; do not use the pad or EOS token.",
    )


def _is_misfit(case: Case) -> bool:
    raw, section = case.draft.raw, case.draft.raw.get("dflash_config")
    places = [raw, section if isinstance(section, dict) else {}]
    keys = ("mask_token_id", "dflash.mask_token_id", "tokenizer.ggml.mask_token_id")
    return any(place.get(key) is not None for place in places for key in keys)


@rule("mask.negative", "error", "mask_token_id",
      evidence="https://github.com/ggml-org/llama.cpp/issues/26761")  # fmt: skip
def negative(case: Case) -> Fault | None:
    """The mask is negative, as converters write it when the draft has no vocabulary."""
    mask = case.mask_token_id
    if mask is None or mask >= 0:
        return None
    return Fault(
        f"mask_token_id is {mask}, which is no token.",
        "Convert the draft again with the target's tokenizer, or set the published id.",
    )


@rule("mask.is-stop-id", "error", "mask_token_id", evidence=NEVER_GUESS)
def is_stop_id(case: Case) -> Fault | None:
    """The mask is a stop id: it poisons the block, and reference loops stop after one block."""
    mask = case.mask_token_id
    if mask is None:
        return None
    source = case.stop_ids.get(mask) or ("the draft's config" if mask in _draft_eos(case) else None)
    if source is None:
        return None
    if any(mask == facts.mask_token_id for facts in case.revisions):
        return Fault(
            f"mask_token_id {mask} is an end-of-text id of {source}, and was published that way.",
            "Reference loops that search the masked tail for stop ids end after one block.",
            severity="note",
        )
    return Fault(
        f"mask_token_id {mask} is an end-of-text id of {source}.",
        "Use the mask the draft was trained with; it is a free or reserved token, never EOS.",
    )


def _draft_eos(case: Case) -> tuple[int, ...]:
    raw = case.draft.raw
    value = raw.get("eos_token_id", raw.get("tokenizer.ggml.eos_token_id"))
    values = value if isinstance(value, list) else [value]
    return tuple(v for v in values if type(v) is int)


def _special(case: Case, key: str) -> int | None:
    """A special token by what is nearest to the prompt: tokenizer, target, then the draft."""
    for spec in (case.tokenizer, case.target):
        token = getattr(spec, f"{key}_token_id", None)
        if token is not None:
            return token
    value = case.draft.raw.get(f"{key}_token_id")
    return value if type(value) is int else None


@rule("mask.is-bos", "error", "mask_token_id", evidence=NEVER_GUESS)
def is_bos(case: Case) -> Fault | None:
    """The mask is the begin-of-text token."""
    mask = case.mask_token_id
    if mask is None or mask != _special(case, "bos"):
        return None
    return Fault(
        f"mask_token_id {mask} is the begin-of-text token.",
        "Use the mask the draft was trained with.",
    )


@rule("mask.is-pad", "warning", "mask_token_id", evidence=NEVER_GUESS)
def is_pad(case: Case) -> Fault | None:
    """The mask is the pad token, which trainers fall back to and no published draft uses."""
    mask = case.mask_token_id
    if mask is None or mask != _special(case, "pad") or mask in _all_eos(case):
        return None
    return Fault(
        f"mask_token_id {mask} is the pad token; every published draft has a mask of its own.",
        "Right only if the draft was trained that way; check its published config.json.",
    )


def _all_eos(case: Case) -> set[int]:
    return set(case.stop_ids) | set(_draft_eos(case))


@rule("mask.is-unk", "warning", "mask_token_id", evidence=NEVER_GUESS)
def is_unk(case: Case) -> Fault | None:
    """The mask is the unknown token, which trainers fall back to."""
    mask = case.mask_token_id
    if mask is None or case.tokenizer is None or mask != case.tokenizer.unk_token_id:
        return None
    if mask in _all_eos(case) or mask == _special(case, "pad"):
        return None
    return Fault(
        f"mask_token_id {mask} is the tokenizer's unknown token.",
        "Right only if the draft was trained that way; check its published config.json.",
    )


@rule("mask.outside-embedding", "error", "mask_token_id", evidence=ROWS)
def outside_embedding(case: Case) -> Fault | None:
    """The mask has no row in the target's embedding. Padded rows count as rows."""
    mask, rows = case.mask_token_id, case.embedding_rows
    if mask is None or mask < 0:
        return None
    if rows is not None:
        if mask < rows:
            return None
        return Fault(
            f"mask_token_id {mask} is outside the target's embedding, which has {rows} rows.",
            "The mask is embedded by the target: use the trained id with the target it fits.",
        )
    own = case.draft.shape.vocab_size
    if own is None or own < 1 or mask < own:
        return None
    return Fault(
        f"mask_token_id {mask} is beyond the draft's vocab_size {own}; the target's embedding "
        "rows decide, and they are not known here.",
        "Give the target with --target to be sure.",
        severity="error" if mask >= own + _PADDING_ROWS else "warning",
    )


@rule("mask.is-chat-token", "warning", "mask_token_id", evidence=NEVER_GUESS)
def is_chat_token(case: Case) -> Fault | None:
    """The tokenizer uses the mask id to mark turns or thinking."""
    mask = case.mask_token_id
    if case.tokenizer is None or mask is None or mask in _all_eos(case):
        return None
    text = case.tokenizer.special_tokens.get(mask)
    if text not in _TURN_MARKS:
        return None
    return Fault(
        f"mask_token_id {mask} is {shown(text)}, which the chat template uses.",
        "Use the mask the draft was trained with.",
    )


@rule("mask.disagree", "warning", "mask_token_id",
      evidence="https://github.com/PrismML-Eng/llama.cpp/pull/127")  # fmt: skip
def disagree(case: Case) -> Fault | None:
    """Two places in the draft's file give different masks."""
    raw, section = case.draft.raw, case.draft.raw.get("dflash_config")
    written = {
        "dflash_config.mask_token_id": section.get("mask_token_id")
        if isinstance(section, dict)
        else None,
        "mask_token_id": raw.get("mask_token_id"),
        "dflash.mask_token_id": raw.get("dflash.mask_token_id"),
        "tokenizer.ggml.mask_token_id": raw.get("tokenizer.ggml.mask_token_id"),
    }
    found = [(key, value) for key, value in written.items() if type(value) is int]
    if len({value for _, value in found}) < 2:
        return None
    (key, value), (other_key, other) = found[0], next(x for x in found if x[1] != found[0][1])
    return Fault(
        f"{key} is {shown(value)}, {other_key} is {shown(other)}; the draft's own value "
        f"{shown(case.draft.mask_token_id)} is used here.",
        "Engines read one or the other: make them equal.",
    )


@rule("mask.tokenizer-differs", "warning", "mask_token_id",
      evidence="https://github.com/PrismML-Eng/llama.cpp/pull/127")  # fmt: skip
def tokenizer_differs(case: Case) -> Fault | None:
    """The tokenizer names a mask token of its own that is not the draft's."""
    mask, named = case.mask_token_id, case.tokenizer.mask_token_id if case.tokenizer else None
    if mask is None or named is None or mask == named:
        return None
    return Fault(
        f"The draft's mask is {mask}; the tokenizer's mask token is {named}.",
        "The draft's value counts; see that your engine does not take the tokenizer's.",
    )


@rule("mask.override", "error", "mask_token_id",
      evidence="https://github.com/yihao-liang/alpamayo-dflash")  # fmt: skip
def override(case: Case) -> Fault | None:
    """The user asks for another mask than the checkpoint was trained with."""
    wanted, trained = case.settings.mask_token_id, case.draft.mask_token_id
    if wanted is None or wanted == trained:
        return None
    if trained is None:
        return Fault(
            f"mask_token_id {wanted} cannot be checked: the checkpoint does not state its own.",
            "Compare the acceptance with and without it.",
            severity="warning",
        )
    return Fault(
        f"mask_token_id {wanted} instead of the trained {trained} runs without an error "
        "and destroys acceptance.",
        "Leave the mask as trained, whatever the tokenizer's pad or EOS token is.",
    )


@rule("mask.not-as-published", "error", "mask_token_id", evidence=NEVER_GUESS)
def not_as_published(case: Case) -> Fault | None:
    """The mask is not that of any published revision of the draft that goes by this name."""
    mask, masks = case.draft.mask_token_id, [f.mask_token_id for f in case.revisions]
    if not case.has_file or mask is None or not masks or None in masks or mask in masks:
        return None
    return Fault(
        f"mask_token_id is {mask}; {shown(case.draft.name)} was published with {masks[0]}.",
        "Restore the published id.",
    )


@rule("mask.unlike-published-draft", "warning", "mask_token_id", evidence=NEVER_GUESS)
def unlike_published_draft(case: Case) -> Fault | None:
    """The published draft for this target has another mask."""
    mask = case.draft.mask_token_id
    if not case.has_file or mask is None or case.revisions:
        return None
    masks = [f.mask_token_id for pair in case.target_pairs for f in pair.drafts]
    if not masks or None in masks or mask in masks:
        return None
    return Fault(
        f"mask_token_id is {mask}; the published draft for this target has {masks[0]}.",
        "Right for another draft; if this is the published one, restore its own id.",
        severity=case.other_draft_severity,
    )
