"""Drafts that are not DFlash: the family names them and says why DFlash rules do not fit.

Knows the marks each family leaves in a config. Knows no rule about DFlash itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.values import plain


@dataclass(frozen=True, slots=True)
class Relative:
    """One family. ``marks`` are found in names (lower case); ``keys`` in the config."""

    name: str
    why: str
    marks: tuple[str, ...]
    keys: tuple[str, ...] = ()
    evidence: str = ""


# Ordered: the first match wins, so the more specific name stands before the one it contains.
RELATIVES: tuple[Relative, ...] = (
    Relative(
        "DSpark",
        "its proposals start at the anchor, so a block of B gives B drafts, not B - 1",
        ("dspark",),
        ("markov_rank", "markov_head_type", "enable_confidence_head", "confidence_head"),
        "https://github.com/PrismML-Eng/llama.cpp/pull/122",
    ),
    Relative(
        "DFly",
        "it mixes the tapped states per layer and corrects each slot from the one before",
        ("dfly",),
        ("enable_hidden_correction", "hidden_correction_intermediate_size"),
        "https://github.com/PrismML-Eng/llama.cpp/pull/146",
    ),
    Relative(
        "DFlare",
        "it is a tree variant with its own config section",
        ("dflare", "treeflash"),
        ("dflare_config",),
    ),
    Relative(
        "Domino",
        "a recurrent head corrects every slot from the ones before it",
        ("domino",),
        ("gru_hidden_dim", "pure_draft_prefix_len"),
        "https://arxiv.org/abs/2605.29707",
    ),
    Relative(
        "JetSpec",
        "its head is causal inside the block and drafts a tree",
        ("jetspec",),
        ("jetspec_config",),
        "https://arxiv.org/abs/2606.18394",
    ),
    Relative(
        "DDTree",
        "it is a tree search an engine runs over a DFlash draft, not a checkpoint of its own",
        ("ddtree",),
        ("ddtree_config", "tree_budget"),
        "https://arxiv.org/abs/2604.12989",
    ),
    Relative(
        "P-EAGLE",
        "it drafts from EAGLE features with its own masks",
        ("peagle", "p_eagle", "p-eagle", "paralleleagle"),
    ),
    Relative(
        "EAGLE-3",
        "it drafts one token after another from three fused layers",
        ("eagle3", "eagle-3", "eagle_3"),
        evidence="https://github.com/vllm-project/vllm/pull/50170",
    ),
    Relative(
        "EAGLE",
        "it drafts one token after another from the last hidden state",
        ("eagle",),
        ("eagle_config",),
    ),
    Relative(
        "Medusa", "it is a set of heads on the last state", ("medusa",), ("medusa_num_heads",)
    ),
    Relative("Hydra", "it is a set of heads on the last state", ("hydra",), ("hydra_num_heads",)),
    Relative(
        "MTP",
        "it is the target's own next-token layers, run one token at a time",
        ("mtp", "nextn"),
        ("mtp_config", "mtp_num_layers"),
    ),
    Relative(
        "an MLP speculator",
        "it stacks small MLPs on the last hidden state",
        ("mlpspeculator", "mlp_speculator"),
    ),
)


def find_relative(raw: Mapping[str, Any]) -> Relative | None:
    """Return the family a draft config belongs to when it is not DFlash, else ``None``."""
    names = _names(raw)
    keys = _keys(raw)
    for relative in RELATIVES:
        if any(mark in name for mark in relative.marks for name in names):
            return relative
    for relative in RELATIVES:
        if any(key in keys for key in relative.keys):
            return relative
    return _unknown_speculator(raw)


def _names(raw: Mapping[str, Any]) -> list[str]:
    """Every place where a config states its family, in lower case."""
    section = raw.get("dflash_config")
    speculators = raw.get("speculators_config")
    architectures = raw.get("architectures")
    found = [raw.get("model_type"), raw.get("speculators_model_type"), raw.get("projector_type")]
    found += [raw.get(k) for k in ("general.architecture", "model_arch", "method", "algorithm")]
    found.append(_telling_name(raw.get("_name_or_path")))
    if raw.get("head_type") == "causal":
        found.append("jetspec")
    found += list(architectures) if isinstance(architectures, list) else [architectures]
    if isinstance(section, dict):
        found += [section.get("projector_type"), section.get("model_type")]
    if isinstance(speculators, dict):
        found.append(speculators.get("algorithm"))
    return [name.lower() for name in found if isinstance(name, str)]


def _telling_name(name: Any) -> str | None:
    """The last part of a checkpoint's own name, unless it calls itself DFlash."""
    if not isinstance(name, str):
        return None
    last = name.rstrip("/").rsplit("/", 1)[-1]
    return None if "dflash" in last.lower() else last


def _keys(raw: Mapping[str, Any]) -> set[str]:
    """The keys that mark a family, top level, nested and in GGUF spelling, where they are set."""
    found = {key for key, value in raw.items() if _is_set(value)}
    section = raw.get("dflash_config")
    if isinstance(section, dict):
        found |= {key for key, value in section.items() if _is_set(value)}
    gguf = [key for key in found if isinstance(key, str) and key.startswith("dflash.")]
    return found | {key.removeprefix("dflash.") for key in gguf}


def _is_set(value: Any) -> bool:
    return value is not None and value is not False and value != 0


def _unknown_speculator(raw: Mapping[str, Any]) -> Relative | None:
    kind = raw.get("speculators_model_type")
    if isinstance(kind, str) and kind not in ("dflash", "dflash2"):
        return Relative(plain(kind)[:40], "it is another kind of speculator", ())
    return None
