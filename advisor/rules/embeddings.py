"""Rules about the embedding and the output head, which the draft borrows from the target."""

from __future__ import annotations

from advisor.rules.case import Case, Fault, rule
from advisor.rules.formats import target_quantization
from advisor.values import shown

TIED = "https://github.com/sgl-project/SpecForge/pull/473"
DENSE = "https://github.com/sgl-project/sglang/pull/35496"
_HEADS = ("lm_head.", "output.weight", "embed_out.")
_EMBEDDINGS = ("embed_tokens.", "token_embd.", "wte.", "word_embeddings.", "embed_in.",
               "tok_embeddings.")  # fmt: skip


def _has(case: Case, marks: tuple[str, ...]) -> bool | None:
    """Whether the target's weights have such a tensor; ``None`` when they are not at hand."""
    shapes = case.target.tensor_shapes if case.target else None
    if not shapes:
        return None
    return any(_is_named(name, mark) for name in shapes for mark in marks)


def _is_named(name: str, mark: str) -> bool:
    return name.startswith(mark) or f".{mark}" in name


@rule("head.missing", "error", "lm_head", evidence=TIED)
def head_missing(case: Case) -> Fault | None:
    """The target's weights have no output head, and its config does not tie it to the embedding."""
    if case.target is None or _has(case, _HEADS) is not False:
        return None
    tied = case.target.tie_word_embeddings
    if tied is True:
        return None
    if tied is None:
        return Fault(
            "The target's weights have no lm_head, and its config does not say whether the head is "
            "tied to the embedding.",
            "Set tie_word_embeddings, or fetch the complete weights.",
            severity="warning",
        )
    return Fault(
        "The target's weights have no lm_head and tie_word_embeddings is false: head missing, the "
        "draft would get a random one.",
        "Fetch the complete weights, or set tie_word_embeddings if the head is tied.",
    )


@rule("embeddings.missing", "error", "embeddings", evidence=TIED)
def embeddings_missing(case: Case) -> Fault | None:
    """The target's weights have no embedding for the draft to borrow."""
    if case.target is None or _has(case, _EMBEDDINGS) is not False:
        return None
    return Fault(
        "The target's weights have no embedding table, and the draft has none of its own.",
        "Fetch the complete weights of the target.",
    )


@rule("embeddings.rows-differ", "note", "embeddings",
      evidence="https://github.com/vllm-project/vllm/pull/46435")  # fmt: skip
def rows_differ(case: Case) -> Fault | None:
    """The target's embedding has another number of rows than its config says."""
    rows = case.embedding_rows
    stated = case.target.shape.vocab_size if case.target else None
    if rows is None or stated is None or rows == stated:
        return None
    return Fault(
        f"The target's embedding has {rows} rows, its config says vocab_size {stated}.",
        "Padded rows are fine; the rows are what the mask is checked against.",
        severity="note" if rows > stated else "error",
    )


@rule("head.quantized", "warning", "lm_head", evidence=DENSE)
def head_quantized(case: Case) -> Fault | None:
    """DFlash 2's selector needs a dense output head, and the target is quantised."""
    method = target_quantization(case)
    if not case.is_dflash2 or method is None or _keeps_head(case):
        return None
    return Fault(
        f"DFlash 2's selector needs a dense fp16, bf16 or fp32 lm_head; this target is quantised "
        f"({shown(method)}).",
        "Use a checkpoint that leaves lm_head unquantised; an FP4 head also lowers answer quality.",
    )


def _keeps_head(case: Case) -> bool:
    """Whether the quantisation config leaves the output head alone."""
    section = case.target.raw.get("quantization_config") if case.target else None
    if not isinstance(section, dict):
        return False
    if section.get("lm_head") is False:
        return True
    keys = (
        "ignore",
        "modules_to_not_convert",
        "llm_int8_skip_modules",
        "ignored_layers",
        "exclude",
    )
    lists = [section[key] for key in keys if isinstance(section.get(key), list)]
    return any(isinstance(item, str) and "lm_head" in item for items in lists for item in items)


@rule("head.tied-selector", "warning", "lm_head",
      evidence="https://github.com/sgl-project/sglang/pull/39362")  # fmt: skip
def tied_selector(case: Case) -> Fault | None:
    """DFlash 2 on a target with tied embeddings fails in SGLang versions without the fix."""
    tied = case.target.tie_word_embeddings if case.target else None
    if not case.is_dflash2 or not tied or case.engine != "sglang":
        return None
    return Fault(
        "The target ties its head to the embedding, which SGLang's DFlash 2 selector does not find "
        "before PR 39362.",
        "Use an SGLang version with that fix.",
    )


@rule("head.softcap", "warning", "final_logit_softcapping",
      evidence="https://github.com/vllm-project/vllm/pull/41703")  # fmt: skip
def softcap(case: Case) -> Fault | None:
    """Draft and target cap their logits differently."""
    ours = case.draft.final_logit_softcapping
    theirs = _target_number(case, "final_logit_softcapping")
    if theirs is None or ours == theirs or not case.has_file:
        return None
    if ours is None:
        return Fault(
            f"The target caps its logits at {theirs:g}; the draft's config does not mention it.",
            "Harmless for greedy drafts; sampled drafts need the same cap.",
            severity="note",
        )
    return Fault(
        f"The draft caps its logits at {ours:g}, the target at {theirs:g}.",
        "Use the value the draft was trained with; check that this is its target.",
    )


def _target_number(case: Case, key: str) -> float | None:
    raw = case.target.raw if case.target else {}
    inner = raw.get("text_config")
    value = inner.get(key) if isinstance(inner, dict) else raw.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 1e6 else None
