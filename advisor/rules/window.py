"""Rules about what a draft layer sees: layer types, windows and causality."""

from __future__ import annotations

from advisor.rules.case import QWEN3_CONFIG, Case, Fault, rule
from advisor.values import shown

KEEP_TRAINED = "https://github.com/z-lab/dflash/issues/126"
IGNORED = "https://github.com/ikawrakow/ik_llama.cpp/pull/2021"
CAUSAL = "https://github.com/sgl-project/sglang/pull/34524"
_KNOWN_TYPES = ("full_attention", "sliding_attention")


@rule("window.layer-types-length", "error", "layer_types", evidence=IGNORED)
def layer_types_length(case: Case) -> Fault | None:
    """layer_types does not have one entry per draft layer."""
    types, layers = case.draft.shape.layer_types, case.draft.shape.num_layers
    if types is None or layers is None or len(types) == layers:
        return None
    return Fault(
        f"layer_types has {len(types)} entries for {layers} draft layers.",
        "Write one entry per layer, as in the published config.json.",
    )


@rule("window.layer-types-unknown", "error", "layer_types", evidence=QWEN3_CONFIG)
def layer_types_unknown(case: Case) -> Fault | None:
    """A draft layer has a type no DFlash engine runs."""
    odd = next((t for t in case.draft.shape.layer_types or () if t not in _KNOWN_TYPES), None)
    if odd is None:
        return None
    return Fault(
        f"layer_types holds {shown(odd)}; draft layers are full_attention or sliding_attention.",
        "Correct the entry; a target's layer types do not belong in the draft's config.",
    )


@rule("window.missing", "error", "sliding_window", evidence=IGNORED)
def missing(case: Case) -> Fault | None:
    """A layer slides, but sliding_window is null or missing."""
    if not case.has_file or not case.has_sliding_layers:
        return None
    if case.draft.shape.sliding_window is not None:
        return None
    num_sliding = (case.draft.shape.layer_types or ()).count("sliding_attention")
    return Fault(
        f"{num_sliding} of {len(case.draft.shape.layer_types or ())} layers are sliding_attention, "
        "but sliding_window is null or missing.",
        "Write the window the draft was trained with (published drafts: 2048 or 4096).",
    )


@rule("window.not-positive", "error", "sliding_window", evidence=QWEN3_CONFIG)
def not_positive(case: Case) -> Fault | None:
    """The window has no room for a single token."""
    for value, where in (
        (case.settings.sliding_window_size, "The window to run with"),
        (case.draft.shape.sliding_window, "The draft's sliding_window"),
    ):
        if value is not None and value < 1:
            return Fault(
                f"{where} is {value}; it must be positive.", "Use null for full attention."
            )
    return None


@rule("window.flag-off", "warning", "sliding_window", evidence=IGNORED)
def flag_off(case: Case) -> Fault | None:
    """use_sliding_window is false although layers slide: some loaders then drop the window."""
    section = case.draft.raw.get("transformer_layer_config", case.draft.raw)
    flag = section.get("use_sliding_window") if isinstance(section, dict) else None
    if flag is not False or not case.has_sliding_layers:
        return None
    return Fault(
        "layer_types has sliding layers, but use_sliding_window is false; loaders built on "
        "Qwen3Config then set the window to null.",
        "Set use_sliding_window to true.",
    )


@rule("window.layer-types-missing", "warning", "layer_types", evidence=IGNORED)
def layer_types_missing(case: Case) -> Fault | None:
    """A window is in use, but layer_types, which says where, was lost."""
    if case.draft.shape.layer_types is not None or case.draft.raw.get("layer_types") is not None:
        return None
    window = case.draft.shape.sliding_window
    if window is None or case.draft.raw.get("use_sliding_window") is False:
        return None
    if not case.has_file or case.draft.dialect in ("speculators", "gguf"):
        return None  # both have defaults of their own for where the window applies
    return Fault(
        f"sliding_window is {window}, but layer_types is missing, so engines may run every layer "
        "with full attention.",
        "Restore layer_types from the published config.json.",
    )


@rule("window.override", "warning", "sliding_window", evidence=KEEP_TRAINED)
def override(case: Case) -> Fault | None:
    """The user sets another window than the trained one."""
    if "sliding_window_size" not in case.settings.given or not case.has_sliding_layers:
        return None
    wanted, trained = case.settings.sliding_window_size, case.draft.shape.sliding_window
    if wanted == trained or trained is None:
        return None
    asked = "full attention" if wanted is None else f"a window of {wanted}"
    return Fault(
        f"This draft was trained with a window of {trained}; {asked} lowers its acceptance.",
        "Leave the trained window; an override is for drafts with full attention only.",
    )


