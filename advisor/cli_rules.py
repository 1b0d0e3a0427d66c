"""The ``rules`` command: every rule of the config doctor, from the code that runs.

Knows how a rule list is printed. Knows no rule.
"""

from __future__ import annotations

import argparse
import sys
from types import ModuleType

from advisor.rules import FAMILIES, RULES, Rule

HELP = "list the rules of the config doctor"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--markdown", action="store_true", help="print docs/rules.md")


def run(args: argparse.Namespace) -> int:
    """Print the list; always 0."""
    sys.stdout.write(rules_markdown() if args.markdown else rules_text())
    return 0


def rules_text() -> str:
    """Return one line per rule."""
    return "".join(f"{r.severity:8} {r.id:32} {r.field:24} {r.summary}\n" for r in RULES)


def rules_markdown() -> str:
    """Return docs/rules.md. A test holds the file to this text."""
    parts = [
        "# Rules of the config doctor\n\n"
        "Made by `python -m advisor rules --markdown`; do not edit by hand.\n\n"
        "error: will not load, or output or acceptance is destroyed. warning: works, likely slow "
        "or surprising. note: good to know. A rule may lower or raise its severity by the numbers "
        "it meets. `config.wrong-type` (error, at the key concerned) is reported while reading.\n"
    ]
    parts += [_family(module) for module in FAMILIES]
    return "\n".join(parts)


def _family(module: ModuleType) -> str:
    title = (module.__doc__ or "").strip().splitlines()[0].rstrip(".")
    rows = [r for r in RULES if r.judge.__module__ == module.__name__]
    header = f"## {title}\n\n| rule | severity | field | what | evidence |\n|---|---|---|---|---|\n"
    return header + "".join(_row(r) for r in rows)


def _row(rule: Rule) -> str:
    link = f"[source]({rule.evidence})" if rule.evidence else ""
    return f"| `{rule.id}` | {rule.severity} | {rule.field} | {rule.summary} | {link} |\n"
