"""A benchmark's results as the ``published`` section of a pair's preset. Knows both schemas.

The preset then says, with source and date, what each block size gave; the advisor shows it on the
rung ``published``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dflash.benchmark.report import blocks_of
from dflash.errors import PromptError
from dflash.presets import PairPreset, read_pair
from dflash.strict_yaml import parse_yaml, validated

_TASKS = ("chat", "code", "math", "json", "translate", "edit")
_SECTION = "published:\n"


def with_published(path: Path, run: dict[str, Any], *, source: str) -> str:
    """The preset's text with its ``published`` section replaced by this run's.

    Raises ``PromptError`` for a run of another pair, ``PresetError`` for a preset that is none.
    """
    pair = read_pair(path)
    about = run["provenance"]
    if about.get("pair_id") != pair.id:
        raise PromptError(
            f"the run measured {about.get('pair_id')!r}, not {pair.id!r}.",
            "Name the preset of the pair that was measured.",
        )
    head, _, _ = path.read_text(encoding="utf-8").partition(f"\n{_SECTION}")
    text = head.rstrip("\n") + f"\n{_SECTION}" + "".join(_tables(run, source))
    validated(parse_yaml(text, name=path.name), PairPreset, name=path.name)
    return text


def _tables(run: dict[str, Any], source: str) -> list[str]:
    by_block = blocks_of(run["summary"])
    return [_table(b, by_block[b], run["provenance"], source) for b in sorted(by_block)]


def _table(block_size: int, block: dict[str, Any], about: dict[str, Any], source: str) -> str:
    note = (
        f"{about['machine']}, {about['dtype']}, {about['num_threads']} threads; median of paired "
        f"ratios over {block['num_prompts']} prompts."
    )
    rows = [_row(about["dataset"], None, block)]
    rows += [
        _row(f"{about['dataset']}, {kind}", kind, group)
        for kind, group in block["by_category"].items()
        if kind in _TASKS
    ]
    temperature = about["sampling"]["temperature"]
    return (
        f'  - where: "python -m dflash.benchmark, {about["date"][:10]}"\n'
        f"    source: [{source}]\n"
        f"    engine: {about['backend']}\n"
        f"    block_size: {block_size}\n"
        f"    temperature: {float(temperature)}\n"
        "    thinking: false\n"
        f'    note: "{note}"\n'
        "    rows:\n" + "".join(rows)
    )


def _row(benchmark: str, task: str | None, group: dict[str, Any]) -> str:
    fields = [f'benchmark: "{benchmark}"', *([f"task: {task}"] if task else [])]
    if group["tau"] is not None:
        fields.append(f"tau: {group['tau']['median']:.2f}")
    if group["decode_speedup"] is not None:
        fields.append(f"speedup: {group['decode_speedup']['median']:.2f}")
    return f"      - {{{', '.join(fields)}}}\n"
