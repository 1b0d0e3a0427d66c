"""Recommendations written for the engines that run them, and read back from YAML."""

from __future__ import annotations

import json
from collections.abc import Callable

from advisor.exports import (
    compose,
    llamacpp,
    mlx,
    sglang,
    tensorrt_llm,
    transformers,
    vllm,
    yaml_file,
)
from advisor.exports.plan import Export, Plan, plan_from
from advisor.schema import Recommendation
from dflash.errors import DFlashError

_ENGINES: dict[str, Callable[[Plan], Export]] = {
    "vllm": vllm.export,
    "sglang": sglang.export,
    "llamacpp": llamacpp.export,
    "mlx": mlx.export,
    "transformers": transformers.export,
    "tensorrt-llm": tensorrt_llm.export,
    "mlx-command": mlx.command,
    "transformers-command": transformers.command,
    "compose-vllm": lambda plan: compose.export(plan, "vllm"),
    "compose-sglang": lambda plan: compose.export(plan, "sglang"),
    "compose-llamacpp": lambda plan: compose.export(plan, "llamacpp"),
}
# What stands in the JSON of a recommendation: one command per engine.
_COMMANDS: dict[str, Callable[[Plan], Export]] = {
    "vllm": vllm.export,
    "sglang": sglang.export,
    "llamacpp": llamacpp.export,
    "mlx": mlx.command,
    "transformers": transformers.command,
    "tensorrt-llm": tensorrt_llm.export,
}
FORMATS = ("yaml", *_ENGINES, "draft-config")


class ExportError(DFlashError):
    """This recommendation cannot be written in that format."""


def render(recommendation: Recommendation, to: str) -> Export:
    """Write a recommendation in one of ``FORMATS``. Raises ``ExportError``."""
    if to == "yaml":
        return Export(yaml_file.dump(recommendation), "recommendation.yaml")
    if to == "draft-config":
        return _draft_config(recommendation)
    if to not in _ENGINES:
        raise ExportError(f"there is no export {to!r}.", f"Choose from {', '.join(FORMATS)}.")
    return _ENGINES[to](plan_from(recommendation))


def commands(recommendation: Recommendation) -> dict[str, Export]:
    """One command per engine, each with what it cannot honestly say."""
    plan = plan_from(recommendation)
    return {engine: export(plan) for engine, export in _COMMANDS.items()}


def _draft_config(recommendation: Recommendation) -> Export:
    if recommendation.draft_config is None:
        raise ExportError(
            "there is no draft config to write: a trained draft's config is only changed to give "
            "a full-attention draft a window, and a new draft's needs the target's shape.",
            "Give --target with --mode train, or a full-attention --draft and a long prompt.",
        )
    text = json.dumps(recommendation.draft_config, indent=2, allow_nan=False) + "\n"
    return Export(text, "config.json")