@rule("window.experimental", "note", "sliding_window", evidence="https://github.com/z-lab/dflash")
def experimental(case: Case) -> Fault | None:
    """The user sets a window on a draft that was trained with full attention."""
    wanted = case.settings.sliding_window_size
    if wanted is None or wanted < 1 or case.has_sliding_layers:
        return None
    return Fault(
        f"A window of {wanted} on a draft trained with full attention: it saves draft memory and "
        "never changes the output, but acceptance may move either way.",
        "Measure it on prompts longer than the window.",
    )


@rule("window.not-as-published", "warning", "sliding_window", evidence=IGNORED)
def not_as_published(case: Case) -> Fault | None:
    """The windows are not those of any published revision of this draft."""
    taps = case.draft.target_layer_ids
    known = [
        f
        for f in case.revisions or case.lookalikes
        if f.layer_types is not None and f.target_layer_ids in (None, taps)
    ]
    types, window = case.draft.shape.layer_types, case.draft.shape.sliding_window
    if not case.has_file or not known or case.draft.dialect == "gguf":
        return None
    ours = _windowed(types, window)
    if any(ours == _windowed(f.layer_types, f.sliding_window) for f in known):
        return None
    if any(
        f.sliding_window is None and "sliding_attention" in (f.layer_types or ()) for f in known
    ):
        return None  # its window is not published
    theirs = _windowed(known[0].layer_types, known[0].sliding_window)
    return Fault(
        f"{ours[0]} draft layers slide, with a window of {ours[1]}; {_published_name(case)} has "
        f"{theirs[0]}, with {theirs[1]}.",
        "Restore layer_types and sliding_window from the published config.json.",
    )


def _published_name(case: Case) -> str:
    return shown(case.draft.name) if case.revisions else "the published draft with these taps"


def _windowed(types: tuple[str, ...] | None, window: int | None) -> tuple[int, int | None]:
    num_sliding = (types or ()).count("sliding_attention")
    return num_sliding, window if num_sliding else None


@rule("causal.unwritten", "note", "is_causal", evidence=CAUSAL)
def causal_unwritten(case: Case) -> Fault | None:
    """is_causal is not written and layers slide: engines differ on what that means."""
    if not case.has_file or case.draft.is_causal is not None or not case.has_sliding_layers:
        return None
    if case.draft.dialect == "speculators" and "sliding_window_non_causal" in case.draft.raw:
        return None
    return Fault(
        "is_causal is not written. The legacy meaning is: sliding layers causal, full layers "
        "bidirectional; some loaders run every layer bidirectional.",
        "Write is_causal (or dflash_config.causal) in exports, so that every engine agrees.",
    )


@rule(
    "causal.disagree",
    "error",
    "is_causal",
    evidence="https://github.com/vllm-project/vllm/pull/47453",
)
def causal_disagree(case: Case) -> Fault | None:
    """is_causal, dflash_config.causal or sliding_window_non_causal contradict each other."""
    raw, section = case.draft.raw, case.draft.raw.get("dflash_config")
    nested = section if isinstance(section, dict) else {}
    written = {
        "is_causal": raw.get("is_causal"),
        "dflash_config.is_causal": nested.get("is_causal"),
        "dflash_config.causal": nested.get("causal"),
    }
    if isinstance(raw.get("sliding_window_non_causal"), bool):
        written["not sliding_window_non_causal"] = not raw["sliding_window_non_causal"]
    found = [(key, value) for key, value in written.items() if isinstance(value, bool)]
    if len({value for _, value in found}) < 2:
        return None
    said = ", ".join(f"{key} = {str(value).lower()}" for key, value in found)
    return Fault(
        f"The config contradicts itself: {said}.",
        "Keep the value the draft was trained with.",
    )


@rule(
    "causal.everywhere",
    "note",
    "is_causal",
    evidence="https://github.com/vllm-project/vllm/pull/43445",
)
def causal_everywhere(case: Case) -> Fault | None:
    """is_causal is true on full-attention layers, which DFlash trains bidirectional."""
    types = case.draft.shape.layer_types
    if case.draft.is_causal is not True or (types is not None and "full_attention" not in types):
        return None
    return Fault(
        "is_causal is true, so every slot sees only earlier slots; published DFlash drafts are "
        "bidirectional in full-attention layers.",
        "Right only if the draft was trained that way.",
    )
