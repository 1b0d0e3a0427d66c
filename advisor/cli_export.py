"""``python -m advisor export``: a saved recommendation, written for an engine."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from advisor.cli_recommend import printable
from advisor.exports import FORMATS, render, yaml_file

HELP = "Write a saved recommendation for an engine."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``export``."""
    add = parser.add_argument
    add(
        "--from",
        dest="source",
        required=True,
        metavar="RECOMMENDATION.yaml",
        help="a file that recommend --output wrote",
    )
    add("--to", required=True, choices=FORMATS, help="what to write")
    add("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print the export. Raises ``DFlashError`` when the file or the format cannot be used."""
    written = render(yaml_file.load(Path(args.source)), args.to)
    if args.json:
        fields = {
            "to": args.to,
            "command": written.text,
            "filename": written.filename,
            "notes": list(written.notes),
        }
        sys.stdout.write(json.dumps(fields, allow_nan=False, indent=1) + "\n")
    else:
        sys.stdout.write(printable(written.commented.rstrip("\n")) + "\n")
    return 0
