"""Token-for-token parity with the official package (PyPI ``dflash``) on the same small checkpoints.

    python scripts/parity_official.py --write docs/parity.md

Makes the package an environment of its own, writes small pairs to disk, runs both sides and
compares every answer, every drafted block and every cycle's length at temperature 0; above it, the
distribution of the first tokens with the target's own, computed exactly. The last line of
standard output is JSON. Exit code 0 when every row is equal or explained, 1 when one is not, 2
when the comparison could not be made.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedModel

from dflash.benchmark.options import positive
from dflash.drafts import ModuleDraft, open_draft
from dflash.errors import DFlashError
from dflash.generate import decode
from dflash.model import DFlashDraftModel, load_draft
from dflash.schema import Cycle, Prefilled, SamplingParams
from dflash.targets import TransformersTarget, open_target
from scripts.parity_cases import (
    CASES,
    PROMPTS,
    Case,
    edit_config,
    own_answer,
    write_draft,
    write_target,
)
from scripts.parity_kept import Part, read_part, write_part
from scripts.parity_report import CaseRow, markdown, verdict
from scripts.parity_sampled import SampledRow, compare_draws
from scripts.peer import Peer, default_env_dir, make_environment, running

PACKAGES = ("dflash[local]==0.1.0",)  # as in compare_official.py: one environment for both
WORKER = Path(__file__).parent / "workers" / "official.py"
MAX_NEW_TOKENS = 40
CONTEXT = 512


@dataclass(frozen=True, slots=True)
class Pair:
    """A case on our side. ``own`` are the target's own answers to the prompts."""

    case: Case
    target: PreTrainedModel
    draft: DFlashDraftModel
    own: tuple[list[int], ...]


def main(argv: list[str] | None = None) -> int:
    """Run the comparison and print it."""
    args = _parser().parse_args(argv)
    torch.set_num_threads(1)
    try:
        python = make_environment(args.env_dir, packages=PACKAGES)
        rows, sampled, about = compare(python, args)
    except DFlashError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = markdown(rows, sampled, about)
    if args.write:
        args.write.write_text(text, encoding="utf-8")
    print(text)
    num_bad = sum(verdict(r) == "DIFFERENT" for r in rows) + sum(not s.passed for s in sampled)
    num_equal = sum(verdict(r) == "equal" for r in rows)
    print(json.dumps({"rows": len(rows), "equal": num_equal, "unexplained": num_bad}))
    return 1 if num_bad else 0


def _parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(description=__doc__)
    root.add_argument("--env-dir", type=Path, default=default_env_dir("official"))
    root.add_argument("--write", type=Path, metavar="FILE.md", help="write the table here too")
    root.add_argument("--draws", type=positive, default=800, help="sampled answers per side")
    root.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="make the check in parts: results of cases are kept here, not made again that day",
    )
    root.add_argument("--only", help="run only the cases whose name contains this")
    return root


def compare(
    python: Path, args: argparse.Namespace
) -> tuple[list[CaseRow], list[SampledRow], dict[str, str]]:
    """Every case at every block size on both sides; what is kept is not run again."""
    about = {
        "date": datetime.date.today().isoformat(),
        "ours: transformers": transformers.__version__,
        "ours: torch": torch.__version__,
    }
    made_by = about | {"draws": args.draws, "packages": list(PACKAGES)}
    cases = [c for c in CASES if not args.only or args.only in f"{c.target} {c.name}"]
    parts = {c: part for c in cases if args.keep and (part := read_part(args.keep, c, made_by))}
    missing = [c for c in cases if c not in parts]
    for case, part in run_cases(python, missing, args) if missing else ():
        parts[case] = part
        if args.keep:
            write_part(args.keep, case, made_by, part)
    ordered = [parts[case] for case in cases]
    for part in ordered:
        about |= {f"official: {name}": version for name, version in part.official.items()}
    return (
        [row for part in ordered for row in part.rows],
        [row for part in ordered for row in part.sampled],
        about,
    )


