"""Rules about DFlash 2's own parts: the candidate selector and the grouped convolutions."""

from __future__ import annotations

from advisor.rules.case import Case, Fault, rule

DFLASH2 = "https://github.com/vllm-project/speculators/issues/1014"
_SIZES = ("selector_rank", "selector_top_k", "conv_kernel_size", "conv_group_size")


def _written(case: Case, key: str) -> object:
    section = case.draft.raw.get("dflash_config")
    nested = section.get(key) if isinstance(section, dict) else None
    top = case.draft.raw.get(key)
    return nested if nested is not None else top


@rule("selector.missing", "warning", "selector_rank", evidence=DFLASH2)
def missing(case: Case) -> Fault | None:
    """A DFlash 2 draft does not state the size of its selector."""
    if not case.is_dflash2 or not case.has_file or case.draft.dialect in ("gguf", "speculators"):
        return None
    lost = [key for key in ("selector_rank", "selector_top_k") if _written(case, key) is None]
    if not lost:
        return None
    return Fault(
        f"This is a DFlash 2 draft, but {' and '.join(lost)} is not written.",
        "Restore dflash_config from the published config.json (published: rank 256, top-k 16).",
        field=lost[0],
    )


@rule("selector.size", "error", "selector_rank", evidence=DFLASH2)
def size(case: Case) -> Fault | None:
    """A size of the selector or of the convolutions is not a positive number."""
    for key in _SIZES:
        value = _written(case, key)
        if value is not None and (type(value) is not int or not 0 < value < 2**31):
            return Fault(
                f"{key} is not a positive whole number.",
                "Restore dflash_config from the published config.json.",
                field=key,
            )
    return None


@rule("selector.top-k", "error", "selector_top_k", evidence=DFLASH2)
def top_k(case: Case) -> Fault | None:
    """The selector is to keep more candidates than there are tokens."""
    value, vocab = _written(case, "selector_top_k"), case.draft.shape.vocab_size
    if type(value) is not int or vocab is None or value <= vocab:
        return None
    return Fault(
        f"selector_top_k is {str(value)[:20]}, more than the vocabulary of {vocab}.",
        "Restore the published value (16).",
    )


@rule("selector.conv-group", "error", "conv_group_size", evidence=DFLASH2)
def conv_group(case: Case) -> Fault | None:
    """The convolution groups do not divide the hidden size."""
    value, hidden = _written(case, "conv_group_size"), case.draft.shape.hidden_size
    if type(value) is not int or value < 1 or hidden is None or hidden % value == 0:
        return None
    return Fault(
        f"conv_group_size {str(value)[:20]} does not divide hidden_size {hidden}.",
        "Restore the published value (16).",
    )
