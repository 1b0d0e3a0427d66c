"""What a rule sees, and what a rule is. Knows specs, settings and catalogue entries; knows no file.

A rule is one small function from a ``Case`` to a ``Fault`` or ``None``. The decorator adds what
never changes: its id, severity, field and evidence, so that the rule list can be printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from advisor.known import (
    known_pairs,
    pairs_with_draft,
    pairs_with_target,
    same_numbers,
    target_names,
)
from advisor.schema import DraftSpec, EngineName, Finding, Severity, TargetSpec, TokenizerSpec
from dflash.presets import DraftFacts, PairPreset

PAPER = "https://arxiv.org/abs/2602.06036"
REFERENCE = "https://github.com/z-lab/dflash"  # the authors' own loader and loop
QWEN3_CONFIG = "https://huggingface.co/docs/transformers/model_doc/qwen3"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user means to run with. ``given`` names the settings that were given at all."""

    block_size: int | None = None
    sliding_window_size: int | None = None  # given as None: the draft is to see everything
    mask_token_id: int | None = None
    target_layer_ids: tuple[int, ...] | None = None
    enable_thinking: bool | None = None
    temperature: float | None = None
    given: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Case:
    """Everything a rule may look at. Unknown is ``None``; nothing here is guessed."""

    draft: DraftSpec
    target: TargetSpec | None = None
    tokenizer: TokenizerSpec | None = None
    settings: Settings = field(default_factory=Settings)
    engine: EngineName | None = None
    prompt_tokens: int | None = None
    max_new_tokens: int | None = None

    @property
    def has_file(self) -> bool:
        """Whether a config was read; a catalogue entry may leave facts out, a config may not."""
        return bool(self.draft.raw)

    @property
    def is_dflash2(self) -> bool:
        """Whether the draft has DFlash 2's selector."""
        return (
            "dflash2" in (self.draft.architecture or "").lower() or self.draft.dialect == "dflash2"
        )

    @property
    def block_size(self) -> int | None:
        """The block that will run: the user's, else the trained one."""
        given = self.settings.block_size
        return self.draft.block_size if given is None else given

    @property
    def mask_token_id(self) -> int | None:
        """The mask that will run: the user's, else the checkpoint's."""
        given = self.settings.mask_token_id
        return self.draft.mask_token_id if given is None else given

    @property
    def target_layer_ids(self) -> tuple[int, ...] | None:
        """The taps that will run: the user's, else the checkpoint's."""
        given = self.settings.target_layer_ids
        return self.draft.target_layer_ids if given is None else given

    @property
    def num_target_layers(self) -> int | None:
        """Layers of the target, from the target itself or else as the draft states it."""
        if self.target is not None and self.target.shape.num_layers is not None:
            return self.target.shape.num_layers
        return self.draft.num_target_layers

    @property
    def other_draft_severity(self) -> Severity:
        """How loudly to say that the target's published draft differs: speculators files are
        mostly drafts of their own, the other layouts mostly copies."""
        return "note" if self.draft.dialect == "speculators" else "warning"

    @property
    def has_sliding_layers(self) -> bool:
        """Whether any draft layer was trained with a window."""
        return "sliding_attention" in (self.draft.shape.layer_types or ())

    @cached_property
    def stop_ids(self) -> dict[int, str]:
        """Every id that ends generation, with who says so."""
        found: dict[int, str] = {}
        if self.tokenizer is not None:
            found.update(dict.fromkeys(self.tokenizer.eos_token_ids, "the tokenizer"))
        if self.target is not None:
            found.update(dict.fromkeys(self.target.eos_token_ids, "the target's config"))
        return found

    @cached_property
    def embedding_rows(self) -> int | None:
        """Rows of the target's embedding: from its weights, else its config."""
        if self.target is None:
            return None
        for name, shape in (self.target.tensor_shapes or {}).items():
            if name.endswith(("embed_tokens.weight", "token_embd.weight", "wte.weight")) and shape:
                return shape[0]
        return self.target.shape.vocab_size

    @cached_property
    def pairs(self) -> tuple[PairPreset, ...]:
        """Catalogue pairs whose draft goes by this draft's name."""
        return pairs_with_draft(self.draft.name)

    @cached_property
    def revisions(self) -> tuple[DraftFacts, ...]:
        """Every known revision of the draft."""
        return tuple(facts for pair in self.pairs for facts in pair.drafts)

    @cached_property
    def target_pairs(self) -> tuple[PairPreset, ...]:
        """Catalogue pairs of the target, by its own name or the one the draft names."""
        own = pairs_with_target(self.target.name) if self.target is not None else ()
        return own or pairs_with_target(self.draft.target_name)

    @cached_property
    def expected_targets(self) -> tuple[str, ...]:
        """Names of the target this draft was trained for: as it says itself, then the catalogue."""
        named = self.draft.target_name
        pairs = (*self.pairs, *pairs_with_target(named))
        known = tuple(name for pair in pairs for name in target_names(pair.target))
        return ((named,) if named else ()) + known

    @cached_property
    def lookalikes(self) -> tuple[DraftFacts, ...]:
        """Published revisions that no known number of this draft contradicts.

        By its own name; else by its target's; else by numbers alone, layers of the target included.
        """
        block = self.draft.block_size
        return tuple(
            facts
            for facts in self.lookalikes_of_any_block
            if None in (block, facts.block_size) or block == facts.block_size
        )

    @cached_property
    def lookalikes_of_any_block(self) -> tuple[DraftFacts, ...]:
        """The same, whatever their block size."""
        named = self.pairs or self.target_pairs
        if not named and self.draft.num_target_layers is None:
            return ()  # numbers alone need that one too
        return tuple(
            facts
            for pair in named or known_pairs()
            for facts in pair.drafts
            if same_numbers(self.draft, facts)
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """What a rule found: the numbers that disagree, the action, and what the rule leaves open."""

    message: str
    hint: str = ""
    severity: Severity | None = None
    field: str | None = None
    evidence: str | None = None


Judge = Callable[[Case], Fault | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the config doctor. Call it with a case to get its finding, or ``None``."""

    id: str
    severity: Severity
    field: str
    evidence: str
    summary: str
    judge: Judge
    for_any_draft: bool = False  # also asked about a draft that is not DFlash

    def __call__(self, case: Case) -> Finding | None:
        fault = self.judge(case)
        if fault is None:
            return None
        return Finding(
            id=self.id,
            severity=fault.severity or self.severity,
            field=fault.field or self.field,
            message=fault.message,
            hint=fault.hint,
            evidence=fault.evidence or self.evidence,
        )


def rule(
    rule_id: str,
    severity: Severity,
    field: str,
    *,
    evidence: str = "",
    for_any_draft: bool = False,
) -> Callable[[Judge], Rule]:
    """Make a ``Rule`` of a function; the first line of its docstring is the rule's summary."""

    def decorate(judge: Judge) -> Rule:
        summary = (judge.__doc__ or "").strip().splitlines()[0]
        return Rule(rule_id, severity, field, evidence, summary, judge, for_any_draft)

    return decorate
