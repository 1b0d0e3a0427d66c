"""Rules about number formats: quantised targets and drafts, dtypes."""

from __future__ import annotations

from advisor.known import quantization_in, same_model
from advisor.rules.case import QWEN3_CONFIG, Case, Fault, rule
from advisor.values import shown

# Families whose makers release (and whose drafts were trained on) a quantised checkpoint.
_RELEASED_AS = (
    ("gpt_oss", "mxfp4"),
    ("kimi", "compressed-tensors"),
    ("deepseek_v3", "compressed-tensors"),  # what Kimi's text model calls itself
    ("deepseek_v3", "fp8"),
    ("minimax_m2", "fp8"),
)
_ROTATED = ("quarot", "spinquant", "hadamard", "quip", "rotat")


@rule("formats.quantized-target", "warning", "quantization",
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
    return quantization_in(case.target.name)


def _published_quantized(case: Case) -> bool:
    """Whether this very target is what a published draft was made for (gpt-oss, Kimi, ...)."""
    if case.target is None:
        return False
    family, method = case.target.model_type or "", target_quantization(case)
    if any(family.startswith(start) and method == native for start, native in _RELEASED_AS):
        return True
    return any(same_model(case.target.name, known) for known in case.expected_targets)


@rule("formats.quantized-draft", "note", "quantization",
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


@rule("formats.dtype", "note", "dtype",
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


@rule("formats.unknown-dtype", "warning", "dtype", evidence=QWEN3_CONFIG)
def unknown_dtype(case: Case) -> Fault | None:
    """The draft's dtype is not one that loaders know."""
    name = _short_dtype(case.draft.shape.dtype)
    known = ("bfloat16", "float16", "float32", "bf16", "fp16", "fp32", "auto", "half", "float")
    if name is None or name in known or name.startswith("float8"):
        return None
    return Fault(f"The draft's dtype is {shown(name)}.", "Use bfloat16, float16 or float32.")
