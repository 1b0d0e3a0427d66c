"""``python -m advisor regression``: predicted against published, as a table."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from advisor.regression_page import page

HELP = "print the advisor's choices and predictions beside published results"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "advisor-regression.md"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``regression``."""
    parser.add_argument("--write", action="store_true", help="write docs/advisor-regression.md")


def run(args: argparse.Namespace) -> int:
    """Print or write the page."""
    if args.write:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
    return 0
