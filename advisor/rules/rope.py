"""Rules about the draft's rotary positions."""

from __future__ import annotations

from typing import Any

from advisor.rules.case import Case, Fault, rule
from advisor.values import shown

NESTED = "https://github.com/Luce-Org/lucebox/pull/447"
_LARGEST = 1e12  # no scaling factor or length is near it
_KNOWN_TYPES = (
    "default",
    "linear",
    "dynamic",
    "yarn",
    "longrope",
    "llama3",
    "proportional",
    "mrope",
)


@rule("rope.missing", "error", "rope", evidence=NESTED)
def missing(case: Case) -> Fault | None:
    """rope_theta is written neither at the top level nor in rope_parameters."""
    if not case.has_file or case.draft.rope.theta is not None or _is_misfit(case):
        return None
    return Fault(
        "rope_theta is missing, at the top level and in rope_parameters; loaders then assume "
        "10,000.",
        "Write the theta the draft was trained with.",
        severity="warning" if case.draft.dialect == "gguf" else "error",
    )


def _is_misfit(case: Case) -> bool:
    """Whether theta is written, but as something that is no number."""
    raw = case.draft.raw
    places = [raw, raw.get("rope_parameters"), raw.get("rope_scaling")]
    layers = raw.get("transformer_layer_config")
    if isinstance(layers, dict):
        places += [layers, layers.get("rope_parameters"), layers.get("rope_scaling")]
    written = [p.get("rope_theta") for p in places if isinstance(p, dict)]
    return any(value is not None for value in [*written, raw.get("dflash.rope.freq_base")])


@rule("rope.disagree", "error", "rope", evidence=NESTED)
def disagree(case: Case) -> Fault | None:
    """rope_theta at the top level and in rope_parameters are different numbers."""
    top, nested = case.draft.rope.theta_top, case.draft.rope.theta_nested
    if top is None or nested is None or top == nested:
        return None
    return Fault(
        f"rope_theta is {top:g} at the top level and {nested:g} in rope_parameters.",
        "Keep the one the draft was trained with; engines read either.",
    )


@rule("rope.theta-range", "error", "rope", evidence=NESTED)
def theta_range(case: Case) -> Fault | None:
    """rope_theta is not a usable base."""
    thetas = (case.draft.rope.theta, case.draft.rope.theta_top)
    bad = next((t for t in thetas if t is not None and t <= 1), None)
    if bad is None:
        return None
    return Fault(f"rope_theta is {bad:g}; it must be above 1.", "Published drafts have 1e4 to 1e7.")


@rule("rope.theta-differs", "note", "rope", evidence=NESTED)
def theta_differs(case: Case) -> Fault | None:
    """Draft and target turn their positions at different rates."""
    ours = case.draft.rope.theta
    theirs = case.target.rope.theta if case.target else None
    if ours is None or theirs is None or ours == theirs:
        return None
    return Fault(
        f"The draft's rope_theta is {ours:g}, the target's {theirs:g}.",
        "Fine if it was trained so; a default read in place of the real value looks like this too.",
    )


@rule(
    "rope.unknown-type",
    "warning",
    "rope",
    evidence="https://github.com/sgl-project/sglang/pull/27477",
)
def unknown_type(case: Case) -> Fault | None:
    """The rope type is not one that loaders know."""
    kind = case.draft.rope.rope_type
    if kind is None or kind in _KNOWN_TYPES or (case.draft.dialect == "gguf" and kind == "none"):
        return None
    return Fault(
        f"rope_type is {shown(kind)}; known are {', '.join(_KNOWN_TYPES[:4])} and a few more.",
        "Check the spelling; an unknown type is refused or ignored.",
    )


@rule(
    "rope.yarn-incomplete",
    "error",
    "rope",
    evidence="https://github.com/sgl-project/sglang/pull/27477",
)
def yarn_incomplete(case: Case) -> Fault | None:
    """YaRN is named, but its factor is missing or no enlargement."""
    if case.draft.rope.rope_type != "yarn":
        return None
    parameters = case.draft.rope.parameters
    factor = _number(parameters.get("factor"))
    if factor is None or factor < 1:
        if not case.has_file:
            return None
        return Fault(
            f"rope_type is yarn, but its factor is {shown(parameters.get('factor'))}; it must be "
            "1 or more.",
            "Write the factor the draft was trained with.",
        )
    original = _number(
        parameters.get(
            "original_max_position_embeddings", parameters.get("original_context_length")
        )
    )
    if original is not None and original > 0:
        return None
    return Fault(
        f"yarn with factor {factor:g} has no original_max_position_embeddings; loaders then take "
        "the full context for it.",
        "Write the length the base model was trained with.",
        severity="warning",
    )


@rule(
    "rope.scaling-disagree",
    "error",
    "rope",
    evidence="https://github.com/sgl-project/sglang/pull/27477",
)
def scaling_disagree(case: Case) -> Fault | None:
    """rope_parameters and rope_scaling, or rope_type and type, contradict each other."""
    raw = case.draft.raw.get("transformer_layer_config", case.draft.raw)
    if not isinstance(raw, dict):
        return None
    sections = [raw.get("rope_parameters"), raw.get("rope_scaling")]
    written = [section for section in sections if isinstance(section, dict) and section]
    kinds = [
        s[key] for s in written for key in ("rope_type", "type") if isinstance(s.get(key), str)
    ]
    factors = [s["factor"] for s in written if _number(s.get("factor")) is not None]
    for values, what in ((kinds, "rope type"), (factors, "rope factor")):
        odd = next((value for value in values if value != values[0]), None)
        if odd is not None:
            return Fault(
                f"The config gives two values for the {what}: {shown(values[0])} and {shown(odd)}.",
                "Keep the one the draft was trained with.",
            )
    return None


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < _LARGEST else None


@rule(
    "rope.yarn-lost", "warning", "rope", evidence="https://github.com/sgl-project/sglang/pull/27477"
)
def yarn_lost(case: Case) -> Fault | None:
    """The published draft, or the target, uses YaRN, and this config does not."""
    if not case.has_file or case.draft.rope.rope_type == "yarn" or case.draft.rope.theta is None:
        return None
    published = [f.yarn_factor for f in case.revisions if f.yarn_factor is not None]
    if published and len(published) == len(case.revisions):
        return Fault(
            f"{shown(case.draft.name)} was published with yarn (factor {published[0]:g}); this "
            "config has none.",
            "Restore rope_scaling from the published config.json.",
        )
    target = case.target.rope if case.target else None
    if case.revisions or target is None or target.rope_type != "yarn":
        return None
    return Fault(
        "The target stretches its positions with yarn, the draft does not: its acceptance falls "
        "beyond its own trained length.",
        "If the draft was published with yarn, the export lost it; restore rope_scaling.",
    )
