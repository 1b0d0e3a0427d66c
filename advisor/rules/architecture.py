"""Rules about what kind of model each file describes."""

from __future__ import annotations

from advisor.checkpoint import draft_dialect
from advisor.relatives import find_relative
from advisor.rules.case import REFERENCE, Case, Fault, rule
from advisor.values import shown


@rule("architecture.relative", "error", "architecture", for_any_draft=True,
      evidence=REFERENCE)  # fmt: skip
def relative(case: Case) -> Fault | None:
    """The draft belongs to a related family (DSpark, EAGLE, Domino, ...) and is not DFlash."""
    found = find_relative(case.draft.raw) if case.draft.dialect == "unknown" else None
    if found is None:
        return None
    return Fault(
        f"This draft is {found.name}, not DFlash: {found.why}.",
        f"Serve it with an engine's own {found.name} method, or choose a DFlash draft.",
        evidence=found.evidence or None,
    )


@rule("architecture.not-a-draft", "error", "architecture", for_any_draft=True,
      evidence=REFERENCE)  # fmt: skip
def not_a_draft(case: Case) -> Fault | None:
    """The draft's config has none of the marks of a DFlash draft."""
    if case.draft.dialect != "unknown" or find_relative(case.draft.raw) is not None:
        return None
    named = case.draft.architecture or case.draft.model_type
    what = f"architecture {shown(named)}" if named else "no architecture"
    return Fault(
        f"The draft's config names {what} and has no dflash_config, target_layer_ids or "
        "dflash.* key, so it is no DFlash draft.",
        "Give the draft's own config.json; if draft and target were swapped, swap them back.",
    )


@rule("architecture.target-is-draft", "error", "architecture", for_any_draft=True,
      evidence=REFERENCE)  # fmt: skip
def target_is_draft(case: Case) -> Fault | None:
    """What was given as the target is itself a draft."""
    if case.target is None or not case.target.raw:
        return None
    if draft_dialect(case.target.raw) == "unknown":
        return None
    return Fault(
        f"The target's config ({shown(case.target.architecture)}) describes a DFlash draft.",
        "Give the model that is to be sped up as --target.",
    )


@rule("architecture.target-unreadable", "error", "architecture", for_any_draft=True,
      evidence="https://github.com/vllm-project/vllm/pull/48113")  # fmt: skip
def target_unreadable(case: Case) -> Fault | None:
    """The target's config states neither layers nor hidden size, not even in a text_config."""
    if case.target is None or not case.target.raw:
        return None
    shape = case.target.shape
    missing = [
        name
        for name, value in (
            ("hidden_size", shape.hidden_size),
            ("num_hidden_layers", shape.num_layers),
        )
        if value is None
    ]
    if not missing:
        return None
    return Fault(
        f"The target's config has no {' and no '.join(missing)}, "
        "neither at the top nor in a text_config.",
        "Give the target's full config.json; without it the pair cannot be checked.",
        severity="error" if len(missing) == 2 else "warning",
    )


@rule("architecture.selector-without-name", "error", "architecture",
      evidence="https://github.com/vllm-project/speculators/issues/1014")  # fmt: skip
def selector_without_name(case: Case) -> Fault | None:
    """Weights and config disagree on whether this is DFlash or DFlash 2."""
    shapes = case.draft.tensor_shapes
    if not shapes:
        return None
    has_selector = any("selector" in name for name in shapes)
    if has_selector == case.is_dflash2:
        return None
    weights = "has" if has_selector else "lacks"
    named = "DFlash 2" if case.is_dflash2 else "DFlash"
    return Fault(
        f"The config says {named}, but the weights file {weights} DFlash 2's candidate selector.",
        "Config and weights come from different checkpoints; fetch both from one revision.",
    )
