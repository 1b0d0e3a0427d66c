"""Rules about block_size: how many slots one draft pass fills, the anchor included."""

from __future__ import annotations

from typing import Any

from advisor.rules.case import PAPER, REFERENCE, Case, Fault, rule
from advisor.values import shown


@rule("block.missing", "error", "block_size",
      evidence="https://github.com/turboderp-org/exllamav3/pull/276")  # fmt: skip
def missing(case: Case) -> Fault | None:
    """block_size is written neither at the top level nor in dflash_config."""
    if not case.has_file or case.draft.block_size is not None:
        return None
    if any(value is not None for value in _written(case)):
        return None  # written with a wrong type: already reported
    return Fault(
        "block_size is missing, at the top level and in dflash_config.",
        "Add the block size the draft was trained with; SGLang would assume 16.",
    )


def _written(case: Case) -> tuple[Any, Any]:
    """block_size as the file has it: (nested or GGUF, top level)."""
    section = case.draft.raw.get("dflash_config")
    nested = section.get("block_size") if isinstance(section, dict) else None
    return nested or case.draft.raw.get("dflash.block_size"), case.draft.raw.get("block_size")


@rule("block.not-positive", "error", "block_size", evidence=REFERENCE)
def not_positive(case: Case) -> Fault | None:
    """The block has no slot at all."""
    for value, where in (
        (case.settings.block_size, "The block size to run with"),
        (case.draft.block_size, "The draft's block_size"),
    ):
        if value is not None and value < 1:
            return Fault(
                f"{where} is {value}; it must be at least 1.", "Use 2 up to the trained size."
            )
    return None


@rule("block.one", "warning", "block_size", evidence="https://github.com/z-lab/dflash")
def one(case: Case) -> Fault | None:
    """A block of 1 holds only the anchor: nothing is drafted, which is the plain baseline."""
    if case.block_size != 1:
        return None
    return Fault(
        "block_size 1 drafts nothing: the one slot is the anchor.",
        f"Use 2 to {_trained(case)}, or turn DFlash off.",
    )


def _trained(case: Case) -> int | str:
    block = case.draft.block_size
    return block if block and block > 1 else "the trained size"


@rule("block.above-trained", "error", "block_size", evidence=PAPER)
def above_trained(case: Case) -> Fault | None:
    """The block to run with is larger than the trained one."""
    wanted, trained = case.settings.block_size, case.draft.block_size
    if wanted is None or trained is None or wanted <= trained:
        return None
    return Fault(
        f"block_size {wanted} is above the trained {trained}: engines clamp it or crash, and "
        "untrained slots are not accepted.",
        f"Use at most {trained}.",
    )


@rule("block.below-trained", "note", "block_size", evidence=PAPER)
def below_trained(case: Case) -> Fault | None:
    """The block to run with is smaller than the trained one: legal, with shorter runs."""
    wanted, trained = case.settings.block_size, case.draft.block_size
    if wanted is None or trained is None or not 2 <= wanted < trained:
        return None
    return Fault(
        f"block_size {wanted} is below the trained {trained}: legal, the accepted runs get shorter "
        "and each cycle cheaper.",
        "Measure both; at concurrency 1 on a large GPU the trained size usually wins.",
    )


@rule("block.disagree", "warning", "block_size",
      evidence="https://github.com/turboderp-org/exllamav3/pull/276")  # fmt: skip
def disagree(case: Case) -> Fault | None:
    """block_size at the top level and in dflash_config are different numbers."""
    nested, top = _written(case)
    if type(nested) is not int or type(top) is not int or nested == top:
        return None
    return Fault(
        f"dflash_config.block_size is {shown(nested)}, the top level says {shown(top)}; "
        "engines read one or the other.",
        "Keep the size the draft was trained with, in one place.",
    )


@rule("block.window", "error", "sliding_window",
      evidence="https://github.com/sgl-project/sglang/pull/23553")  # fmt: skip