def run_cases(
    python: Path, cases: list[Case], args: argparse.Namespace
) -> Iterator[tuple[Case, Part]]:
    """Run cases on both sides, one after the other."""
    log = args.env_dir / "parity.log"
    with tempfile.TemporaryDirectory() as folder, running(python, WORKER, log=log) as peer:
        for number, case in enumerate(cases):
            print(f"{number + 1}/{len(cases)} {case.target}, {case.name}", file=sys.stderr)
            pair, loaded = open_both(case, Path(folder), number, peer)
            not_loaded = tuple(loaded["missing_keys"] + loaded["unexpected_keys"])
            rows = tuple(
                compare_case(pair, size, peer, not_loaded) for size in (2, 5, case.block_size)
            )
            print(f"  {', '.join(verdict(r) for r in rows)}", file=sys.stderr)
            sampled = (
                compare_draws(pair.target, pair.draft, case, peer, args.draws) if case.draws else []
            )
            official = {name: loaded[name] for name in ("dflash", "torch", "transformers")}
            yield case, Part(rows, tuple(sampled), official)


def open_both(case: Case, folder: Path, number: int, peer: Peer) -> tuple[Pair, dict[str, Any]]:
    """Write the pair once and load it on both sides; then load what the official side saved."""
    target_path = folder / case.target
    if not target_path.exists():
        write_target(case.target, target_path)
    target = AutoModelForCausalLM.from_pretrained(target_path, dtype=torch.float32).eval()
    draft_path, again = folder / f"draft-{number}", folder / f"again-{number}"
    write_draft(case, target, draft_path)
    their_path = draft_path
    if case.their_edit:
        their_path = Path(shutil.copytree(draft_path, folder / f"theirs-{number}"))
        edit_config(their_path, case.their_edit)
    loaded = peer.ask(
        {
            "target": str(target_path),
            "draft": str(their_path),
            "attention": target.config._attn_implementation,
            "draft_class": "DFlash2DraftModel" if case.is_v2 else "DFlashDraftModel",
            "dtype": "float32",
            "num_threads": 1,
            "save_to": str(again),
        }
    )
    ours, theirs = load_draft(draft_path), load_draft(again)
    for name, tensor in ours.state_dict().items():
        if not torch.equal(tensor, theirs.state_dict()[name]):
            loaded["missing_keys"].append(f"{name} (changed by their save)")
    own = tuple(own_answer(target, list(prompt), MAX_NEW_TOKENS) for prompt in PROMPTS)
    return Pair(case, target, ours, own), loaded


def compare_case(pair: Pair, block_size: int, peer: Peer, not_loaded: tuple[str, ...]) -> CaseRow:
    """All prompts of one case at one block size."""
    row = CaseRow(pair.case, block_size, not_loaded)
    for prompt, reference in zip(PROMPTS, pair.own, strict=True):
        ids = list(prompt)
        job = {
            "ids": ids, "max_new_tokens": MAX_NEW_TOKENS, "stop_ids": None,
            "block_size": block_size,
        }  # fmt: skip
        theirs = peer.ask(job)
        fast = answer(pair, ids, block_size, plain=False)
        plain = answer(pair, ids, block_size, plain=True)
        row.add(reference, fast, plain, theirs)
    return row


def answer(
    pair: Pair, ids: list[int], block_size: int, *, plain: bool
) -> tuple[list[int], list[Cycle]]:
    """Our answer and cycles: by the path a user gets, or by transformers' and torch's modules."""
    taps = pair.draft.target_layer_ids
    if plain:
        target: Any = TransformersTarget(pair.target, tuple(taps))
        draft: Any = ModuleDraft(pair.draft, pair.target)
    else:
        target, draft = open_target(pair.target, taps), open_draft(pair.draft, pair.target)
    events = list(
        decode(
            target,
            draft,
            ids,
            sampling=SamplingParams(max_new_tokens=MAX_NEW_TOKENS),
            block_size=block_size,
            stop_ids=frozenset(),
            context_length=CONTEXT,
        )
    )
    assert isinstance(events[0], Prefilled)
    cycles = [e for e in events if isinstance(e, Cycle)]
    return [events[0].token_id] + [i for c in cycles for i in c.emitted_ids], cycles


if __name__ == "__main__":
    sys.exit(main())
