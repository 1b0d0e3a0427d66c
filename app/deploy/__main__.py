"""``python -m app.deploy owner/name``: show what would go to a Space; ``--upload`` sends it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from huggingface_hub import HfApi

from app.deploy.hub import upload
from app.deploy.rules import problems
from app.deploy.upload_set import UploadFile, upload_set

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Print the set and its problems; exit 1 when a rule is broken. Last line: JSON."""
    parser = argparse.ArgumentParser(prog="python -m app.deploy", description=__doc__)
    parser.add_argument("space", nargs="?", help="owner/name of the Space")
    parser.add_argument("--upload", action="store_true", help="really upload; default: dry run")
    parser.add_argument("--private", action="store_true", help="make a new Space private")
    options = parser.parse_args(arguments)
    if options.upload and not options.space:
        parser.error("--upload needs the Space's name, owner/name")
    files = upload_set(ROOT)
    found = problems(files)
    _show(files, found)
    address = None
    if options.upload and not found:
        address = upload(HfApi(), options.space, files, private=options.private)
    report = {
        "num_files": len(files),
        "total_bytes": sum(file.num_bytes for file in files),
        "large_files": [file.name for file in files if file.is_large],
        "problems": list(found),
        "uploaded_to": address,
    }
    print(json.dumps(report))
    return 1 if found else 0


def _show(files: tuple[UploadFile, ...], found: tuple[str, ...]) -> None:
    for file in files:
        kind = "large" if file.is_large else "text"
        print(f"{file.num_bytes / 1e3:10.1f} kB  {kind:5}  {file.name}")
    for problem in found:
        print(f"problem: {problem}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
