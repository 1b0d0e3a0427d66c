"""What an exporter needs from a recommendation, and the value it returns.

Knows names and knobs; knows no engine. Names come from strangers: they are made safe for a shell
here once, and never put into a comment.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from advisor.schema import Mode, Recommendation

TARGET_PLACEHOLDER = "TARGET"
DRAFT_PLACEHOLDER = "DRAFT"
OFF_NOTE = "DFlash is off: this runs the target alone."


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings to run with. ``block_size`` 1 means the target alone."""

    target: str
    draft: str
    block_size: int | None
    window: int | None
    window_is_trained: bool
    target_layer_ids: tuple[int, ...] | None
    mask_token_id: int | None
    mode: Mode
    temperature: float = 0.0
    concurrency: int = 1
    output_tokens: int | None = None

    @property
    def is_off(self) -> bool:
        """Whether the advice is to run without a draft."""
        return self.block_size == 1

    @property
    def free_window(self) -> int | None:
        """A window the user would impose on a draft with full attention; trained ones need none."""
        return None if self.window_is_trained else self.window


@dataclass(frozen=True, slots=True)
class Export:
    """Text to copy or save, and what it could not honestly say."""

    text: str
    filename: str
    notes: tuple[str, ...] = ()

    @property
    def commented(self) -> str:
        """The text with its notes below it as comments; for shells, YAML and Python alike."""
        return self.text.rstrip("\n") + "\n" + "".join(f"# {note}\n" for note in self.notes)


def plan_from(recommendation: Recommendation) -> Plan:
    """Read the settings out of a recommendation."""
    knobs, inputs = recommendation.knobs, recommendation.inputs
    window, taps = knobs["sliding_window_size"], knobs["target_layer_ids"].value
    return Plan(
        target=safe_name(recommendation.target_name or TARGET_PLACEHOLDER),
        draft=safe_name(recommendation.draft_name or DRAFT_PLACEHOLDER),
        block_size=knobs["block_size"].value,
        window=window.value,
        window_is_trained=not window.tunable,
        target_layer_ids=tuple(taps) if taps else None,
        mask_token_id=knobs["mask_token_id"].value,
        mode=recommendation.mode,
        temperature=inputs.get("temperature") or 0.0,
        concurrency=inputs.get("concurrency") or 1,
        output_tokens=inputs.get("max_new_tokens"),
    )


def notes_for(plan: Plan) -> tuple[str, ...]:
    """Remarks that hold for every engine."""
    notes = []
    if plan.block_size is None:
        notes.append("The block size is not known: the engine's own default applies.")
    if plan.is_off:
        notes.append(OFF_NOTE)
    if plan.target == TARGET_PLACEHOLDER:
        notes.append("Replace TARGET with your model.")
    if plan.draft == DRAFT_PLACEHOLDER and not plan.is_off:
        trained = " once it is trained" if plan.mode == "train" else ""
        notes.append(f"Replace DRAFT with your draft{trained}.")
    return tuple(notes)


def window_words(plan: Plan) -> list[str]:
    """The benchmark's option for a window that the draft does not have of its own."""
    if plan.is_off or not plan.free_window:
        return []
    return ["--sliding-window-size", str(plan.free_window)]


def safe_name(name: str) -> str:
    """A model name that no program can mistake for an option."""
    return f"./{name}" if name.startswith("-") else name


def shell(*words: str) -> str:
    """One shell command line, every word quoted as needed."""
    return " ".join(shlex.quote(word) for word in words)
