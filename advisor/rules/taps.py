"""Rules about target_layer_ids: which target layers the draft reads."""

from __future__ import annotations

from advisor.rules.case import Case, Fault, rule
from advisor.values import shown
from dflash.taps import build_target_layer_ids

GUESSED = "https://github.com/z-lab/dflash/issues/156"


@rule("taps.missing", "error", "target_layer_ids", evidence=GUESSED)
def missing(case: Case) -> Fault | None:
    """target_layer_ids is not written, or empty; guessed taps load and destroy acceptance."""
    if not case.has_file or case.target_layer_ids:
        return None
    if _is_written(case):
        return None  # written with a wrong type: already reported
    what = "empty" if case.target_layer_ids == () else "missing"
    key = (
        "aux_hidden_state_layer_ids" if case.draft.dialect == "speculators" else "target_layer_ids"
    )
    return Fault(
        f"{key} is {what}; the taps are trained into fc.weight and are not guessed here.",
        "Take them from the checkpoint's own config.json; the uniform rule is only for training "
        "a new draft.",
    )


def _is_written(case: Case) -> bool:
    """Whether a tap key holds something else than a list of whole numbers."""
    places = [case.draft.raw, case.draft.raw.get("dflash_config")]
    keys = ("target_layer_ids", "aux_hidden_state_layer_ids", "dflash.target_layers")
    return any(
        place.get(key) not in (None, [])
        for place in places
        if isinstance(place, dict)
        for key in keys
    )


@rule("taps.negative", "error", "target_layer_ids",
      evidence="https://github.com/NVIDIA/Model-Optimizer/pull/2149")  # fmt: skip
def negative(case: Case) -> Fault | None:
    """A tap is negative: it would count from the end, or mean the embedding output."""
    low = [i for i in case.target_layer_ids or () if i < 0]
    if not low:
        return None
    stored = " (stored as 0, the embedding output)" if _is_shifted(case) and low == [-1] else ""
    return Fault(
        f"target_layer_ids holds {low[0]}{stored}; layers count from 0.",
        "Use the layer ids the draft was trained with.",
    )


@rule("taps.out-of-range", "error", "target_layer_ids",
      evidence="https://github.com/vllm-project/vllm/pull/48113")  # fmt: skip
def out_of_range(case: Case) -> Fault | None:
    """A tap lies beyond the target's last layer."""
    taps, layers = case.target_layer_ids, case.num_target_layers
    if not taps or layers is None or max(taps) < layers:
        return None
    hint = "This draft is for a deeper target; use the target it was trained for."
    if max(taps) == layers and not _is_shifted(case):
        hint = "GGUF and vLLM store each id + 1; subtract 1 from every id if it came from there."
    return Fault(
        f"target_layer_ids goes up to {max(taps)}, the target's layers are 0 to {layers - 1}.", hint
    )


@rule("taps.duplicates", "error", "target_layer_ids",
      evidence="https://github.com/NVIDIA/Model-Optimizer/pull/1296")  # fmt: skip
def duplicates(case: Case) -> Fault | None:
    """The same layer is tapped twice."""
    taps = case.target_layer_ids or ()
    twice = (
        next((i for i in taps if taps.count(i) > 1), None) if len(set(taps)) < len(taps) else None
    )
    if twice is None:
        return None
    return Fault(
        f"target_layer_ids {shown(taps)} holds {twice} more than once.",
        "Use the ids the draft was trained with; every layer is tapped once.",
    )


@rule("taps.order", "error", "target_layer_ids",
      evidence="https://github.com/NVIDIA/Model-Optimizer/pull/1271")  # fmt: skip
def order(case: Case) -> Fault | None:
    """The taps are not in rising order, so their states meet the wrong columns of fc."""
    taps = case.target_layer_ids or ()
    fall = next((i for i in range(1, len(taps)) if taps[i] < taps[i - 1]), None)
    if fall is None:
        return None
    return Fault(
        f"target_layer_ids is not ascending: {taps[fall]} follows {taps[fall - 1]}.",
        "Engines concatenate the states in layer order; write the ids in rising order.",
    )


@rule("taps.last-layer", "warning", "target_layer_ids",
      evidence="https://github.com/NVIDIA/Model-Optimizer/pull/1846")  # fmt: skip
def last_layer(case: Case) -> Fault | None:
    """The last layer is tapped; engines disagree on whether that state is before the final norm."""
    taps, layers = case.target_layer_ids, case.num_target_layers
    if not taps or layers is None or max(taps) != layers - 1:
        return None
    return Fault(
        f"Tap {layers - 1} is the last of {layers} layers: vLLM reads it before the final norm, "
        "transformers' hidden_states after it.",
        "Check that your engine reads it as the draft was trained.",
    )


@rule("taps.shifted", "warning", "target_layer_ids",
      evidence="https://github.com/microsoft/onnxruntime-genai/pull/2538")  # fmt: skip
