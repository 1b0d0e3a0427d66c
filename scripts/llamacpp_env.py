"""llama.cpp from source: fetched, built, and a pair converted to its files. The one place that
knows its version.

The source distribution of llama-cpp-python carries all of llama.cpp, its server and its converter.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from dflash.errors import EngineError
from scripts.peer import download_source, make_environment

PACKAGE = "llama-cpp-python==0.3.36"
TOOLS = ("cmake==4.4.5", "ninja==1.13.2")
CONVERTER = Path(__file__).parent / "workers" / "gguf_convert.py"
# Only the server, in one file that needs no library and fetches nothing while it is built.
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "OFF",
    "GGML_NATIVE": "ON",
    "GGML_CCACHE": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
}


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """A built llama-server and the source that its converter is in."""

    server: Path
    source: Path


@dataclass(frozen=True, slots=True)
class GgufPair:
    """A target and its draft as llama.cpp reads them."""

    target: Path
    draft: Path


def llama_cpp(folder: Path) -> LlamaCpp:
    """Fetch and build llama.cpp in ``folder`` on first use. Raises ``EngineError``."""
    python = make_environment(folder, packages=TOOLS)
    name = PACKAGE.replace("-", "_").replace("==", "-")
    source = folder / name / "vendor" / "llama.cpp"
    build = folder / f"build-{name}"
    server = build / "bin" / ("llama-server.exe" if os.name == "nt" else "llama-server")
    if not source.is_dir():
        with tarfile.open(download_source(python, PACKAGE, folder)) as archive:
            archive.extractall(folder, filter="data")
    if not server.is_file():
        _build(python.parent, source, build)
    return LlamaCpp(server, source)


def _build(tools: Path, source: Path, build: Path) -> None:
    print("Building llama-server, which takes minutes.", file=sys.stderr)
    options = [f"-D{name}={value}" for name, value in OPTIONS.items()]
    ninja = [f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}", "-G", "Ninja"]
    cmake, log = str(tools / "cmake"), build.with_name(f"{build.name}.log")
    _run([cmake, "-S", str(source), "-B", str(build), *ninja, *options], log)
    _run([cmake, "--build", str(build), "--target", "llama-server"], log)


def converted(built: LlamaCpp, target: Path, draft: Path, folder: Path) -> GgufPair:
    """Convert a pair without rounding its weights, into ``folder``. Raises ``EngineError``."""
    folder.mkdir(parents=True, exist_ok=True)
    pair = GgufPair(folder / "target.gguf", folder / "draft.gguf")
    words = [sys.executable, str(CONVERTER), str(built.source), "--outtype", "f32"]
    log = folder / "convert.log"
    _run([*words, str(target), "--outfile", str(pair.target)], log)
    words += ["--target-model-dir", str(target)]
    _run([*words, str(draft), "--outfile", str(pair.draft)], log)
    return pair


def command(
    built: LlamaCpp,
    pair: GgufPair,
    *,
    block_size: int,
    num_threads: int,
    num_slots: int,
    slot_tokens: int,
    port: int,
    with_draft: bool,
) -> list[str]:
    """The server's command line. ``slot_tokens``: the longest prompt and answer of one client."""
    words = [str(built.server), "-m", str(pair.target), "--host", "127.0.0.1", "--port", str(port)]
    # A server names its model by the file's path, which would be in every saved run and link.
    words += [
        "--alias",
        "target",
        "--metrics",
        "--parallel",
        str(num_slots),
        "--ctx-size",
        str(num_slots * slot_tokens),
    ]
    # Keys and values unrounded too, so that nothing but the order of sums can differ from ours.
    words += ["--cache-type-k", "f32", "--cache-type-v", "f32", "--threads", str(num_threads)]
    if with_draft:
        words += ["--spec-type", "draft-dflash", "--spec-draft-model", str(pair.draft)]
        words += ["--spec-draft-n-max", str(block_size - 1)]  # drafts, without the anchor
        words += ["--spec-draft-type-k", "f32", "--spec-draft-type-v", "f32"]
    return words


def _run(words: list[str], log: Path) -> None:
    """Run a step to its end. Raises ``EngineError`` with its last line."""
    with log.open("a", encoding="utf-8") as log_file:
        done = subprocess.run(words, stdout=log_file, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        reason = lines[-1] if lines else "no reason given"
        raise EngineError(f"{Path(words[0]).name} failed: {reason}", f"Its log is {log}.")