def window(case: Case) -> Fault | None:
    """A sliding window is smaller than the block, so slots of one block cannot see each other."""
    block, size = case.block_size, case.settings.sliding_window_size
    if size is None and case.has_sliding_layers:
        size = case.draft.shape.sliding_window
    if block is None or size is None or size < 1 or size >= block:
        return None
    return Fault(
        f"The draft window of {size} is smaller than the block of {block}.",
        f"A window must hold at least one block: use {block} or more, usually 2048 to 4096.",
    )


@rule("block.beyond-context", "error", "block_size", evidence=REFERENCE)
def beyond_context(case: Case) -> Fault | None:
    """The block is longer than the whole context of draft or target."""
    block = case.block_size
    limits = [case.draft.max_position_embeddings]
    limits += [case.target.max_position_embeddings] if case.target else []
    known = [limit for limit in limits if limit is not None and limit > 0]
    if block is None or not known or block <= min(known):
        return None
    return Fault(
        f"block_size {block} is longer than the context of {min(known)} tokens.",
        "Correct block_size; published drafts have 7 to 16.",
    )


@rule("block.not-as-published", "error", "block_size", evidence=PAPER)
def not_as_published(case: Case) -> Fault | None:
    """The config's block is larger than in any published revision of this draft."""
    block, blocks = case.draft.block_size, [f.block_size for f in case.revisions]
    known = [b for b in blocks if b is not None]
    if (
        not case.has_file
        or block is None
        or not known
        or block in known
        or len(known) < len(blocks)
    ):
        return None
    return Fault(
        f"block_size is {block}; {shown(case.draft.name)} was trained with {max(known)}.",
        "Restore the published size and choose a smaller one at run time.",
        severity="error" if block > max(known) else "note",
    )


@rule("block.unlike-published-draft", "warning", "block_size", evidence=PAPER)
def unlike_published_draft(case: Case) -> Fault | None:
    """The published draft with these very taps and sizes has a smaller block."""
    block, blocks = case.draft.block_size, [f.block_size for f in case.lookalikes_of_any_block]
    known = [b for b in blocks if b is not None]
    if not case.has_file or block is None or case.revisions or len(known) < len(blocks):
        return None
    if not known or block <= max(known):
        return None
    return Fault(
        f"block_size is {block}; the published draft with the same taps and sizes was trained "
        f"with {max(known)}.",
        "Slots beyond the trained size are not accepted; check the published config.json.",
        severity=case.other_draft_severity,
    )


@rule("block.starts-at-anchor", "warning", "block_size",
      evidence="https://github.com/PrismML-Eng/llama.cpp/pull/122")  # fmt: skip
def starts_at_anchor(case: Case) -> Fault | None:
    """sample_from_anchor is set: a block of B may then give B drafts instead of B - 1."""
    raw, section = case.draft.raw, case.draft.raw.get("dflash_config")
    places = [raw, section if isinstance(section, dict) else {}]
    other = any(place.get("query_zero_predicts_next") is True for place in places)
    if not case.draft.sample_from_anchor and not other:
        return None
    block = case.draft.block_size
    return Fault(
        f"sample_from_anchor is true: a block of {block} then drafts {block} tokens, one more "
        "than usual, and an engine that ignores it reads every slot one row late.",
        "Check that your engine honours it; its draft count may be off by one.",
    )


@rule("block.proposal-count", "warning", "block_size",
      evidence="https://github.com/vllm-project/speculators")  # fmt: skip
def proposal_count(case: Case) -> Fault | None:
    """speculative_tokens in a speculators config does not fit its block_size."""
    block, tokens = case.draft.block_size, _speculative_tokens(case)
    if block is None or tokens is None or case.draft.sample_from_anchor or tokens < block:
        return None
    return Fault(
        f"speculative_tokens is {tokens}; a block of {block} drafts at most {block - 1}.",
        f"Set it to {block - 1}.",
    )


def _speculative_tokens(case: Case) -> int | None:
    section = case.draft.raw.get("speculators_config")
    methods = section.get("proposal_methods") if isinstance(section, dict) else None
    first = methods[0] if isinstance(methods, list) and methods else None
    value = first.get("speculative_tokens") if isinstance(first, dict) else None
    return value if type(value) is int and 0 <= value < 2**31 else None