def shifted(case: Case) -> Fault | None:
    """The taps look off by one: GGUF, vLLM and speculators store each id + 1."""
    taps, layers = case.target_layer_ids or (), case.num_target_layers
    if len(taps) < 3 or layers is None or any(taps == f.target_layer_ids for f in case.lookalikes):
        return None
    try:
        uniform = build_target_layer_ids(layers, len(taps))
    except ValueError:
        return None
    shift = taps[0] - uniform[0]
    if shift not in (-1, 1) or any(t - u != shift for t, u in zip(taps, uniform, strict=True)):
        return None
    hint = "Compare with the checkpoint's own config.json; the ids here are layer outputs from 0."
    return Fault(
        f"The taps read as {shown(taps)}, exactly {shift:+d} from the usual {shown(uniform)} "
        f"for {layers} layers.",
        hint,
        severity="note" if case.draft.dialect == "speculators" else "warning",
    )


def _is_shifted(case: Case) -> bool:
    return case.draft.dialect in ("speculators", "gguf")


@rule("taps.fc-width", "error", "target_layer_ids", evidence=GUESSED)
def fc_width(case: Case) -> Fault | None:
    """fc.weight in the weights file is not as wide as taps times hidden size."""
    width, taps = fc_in_features(case), case.draft.target_layer_ids
    hidden = _tapped_hidden(case)
    if width is None or not taps or not hidden or width == len(taps) * hidden:
        return None
    fits = f", which fits {width // hidden} taps" if width % hidden == 0 else ""
    return Fault(
        f"fc.weight takes {width} inputs{fits}; {len(taps)} taps of {hidden} are "
        f"{len(taps) * hidden}.",
        "Config and weights come from different revisions; fetch both again.",
    )


def fc_in_features(case: Case) -> int | None:
    """Input width of the layer that mixes the taps, from the weights header."""
    for name, shape in (case.draft.tensor_shapes or {}).items():
        if name in ("fc.weight", "encoder.fc.weight", "model.fc.weight") and len(shape) == 2:
            return shape[1]
    return None


def _tapped_hidden(case: Case) -> int | None:
    written = case.draft.raw.get("target_hidden_size")
    return written if type(written) is int and written > 0 else case.draft.shape.hidden_size


@rule("taps.disagree", "error", "target_layer_ids",
      evidence="https://github.com/turboderp-org/exllamav3/pull/276")  # fmt: skip
def disagree(case: Case) -> Fault | None:
    """target_layer_ids at the top level and in dflash_config are different lists."""
    nested, top = case.draft.target_layer_ids, case.draft.raw.get("target_layer_ids")
    section = case.draft.raw.get("dflash_config")
    if not isinstance(section, dict) or not isinstance(top, list) or nested is None:
        return None
    if section.get("target_layer_ids") is None or list(nested) == top:
        return None
    return Fault(
        f"dflash_config.target_layer_ids is {shown(nested)}, the top level says {shown(top)}; "
        "engines read one or the other.",
        "Keep the list the weights were trained with, in one place.",
    )


@rule("taps.override", "error", "target_layer_ids",
      evidence="https://github.com/sgl-project/sglang/issues/37475")  # fmt: skip
def override(case: Case) -> Fault | None:
    """The user asks for other taps than the checkpoint was trained with."""
    wanted, trained = case.settings.target_layer_ids, case.draft.target_layer_ids
    if wanted is None or trained is None or wanted == trained:
        return None
    effect = "destroys acceptance without an error"
    if len(wanted) != len(trained):
        effect = f"does not load: fc.weight was trained for {len(trained)} taps, not {len(wanted)}"
    return Fault(
        f"target_layer_ids {shown(wanted)} instead of the trained {shown(trained)} {effect}.",
        "Leave the taps as trained; choosing them is part of training a new draft.",
    )


@rule("taps.not-as-published", "error", "target_layer_ids", evidence=GUESSED)
def not_as_published(case: Case) -> Fault | None:
    """The taps are not those of any published revision of the draft that goes by this name."""
    taps = case.draft.target_layer_ids
    known = [f.target_layer_ids for f in case.revisions if f.target_layer_ids is not None]
    if not case.has_file or not taps or not known or taps in known:
        return None
    if any(f.target_layer_ids is None for f in case.revisions):
        return None
    return Fault(
        f"target_layer_ids is {shown(taps)}; {shown(case.draft.name)} was published with "
        f"{shown(known[0])}.",
        "The list was probably guessed by a formula; take it from the published config.json.",
    )


@rule("taps.unlike-published-draft", "warning", "target_layer_ids", evidence=GUESSED)
def unlike_targets_draft(case: Case) -> Fault | None:
    """The published draft for this target taps other layers."""
    taps = case.draft.target_layer_ids
    if not case.has_file or not taps or case.revisions or not case.target_pairs:
        return None
    known = [f.target_layer_ids for pair in case.target_pairs for f in pair.drafts]
    same_count = [ids for ids in known if ids is not None and len(ids) == len(taps)]
    if not same_count or None in known or taps in same_count:
        return None
    return Fault(
        f"target_layer_ids is {shown(taps)}; the published draft for this target has "
        f"{shown(same_count[0])}.",
        "Right for another draft; if this is the published one, restore its own list.",
        severity=case.other_draft_severity,
    )
