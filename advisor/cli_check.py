"""The ``check`` command: what is wrong with this draft, this pair, these settings.

Knows the command line and how a report is printed. Knows no rule.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import Any

from advisor.check import Report, check
from advisor.cli_recommend import positive, tokens
from advisor.rules import Settings
from advisor.schema import ENGINES
from advisor.values import MAX_INTEGER, MAX_LIST_LENGTH, plain
from dflash.errors import DFlashError

HELP = "check a draft's config, alone or against its target"
_MARKS = {"error": "x", "warning": "!", "note": "-"}
_WORDS = {"true": True, "yes": True, "on": True, "1": True,
          "false": False, "no": False, "off": False, "0": False}  # fmt: skip


class SettingError(DFlashError):
    """A KEY=VALUE that cannot be understood."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--draft", required=True, help="config.json, folder, catalogue id or hub id"
    )
    parser.add_argument("--target", help="the same, for the model that is sped up")
    parser.add_argument(
        "--tokenizer", help="tokenizer_config.json, generation_config.json or folder"
    )
    parser.add_argument(
        "--set", dest="settings", nargs="+", action="extend", default=[], metavar="KEY=VALUE",
        help="what you mean to run with: " + ", ".join(_PARSERS),
    )  # fmt: skip
    parser.add_argument("--prompt-tokens", type=tokens, metavar="N")
    parser.add_argument("--max-new-tokens", type=positive, metavar="N")
    parser.add_argument("--engine", choices=ENGINES)
    parser.add_argument("--json", action="store_true", help="print only JSON")


def run(args: argparse.Namespace) -> int:
    """Print the report; return 1 when it holds an error, else 0."""
    report = check(
        args.draft,
        target=args.target,
        tokenizer=args.tokenizer,
        settings=parse_settings(args.settings),
        engine=args.engine,
        prompt_tokens=args.prompt_tokens,
        max_new_tokens=args.max_new_tokens,
    )
    if args.json:
        text = json.dumps(report.as_json(), indent=2, ensure_ascii=True, allow_nan=False)
    else:
        text = report_text(report)
    sys.stdout.write(text + "\n")
    return 1 if report.has_errors else 0


def report_text(report: Report) -> str:
    """Return the report for a person: the draft in one line, then one paragraph per finding."""
    draft = report.draft
    lines = [
        f"draft: {plain(draft.name or 'unnamed')} ({draft.dialect}), block {draft.block_size}, "
        f"taps {_short(draft.target_layer_ids)}, mask {draft.mask_token_id}"
    ]
    for finding in report.findings:
        lines.append(f"{_MARKS[finding.severity]} {finding.severity} {finding.field}: "
                     f"{plain(finding.message)}")  # fmt: skip
        lines += [f"    {plain(text)}" for text in (finding.hint, finding.evidence) if text]
    lines.append(", ".join(_counted(report, severity) for severity in _MARKS))
    encoding = sys.stdout.encoding or "utf-8"
    return "\n".join(lines).encode(encoding, "backslashreplace").decode(encoding)


def _counted(report: Report, severity: str) -> str:
    count = sum(finding.severity == severity for finding in report.findings)
    return f"{count} {severity}" + ("" if count == 1 else "s")


def _short(taps: tuple[int, ...] | None) -> str:
    return "unknown" if taps is None else str(list(taps[:16])) + ("..." if len(taps) > 16 else "")


def parse_settings(pairs: list[str]) -> Settings:
    """Read KEY=VALUE settings; of one key given twice the last counts. Raises ``SettingError``."""
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or key not in _PARSERS:
            raise SettingError(
                f"--set {plain(pair)[:80]!r} is not one of {', '.join(_PARSERS)} with =VALUE."
            )
        try:
            values[key] = _PARSERS[key](text.strip())
        except (ValueError, RecursionError) as error:
            raise SettingError(f"--set {key}: {plain(text)[:60]!r} is not usable.") from error
    return Settings(**values, given=frozenset(values))


def _integer(text: str) -> int:
    value = int(text)
    if abs(value) > MAX_INTEGER:
        raise ValueError(f"{value} is too large")
    return value


def _window(text: str) -> int | None:
    return None if text.lower() in ("none", "null", "off") else _integer(text)


def _layer_ids(text: str) -> tuple[int, ...]:
    items = text.strip().removeprefix("[").removesuffix("]").split(",")
    if len(items) > MAX_LIST_LENGTH:
        raise ValueError(f"{len(items)} layer ids are too many")
    return tuple(_integer(item) for item in items if item.strip())


def _truth(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise ValueError(f"{text} is neither true nor false")
    return _WORDS[text.lower()]


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{value} is no temperature")
    return value


_PARSERS = {
    "block_size": _integer,
    "sliding_window_size": _window,
    "mask_token_id": _integer,
    "target_layer_ids": _layer_ids,
    "enable_thinking": _truth,
    "temperature": _finite,
}
