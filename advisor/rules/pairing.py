"""Rules about whether this draft was made for this target."""

from __future__ import annotations

import re

from advisor.known import known_pairs, pairs_with_target, same_model, target_names
from advisor.rules.case import QWEN3_CONFIG, Case, Fault, rule
from advisor.values import shown

FINE_TUNE = "https://github.com/AEON-7/Qwen3.6-27B-AEON-Ultimate-Uncensored-DFlash/issues/6"
RESTORE = "Restore the value from the published config.json."
_QWEN3_VOCAB = 151_936  # the default of transformers' Qwen3Config
_VOCAB_PADDING = 0.05  # rows differ by padding (152064 against 152576); families by far more
_QUANTIZED_NAME = re.compile(
    r"(?i)(?:^|[-_.])(awq|gptq|fp8|fp4|nvfp4|mxfp4|int[48]|w[48]a\d+|[3-8]-?bit|bnb|gguf|exl[23]|"
    r"i?q\d(?:_\w+)?)(?=$|[-_.])"
)
_FORMAT_NAME = re.compile(r"(?i)[-_.](?:bf16|fp16|f16|fp32|f32|hf|mlx|safetensors)(?=$|[-_.])")
_ROTATED = ("quarot", "spinquant", "hadamard", "quip", "rotat")


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
    expected = _expected_targets(case) or _base_of(name)
    if not name or not expected or any(same_model(name, known) for known in expected):
        return None
    if any(same_model(_without_format(name), known) for known in expected):
        return None
    sibling = "another published model" if pairs_with_target(name) else "a fine-tune or a relative"
    return Fault(
        f"The draft was trained for {shown(expected[0])}; the target is {shown(name)}, {sibling}. "
        "Shapes cannot tell how well they agree.",
        "Unverified pair: measure the acceptance on a few prompts first, and try a smaller block.",
    )


def _expected_targets(case: Case) -> tuple[str, ...]:
    named = (case.draft.target_name,) if case.draft.target_name else ()
    by_draft = tuple(name for pair in case.pairs for name in target_names(pair.target))
    by_verifier = tuple(
        name
        for pair in pairs_with_target(case.draft.target_name)
        for name in target_names(pair.target)
    )
    return named + by_draft + by_verifier


def _base_of(name: str | None) -> tuple[str, ...]:
    """The published target that a name is visibly derived from (Qwen3-8B-abliterated, ...)."""
    if not name or pairs_with_target(name) or pairs_with_target(_without_format(name)):
        return ()
    ours = _last_part(name).lower()
    known = [n for pair in known_pairs() for n in target_names(pair.target)]
    bases = [n for n in known if _is_derived(ours, _last_part(n).lower())]
    return (max(bases, key=len),) if bases else ()


def _is_derived(name: str, base: str) -> bool:
    """Whether ``base`` stands in ``name`` as whole words: 8b is not in 18b or 8bit."""
    return re.search(rf"(?:^|[-_.]){re.escape(base)}(?:$|[-_])", name) is not None


def _last_part(name: str) -> str:
    return name.rstrip("/").rsplit("/", 1)[-1]


def _without_format(name: str) -> str:
    return _FORMAT_NAME.sub("", _QUANTIZED_NAME.sub("", _last_part(name)))


@rule("pairing.quantized-target", "warning", "quantization",
      evidence="https://github.com/z-lab/dflash/issues/152")  # fmt: skip
def quantized_target(case: Case) -> Fault | None:
    """The target is quantised, and the draft was not trained on a quantised one."""
    method = target_quantization(case)
    if method is None or _published_quantized(case):
        return None
    if _is_rotated(case):
        return Fault(
            f"The target is quantised by {shown(method)} with rotated hidden states, "
            "which a draft trained on the plain model cannot read.",
            "Use a target without rotation, or a draft trained on this very checkpoint.",
            severity="error",
        )
    return Fault(
        f"The target is quantised ({shown(method)}); acceptance with such targets ranges from "
        "unchanged down to 2 %.",
        "Unverified pair: measure the acceptance on a few prompts; below 1.5 tokens per cycle "
        "turn DFlash off.",
    )


def _is_rotated(case: Case) -> bool:
    section = case.target.raw.get("quantization_config") if case.target else None
    words = [case.target.quantization or "", case.target.name or ""] if case.target else []
    if isinstance(section, dict):
        words += [str(key) for key, value in section.items() if value not in (None, False)]
        words += [value for value in section.values() if isinstance(value, str)]
    return any(mark in word.lower() for mark in _ROTATED for word in words)


def target_quantization(case: Case) -> str | None:
    """How the target is quantised: by its config, else by its name; ``None`` when it is not."""
    if case.target is None:
        return None
    if case.target.quantization:
        return case.target.quantization
    match = _QUANTIZED_NAME.search(_last_part(case.target.name or ""))
    return match.group(1) if match else None


def _published_quantized(case: Case) -> bool:
    """Whether this very target is what a published draft was made for (gpt-oss, Kimi, ...)."""
    if case.target is None:
        return False
    if case.target.model_type == "gpt_oss" and target_quantization(case) == "mxfp4":
        return True
    expected = _expected_targets(case)
    return any(same_model(case.target.name, known) for known in expected)


@rule("pairing.quantized-draft", "note", "quantization",
      evidence="https://github.com/z-lab/dflash/issues/52")  # fmt: skip
def quantized_draft(case: Case) -> Fault | None:
    """The draft itself is quantised: smaller, and usually accepted a little less often."""
    method = case.draft.quantization
    if method is None:
        return None
    return Fault(
        f"The draft is quantised ({shown(method)}); published acceptance is for bf16 drafts.",
        "Compare with the unquantised draft if memory allows.",
    )


@rule("pairing.dtype", "note", "dtype",
      evidence="https://github.com/NVIDIA/Model-Optimizer/pull/2342")  # fmt: skip
def dtype(case: Case) -> Fault | None:
    """Draft and target are stored in different number formats."""
    ours = _short_dtype(case.draft.shape.dtype)
    theirs = _short_dtype(case.target.shape.dtype) if case.target else None
    if ours is None or theirs is None or ours == theirs:
        return None
    return Fault(
        f"The draft is stored as {shown(ours)}, the target as {shown(theirs)}.",
        "Load the draft in the target's dtype; engines without automatic casting refuse the mix.",
    )


def _short_dtype(name: str | None) -> str | None:
    return None if name is None else name.removeprefix("torch.").lower()


@rule("pairing.unknown-dtype", "warning", "dtype", evidence=QWEN3_CONFIG)
def unknown_dtype(case: Case) -> Fault | None:
    """The draft's dtype is not one that loaders know."""
    name = _short_dtype(case.draft.shape.dtype)
    known = ("bfloat16", "float16", "float32", "bf16", "fp16", "fp32", "auto", "half", "float")
    if name is None or name in known or name.startswith("float8"):
        return None
    return Fault(f"The draft's dtype is {shown(name)}.", "Use bfloat16, float16 or float32.")


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
