"""What to ask: public data sets, local JSONL files, and the prompt sets of presets/prompts/.

Knows where prompts come from and how a row becomes turns. Knows no model and no engine.
"""

from __future__ import annotations

import importlib
import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from dflash.errors import PromptError
from dflash.presets import PRESETS, load_prompt_set, preset_ids

# The hub's data sets have hundreds of rows; this many are asked unless --limit says otherwise.
DEFAULT_HUB_LIMIT = 64


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation to be answered turn by turn. ``answer`` is known for some."""

    category: str
    turns: tuple[str, ...]
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class HubDataset:
    """A public data set: where it is, and how one of its rows becomes turns."""

    path: str
    config: str | None
    split: str
    turns: Callable[[dict[str, Any]], list[str]]


# Qwen's recommended instruction for maths (its model cards); published tau values assume it.
_BOXED = "Please reason step by step, and put your final answer within \\boxed{}."

HUB_DATASETS = {
    "gsm8k": HubDataset(
        "openai/gsm8k", "main", "test", lambda row: [f"{row['question']}\n{_BOXED}"]
    ),
    "math500": HubDataset(
        "HuggingFaceH4/MATH-500", None, "test", lambda row: [f"{row['problem']}\n{_BOXED}"]
    ),
    "humaneval": HubDataset(
        "openai/openai_humaneval",
        None,
        "test",
        lambda row: [f"Complete this Python function:\n```python\n{row['prompt']}```"],
    ),
    "mbpp": HubDataset(
        "google-research-datasets/mbpp", "sanitized", "test", lambda row: [row["prompt"]]
    ),
    "mt-bench": HubDataset(
        "HuggingFaceH4/mt_bench_prompts", None, "train", lambda row: list(row["prompt"])
    ),
}


def load_prompts(name: str, *, limit: int | None) -> list[Prompt]:
    """Load a data set by its name, file or prompt-set id; at most ``limit``, spread evenly.

    Raises ``PromptError`` or ``PresetError`` with what to do about it.
    """
    if name in HUB_DATASETS:
        chosen = limit or DEFAULT_HUB_LIMIT
        return spread(_from_hub(name), chosen)
    path = Path(name)
    if path.suffix in (".jsonl", ".json") or path.is_file():
        return spread(read_jsonl(path), limit)
    ids = preset_ids("prompts")
    if name in ids:
        return spread(_from_preset(name), limit)
    known = ", ".join([*HUB_DATASETS, *ids])
    raise PromptError(
        f"there is no data set called {name!r}.", f"Use a .jsonl file or one of {known}."
    )


def spread(prompts: list[Prompt], limit: int | None) -> list[Prompt]:
    """Take ``limit`` prompts at even distances, so that files sorted by kind keep their kinds."""
    if limit is None or limit >= len(prompts):
        return prompts
    return [prompts[i * len(prompts) // limit] for i in range(limit)]


def mixed(prompts: Sequence[Prompt], *, seed: int) -> list[Prompt]:
    """The same prompts in random order, so that any beginning of them has all kinds."""
    return random.Random(seed).sample(prompts, len(prompts))


def read_jsonl(path: Path) -> list[Prompt]:
    """Read rows ``{"category", "turns"[, "answer"]}``, or ``"prompt"`` in place of ``"turns"``.

    Raises ``PromptError`` with the line.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(
            f"{path}: cannot be read ({type(error).__name__}).",
            'Give a text file with one JSON object per line: {"category": ..., "turns": [...]}.',
        ) from error
    prompts = [_row(line, f"{path}:{i}") for i, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise PromptError(f"{path}: has no rows.")
    return prompts


def _row(line: str, place: str) -> Prompt:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PromptError(f"{place}: is not JSON.") from error
    if isinstance(row, dict) and "prompt" in row:
        row = {"turns": [row["prompt"]], **row}
    if not isinstance(row, dict) or "turns" not in row:
        raise PromptError(
            f"{place}: has no 'turns'.", 'A row is {"category": ..., "turns": [...]}.'
        )
    category, answer = row.get("category", "other"), row.get("answer")
    if not isinstance(category, str) or not (answer is None or isinstance(answer, str)):
        raise PromptError(f"{place}: 'category' and 'answer' must be text.")
    return Prompt(category, _turns(row["turns"], place), answer)


def _turns(value: Any, place: str) -> tuple[str, ...]:
    turns = tuple(value) if isinstance(value, (list, tuple)) else ()
    if not turns or not all(isinstance(t, str) and t.strip() for t in turns):
        raise PromptError(f"{place}: 'turns' must be a list of texts that are not empty.")
    try:
        "".join(turns).encode("utf-8")
    except UnicodeEncodeError as error:  # JSON may escape half a character; no tokenizer takes it
        raise PromptError(f"{place}: 'turns' holds half a character.") from error
    return turns


def _from_preset(name: str) -> list[Prompt]:
    prompt_set = load_prompt_set(name)
    return [Prompt(p.category, p.turns) for p in prompt_set.prompts]


def _from_hub(name: str) -> list[Prompt]:
    source = HUB_DATASETS[name]
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise PromptError(
            f"the data set {name!r} needs the 'datasets' library, which is not installed.",
            f"Run: pip install datasets. Without a network use {_offline_choices()}.",
        ) from error
    try:
        rows: Iterable[dict[str, Any]] = datasets.load_dataset(
            source.path, source.config, split=source.split
        )
        return [Prompt(name, _turns(source.turns(row), source.path)) for row in rows]
    except (OSError, ValueError, httpx.HTTPError) as error:
        raise PromptError(
            f"the data set {name!r} ({source.path}) could not be fetched ({type(error).__name__}).",
            f"Check the network, or use {_offline_choices()}.",
        ) from error


def _offline_choices() -> str:
    ids = ", ".join(preset_ids("prompts"))
    return f"a prompt set of this project ({ids})" if ids else f"a .jsonl file ({PRESETS.name}/)"
