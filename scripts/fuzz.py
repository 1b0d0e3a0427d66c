"""A fuzzing campaign on one parser: ``python scripts/fuzz.py NAME --minutes 10``.

Needs atheris (``pip install atheris``; Linux, CPython up to 3.13), which nothing else here needs.
A finding does not end the campaign: inputs that raise the same way in the same place are kept once,
in the folder of --output. Minutes are those of the process, so a busy machine makes a campaign
longer and not weaker. The last line on stdout is JSON; exit code 1 when something was found.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

if TYPE_CHECKING:
    from scripts.fuzz_targets import Target

_OURS = ("dflash", "advisor", "app")
_SLOW_S = 2.0  # of one input of at most 4 kB; readers take milliseconds
_MAX_INPUT_BYTES = 16_384
_MEMORY_MB = 3000
_HANG_S = 120
_STATUS = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)/")


@dataclass
class Campaign:
    """One run of the fuzzer: what it has seen so far, and when it is over."""

    name: str
    target: Target
    minutes: float
    output: Path
    executions: int = 0
    accepted: int = 0
    findings: dict[str, str] = field(default_factory=dict)  # place -> the error, in one line

    def __call__(self, data: bytes) -> None:
        """Try one input. Ends the process when the time is up."""
        from scripts.fuzz_targets import try_input

        self.executions += 1
        start_s = time.process_time()
        try:
            self.accepted += try_input(self.target, data)
        except Exception as error:  # noqa: BLE001 - a finding may be anything
            self._keep(_place(error), f"{type(error).__name__}: {error}", data)
        now_s = time.process_time()
        if now_s - start_s > _SLOW_S:
            self._keep("slow", f"one input took {now_s - start_s:.1f} s", data)
        if now_s > 60 * self.minutes:
            self._end(now_s)

    def _keep(self, place: str, error: str, data: bytes) -> None:
        if place in self.findings:
            return
        self.findings[place] = " ".join(error.split())[:300]
        (self.output / f"finding-{len(self.findings)}.bin").write_bytes(data)
        print(f"finding at {place}: {self.findings[place]!r}", file=sys.stderr, flush=True)

    def _end(self, process_s: float) -> None:
        """Say what was done and leave; the fuzzer itself would only end at a crash."""
        cov, features, corpus = _coverage(self.output / "fuzzer.log")
        told = {
            "target": self.name,
            "parser": self.target.parser,
            "process_minutes": round(process_s / 60, 1),
            "executions": self.executions,
            "accepted": self.accepted,
            "edges": cov,
            "features": features,
            "corpus": corpus,
            "findings": self.findings,
        }
        print(json.dumps(told), flush=True)
        os._exit(1 if self.findings else 0)


def _place(error: BaseException) -> str:
    """Where an error was raised: its type and the last line of ours that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if any(f"/{package}/" in f.filename for package in _OURS)]
    last = (ours or frames)[-1]
    return f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno} ({last.name})"


def _coverage(log: Path) -> tuple[int | None, int | None, int | None]:
    """Edges, features and corpus size as the fuzzer told last."""
    told = _STATUS.findall(log.read_text(encoding="utf-8", errors="replace"))
    if not told:
        return None, None, None
    edges, features, corpus = map(int, told[-1])
    return edges, features, corpus


def _dictionary(words: Sequence[str]) -> str:
    """The target's words in libFuzzer's format."""
    return "".join(
        '"' + "".join(f"\\x{byte:02x}" for byte in word.encode("utf-8", "replace")) + '"\n'
        for word in words
        if word
    )


def run(name: str, *, minutes: float, output: Path) -> None:
    """Fuzz one target until its minutes are used up. Does not return."""
    import atheris

    with atheris.instrument_imports(include=list(_OURS)):
        from scripts.fuzz_targets import load

        target = load(name)
    corpus = output / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for i, seed in enumerate(target.seeds):
        (corpus / f"seed-{i:03d}").write_bytes(seed)
    words = output / "words.dict"
    words.write_text(_dictionary(target.words), encoding="utf-8")
    campaign = Campaign(name, target, minutes, output)
    log = os.open(output / "fuzzer.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 2)  # libFuzzer writes its status to the process's own stderr
    arguments = [
        f"-dict={words}", f"-max_len={_MAX_INPUT_BYTES}", f"-rss_limit_mb={_MEMORY_MB}",
        f"-timeout={_HANG_S}", f"-artifact_prefix={output}/", "-reload=0", "-seed=1", str(corpus),
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *arguments], campaign)
    atheris.Fuzz()


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    from scripts.fuzz_targets import TARGETS

    parser = argparse.ArgumentParser(prog="python scripts/fuzz.py", description=__doc__)
    parser.add_argument("name", choices=sorted(TARGETS), help="which parser")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the process's own time")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="corpus, log and findings")
    args = parser.parse_args(argv)
    output = args.output or Path(tempfile.mkdtemp(prefix=f"dflash-fuzz-{args.name}-"))
    output.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(ImportError):
        run(args.name, minutes=args.minutes, output=output)
    print("atheris is not installed: pip install atheris", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
