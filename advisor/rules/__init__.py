"""The config doctor's rules, one module per family, in the order their findings are shown."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from advisor.rules import (
    architecture,
    block,
    context,
    embeddings,
    engine,
    formats,
    mask,
    pairing,
    rope,
    selector,
    stops,
    taps,
    thinking,
    weights,
    window,
)
from advisor.rules.case import Case, Fault, Rule, Settings
from advisor.schema import Finding

FAMILIES: tuple[ModuleType, ...] = (
    architecture,
    pairing,
    formats,
    taps,
    mask,
    block,
    window,
    rope,
    selector,
    embeddings,
    weights,
    stops,
    context,
    thinking,
    engine,
)


def _rules_in(module: ModuleType) -> Iterator[Rule]:
    return (value for value in vars(module).values() if isinstance(value, Rule))


RULES: tuple[Rule, ...] = tuple(rule for module in FAMILIES for rule in _rules_in(module))


def run_rules(case: Case) -> tuple[Finding, ...]:
    """Ask every rule that applies; of a draft that is no DFlash only the rules for any draft."""
    is_dflash = case.draft.dialect != "unknown"
    found = (rule(case) for rule in RULES if is_dflash or rule.for_any_draft)
    return tuple(finding for finding in found if finding is not None)


__all__ = ["FAMILIES", "RULES", "Case", "Fault", "Rule", "Settings", "run_rules"]
