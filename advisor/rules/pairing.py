"""Rules about whether this draft was made for this target."""

from __future__ import annotations

from advisor.known import base_of, pairs_with_target, same_model, without_format
from advisor.rules.case import QWEN3_CONFIG, Case, Fault, rule
from advisor.values import shown

FINE_TUNE = "https://github.com/AEON-7/Qwen3.6-27B-AEON-Ultimate-Uncensored-DFlash/issues/6"
RESTORE = "Restore the value from the published config.json."
_QWEN3_VOCAB = 151_936  # the default of transformers' Qwen3Config
_VOCAB_PADDING = 0.05  # rows differ by padding (152064 against 152576); families by far more


@rule("pairing.num-target-layers", "error", "num_target_layers",
      evidence="https://github.com/vllm-project/vllm/pull/48113")  # fmt: skip
def num_target_layers(case: Case) -> Fault | None:
    """The draft was trained on a target with a different number of layers."""
    trained = case.draft.num_target_layers
    if trained is None:
        return None
    if trained < 1:
        return Fault(f"num_target_layers is {trained}; a target has at least one layer.", RESTORE)
    layers = case.target.shape.num_layers if case.target else None
    if layers is None or layers == trained:
        return None
    return Fault(
        f"This draft is for a {trained}-layer target; this target has {layers} layers.",
        "Use the target the draft was trained for, or a draft for this target.",
    )


@rule("pairing.hidden-size", "error", "hidden_size",
      evidence="https://github.com/vllm-project/vllm/pull/48113")  # fmt: skip
def hidden_size(case: Case) -> Fault | None:
    """The draft's hidden size is missing, impossible or not the target's."""
    size = _expected_target_hidden(case)
    if size is None:
        if case.has_file and case.draft.dialect != "gguf":
            return Fault(
                "The draft's config has no hidden_size; loaders then assume 4096.",
                "Add the hidden_size the draft was trained with.",
            )
        return None
    if size < 1:
        return Fault(f"The draft's hidden_size is {size}; it must be positive.", RESTORE)
    target = case.target.shape.hidden_size if case.target else None
    if target is None or target == size:
        return None
    return Fault(
        f"The draft works on hidden states of {size}, the target's are {target} wide.",
        "It borrows the target's embedding and head, so the sizes must be equal: "
        "pick the draft made for this target.",
    )


def _expected_target_hidden(case: Case) -> int | None:
    raw_size = case.draft.raw.get("target_hidden_size")
    if case.draft.dialect == "speculators" and type(raw_size) is int:
        return raw_size
    return case.draft.shape.hidden_size


@rule("pairing.num-hidden-layers", "error", "num_hidden_layers", evidence=QWEN3_CONFIG)
def num_hidden_layers(case: Case) -> Fault | None:
    """The draft's own layer count is missing or impossible."""
    layers = case.draft.shape.num_layers
    if layers is None:
        if not case.has_file or case.draft.dialect == "gguf":
            return None
        return Fault(
            "The draft's config has no num_hidden_layers; loaders then assume 32.",
            "Add the number of draft layers.",
        )
    if layers >= 1:
        return None
    return Fault(f"The draft's num_hidden_layers is {layers}; it must be at least 1.", RESTORE)


@rule("pairing.heads", "error", "num_attention_heads", evidence=QWEN3_CONFIG)
def heads(case: Case) -> Fault | None:
    """The draft's attention heads, key-value heads and head size do not fit together."""
    shape = case.draft.shape
    num_heads, num_kv, dim = shape.num_attention_heads, shape.num_kv_heads, shape.head_dim
    for name, value in (
        ("num_attention_heads", num_heads), ("num_key_value_heads", num_kv), ("head_dim", dim),
        ("intermediate_size", shape.intermediate_size), ("vocab_size", shape.vocab_size),
    ):  # fmt: skip
        if value is not None and value < 1:
            return Fault(
                f"The draft's {name} is {value}; it must be positive.", RESTORE, field=name
            )
    if num_heads and num_kv and num_heads % num_kv:
        return Fault(
            f"{num_heads} attention heads cannot be shared among {num_kv} key-value heads.",
            "num_key_value_heads must divide num_attention_heads.",
        )
    return None


