"""Where the evidence contradicts the guide, stated with its sources. Knows the four rules' limits.

The guide's value stays in its rung whatever is said here.
"""

from __future__ import annotations

from advisor.measuring import measuring
from advisor.schema import Finding, Knob
from advisor.situation import Situation

_EVIDENCE = {
    "block_size": (
        "The guide goes by size; published drafts for 4B to 9B targets are trained at 16 and lose "
        "5-17 % of their speedup when run at 8 on an H200. What decides is the cost of verifying "
        "more rows and how predictable the text is.",
        "https://arxiv.org/abs/2602.06036 (Table 8); https://github.com/z-lab/dflash/issues/151",
    ),
    "target_layer_ids": (
        "The number of tapped layers is trained into the draft's fc layer: another number does not "
        "load and other layers silently ruin acceptance. Five taps beat three in training, and "
        "published drafts for 30B and more use five to eight.",
        "https://arxiv.org/abs/2602.06036 (Table 7); https://github.com/z-lab/dflash/issues/156",
    ),
    "sliding_window_size": (
        "A draft trained with windows keeps its own, and forcing another lowers acceptance. "
        "For drafts with full attention a window is worth trying only beyond the length they were "
        "trained on; it bounds the draft's cache, not the target's.",
        "https://github.com/z-lab/dflash/issues/126; https://github.com/z-lab/dflash/issues/66",
    ),
    "mask_token_id": (
        "Every published draft uses a token of its own, never the pad or EOS token; the mask must "
        "be the one the draft was trained with.",
        "https://github.com/NVIDIA-NeMo/Automodel/pull/2461; https://arxiv.org/abs/2602.06036",
    ),
}
_FIELDS = {"sliding_window_size": "sliding_window"}


def contradictions(knobs: dict[str, Knob], situation: Situation) -> list[Finding]:
    """One note per knob whose best evidence differs from the guide's value."""
    found = []
    for name, knob in knobs.items():
        if "guide" not in knob.rungs:
            continue
        rung = next(iter(knob.rungs))  # rungs are kept highest first
        said, guided = knob.rungs[rung], knob.rungs["guide"]
        if rung == "guide" or said == guided:
            continue
        why, sources = _EVIDENCE[name]
        found.append(
            Finding(
                id=f"guide.{name.replace('_', '-')}",
                severity="note",
                field=_FIELDS.get(name, name),
                message=f"The guide says {name} {_shown(guided)}; the {rung} evidence says "
                f"{_shown(said)}. {why}",
                hint=_hint(situation, name),
                evidence=sources,
            )
        )
    return found


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


def _hint(situation: Situation, name: str) -> str:
    if situation.policy == "guide":
        return "Use --policy evidence to follow the evidence."
    if name == "block_size":
        return f"Measure both: {measuring(situation, '--tune')}"
    return "Keep the evidence's value; the guide's is shown for comparison."
