"""The config doctor: a draft, a target and the user's settings in, findings out.

Knows what to read and in which order to report. Knows no rule by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from advisor.checkpoint import DraftReading, TargetReading, read_draft, read_target
from advisor.rules import Case, Settings, run_rules
from advisor.schema import DraftSpec, EngineName, Finding, ModelShape, RopeSpec, TargetSpec
from advisor.sources import load_draft, load_target, load_tokenizer, tokenizer_beside
from advisor.tokenizer import TokenizerReading, read_tokenizer

_ORDER = {"error": 0, "warning": 1, "note": 2}
# The config's own names, so that a reader finds a number where config.json has it.
_CONFIG_NAMES = {
    "num_layers": "num_hidden_layers",
    "num_kv_heads": "num_key_value_heads",
    "num_experts_per_token": "num_experts_per_tok",
}
_SHAPE_NOT_SHOWN = ("num_params", "num_active_params", "bits_per_weight")
_MAX_ROPE_KEYS = 32


@dataclass(frozen=True, slots=True)
class Report:
    """The answer of ``check``: the specs as understood and everything found, worst first."""

    draft: DraftSpec
    target: TargetSpec | None
    findings: tuple[Finding, ...]

    @property
    def has_errors(self) -> bool:
        """Whether any finding is an error."""
        return any(finding.severity == "error" for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """The contract's JSON: ``{"draft", "target", "findings"}``, free of NaN and infinity."""
        return {
            "draft": draft_as_json(self.draft),
            "target": None if self.target is None else target_as_json(self.target),
            "findings": [asdict(finding) for finding in self.findings],
        }


@dataclass(frozen=True, slots=True)
class Readings:
    """What was read of draft, target and tokenizer, with everything of a wrong type in them."""

    draft: DraftReading
    target: TargetReading | None = None
    tokenizer: TokenizerReading | None = None

    @property
    def misfits(self) -> tuple[Finding, ...]:
        """The findings from reading, draft first."""
        readings = (self.draft, self.target, self.tokenizer)
        return tuple(f for reading in readings if reading is not None for f in reading.findings)

    def case(
        self,
        *,
        settings: Settings | None,
        engine: EngineName | None,
        prompt_tokens: int | None,
        max_new_tokens: int | None,
    ) -> Case:
        """Return what the rules look at."""
        return Case(
            draft=self.draft.spec,
            target=self.target.spec if self.target else None,
            tokenizer=self.tokenizer.spec if self.tokenizer else None,
            settings=settings or Settings(),
            engine=engine,
            prompt_tokens=prompt_tokens,
            max_new_tokens=max_new_tokens,
        )


def check(
    draft: str,
    *,
    target: str | None = None,
    tokenizer: str | None = None,
    settings: Settings | None = None,
    engine: EngineName | None = None,
    prompt_tokens: int | None = None,
    max_new_tokens: int | None = None,
) -> Report:
    """Read a draft (and target, and tokenizer) by path, catalogue id or hub id, and judge them.

    Raises ``DFlashError`` children when something named cannot be used at all; everything wrong
    inside a readable file is a finding.
    """
    tokens = load_tokenizer(tokenizer) if tokenizer is not None else None
    if tokens is None and target is not None:
        tokens = tokenizer_beside(target)
    readings = Readings(
        load_draft(draft), load_target(target) if target is not None else None, tokens
    )
    case = readings.case(
        settings=settings,
        engine=engine,
        prompt_tokens=prompt_tokens,
        max_new_tokens=max_new_tokens,
    )
    return check_case(case, readings.misfits)


def check_values(
    draft: Mapping[str, Any],
    *,
    target: Mapping[str, Any] | None = None,
    tokenizer: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
    engine: EngineName | None = None,
    prompt_tokens: int | None = None,
    max_new_tokens: int | None = None,
) -> Report:
    """Judge configs that were pasted rather than named; never raises.

    ``advisor.sources.parse_config`` turns pasted text into such a mapping.
    """
    readings = Readings(
        read_draft(draft),
        read_target(target) if target is not None else None,
        read_tokenizer(tokenizer) if tokenizer is not None else None,
    )
    case = readings.case(
        settings=settings,
        engine=engine,
        prompt_tokens=prompt_tokens,
        max_new_tokens=max_new_tokens,
    )
    return check_case(case, readings.misfits)


def check_case(case: Case, misfits: tuple[Finding, ...] = ()) -> Report:
    """Judge specs that are already in memory; ``misfits`` are findings from reading them."""
    found = dict.fromkeys((*misfits, *run_rules(case)))
    findings = sorted(found, key=lambda finding: _ORDER[finding.severity])
    return Report(case.draft, case.target, tuple(findings))


def draft_as_json(spec: DraftSpec) -> dict[str, Any]:
    """A draft in the project's convention: layer outputs from 0, blocks with the anchor."""
    return {
        "dialect": spec.dialect,
        "architecture": spec.architecture,
        "model_type": spec.model_type,
        "name": spec.name,
        "target_name": spec.target_name,
        "block_size": spec.block_size,
        "target_layer_ids": _listed(spec.target_layer_ids),
        "num_target_layers": spec.num_target_layers,
        "mask_token_id": spec.mask_token_id,
        **_shape_as_json(spec.shape),
        "rope": _rope_as_json(spec.rope),
        "is_causal": spec.is_causal,
        "max_position_embeddings": spec.max_position_embeddings,
        "attention_bias": spec.attention_bias,
        "final_logit_softcapping": spec.final_logit_softcapping,
        "output_multiplier": spec.output_multiplier,
        "sample_from_anchor": spec.sample_from_anchor,
        "quantization": spec.quantization,
        "draft_vocab_size": spec.draft_vocab_size,
    }


def target_as_json(spec: TargetSpec) -> dict[str, Any]:
    """A target under its config's own names."""
    return {
        "architecture": spec.architecture,
        "model_type": spec.model_type,
        "name": spec.name,
        **_shape_as_json(spec.shape),
        "rope": _rope_as_json(spec.rope),
        "max_position_embeddings": spec.max_position_embeddings,
        "tie_word_embeddings": spec.tie_word_embeddings,
        "quantization": spec.quantization,
        "eos_token_ids": list(spec.eos_token_ids),
        "bos_token_id": spec.bos_token_id,
        "pad_token_id": spec.pad_token_id,
    }


def _shape_as_json(shape: ModelShape) -> dict[str, Any]:
    values: dict[str, Any] = asdict(replace(shape, layer_types=None))
    values["layer_types"] = _listed(shape.layer_types)
    return {
        _CONFIG_NAMES.get(name, name): value
        for name, value in values.items()
        if name not in _SHAPE_NOT_SHOWN
    }


def _rope_as_json(rope: RopeSpec) -> dict[str, Any]:
    """Theta, type and the scalar parameters; nested or non-finite values have no place here."""
    scalars = {
        key: value
        for key, value in list(rope.parameters.items())[:_MAX_ROPE_KEYS]
        if isinstance(value, bool | str | int)
        or (isinstance(value, float) and math.isfinite(value))
    }
    return {"rope_theta": rope.theta, "rope_type": rope.rope_type, "parameters": scalars}


def _listed(values: tuple[Any, ...] | None) -> list[Any] | None:
    return None if values is None else list(values)