@rule("pairing.vocab-size", "warning", "vocab_size",
      evidence="https://github.com/vllm-project/vllm/pull/46435")  # fmt: skip
def vocab_size(case: Case) -> Fault | None:
    """The vocabularies differ by more than padding, so the tokenizers are probably different."""
    ours, theirs = case.draft.shape.vocab_size, case.embedding_rows
    if not ours or not theirs or ours < 1 or theirs < 1:
        return None
    if abs(ours - theirs) <= _VOCAB_PADDING * max(ours, theirs):
        return None
    return Fault(
        f"The draft was made for a vocabulary of {ours}, the target's has {theirs} rows: "
        "more than padding can explain.",
        "Check that this draft was trained for this model family.",
    )


@rule("pairing.vocab-size-unwritten", "warning", "vocab_size",
      evidence="https://github.com/z-lab/dflash/pull/168")  # fmt: skip
def vocab_size_unwritten(case: Case) -> Fault | None:
    """vocab_size is not written, and the mask lies beyond what loaders then assume."""
    mask = case.draft.mask_token_id
    if not case.has_file or case.draft.dialect not in ("z-lab", "dflash2") or mask is None:
        return None
    if case.draft.shape.vocab_size is not None or mask < _QWEN3_VOCAB:
        return None
    return Fault(
        f"vocab_size is not written; loaders then assume {_QWEN3_VOCAB}, and mask {mask} lies "
        "beyond it.",
        "Write the target's vocab_size.",
    )


@rule("pairing.draft-vocab", "error", "vocab_size",
      evidence="https://github.com/vllm-project/speculators")  # fmt: skip
def draft_vocab(case: Case) -> Fault | None:
    """A draft with a smaller vocabulary of its own needs the map back to the target's."""
    small, full = case.draft.draft_vocab_size, case.draft.shape.vocab_size
    if small is None:
        return None
    if small < 1 or (full is not None and small > full):
        return Fault(f"draft_vocab_size is {small}, the target's vocabulary is {full}.", RESTORE)
    shapes = case.draft.tensor_shapes
    if shapes is None or full is None or small == full or "d2t" in shapes:
        return None
    return Fault(
        f"The draft proposes from {small} of {full} tokens, but its weights have no d2t map.",
        "Use the checkpoint's complete weights file.",
    )


@rule("pairing.other-target", "warning", "_name_or_path", evidence=FINE_TUNE)
def other_target(case: Case) -> Fault | None:
    """The target is not the model the draft was trained on: a fine-tune, or a sibling."""
    name = case.target.name if case.target else None
    expected = case.expected_targets or base_of(name)
    if not name or not expected or any(same_model(name, known) for known in expected):
        return None
    if any(same_model(without_format(name), known) for known in expected):
        return None
    sibling = "another published model" if pairs_with_target(name) else "a fine-tune or a relative"
    return Fault(
        f"The draft was trained for {shown(expected[0])}; the target is {shown(name)}, {sibling}. "
        "Shapes cannot tell how well they agree.",
        "Unverified pair: measure the acceptance on a few prompts first, and try a smaller block.",
    )


@rule("pairing.num-target-layers-unwritten", "note", "num_target_layers",
      evidence="https://github.com/z-lab/dflash/issues/156")  # fmt: skip
def num_target_layers_unwritten(case: Case) -> Fault | None:
    """A z-lab config without num_target_layers: their loader needs it, and taps go unchecked."""
    if not case.has_file or case.draft.dialect != "z-lab":
        return None
    if case.draft.num_target_layers is not None or case.draft.raw.get("num_target_layers"):
        return None
    return Fault(
        "num_target_layers is not written; z-lab's own loader reads it even when it is unused.",
        "Add num_target_layers, the number of layers of the target.",
    )
