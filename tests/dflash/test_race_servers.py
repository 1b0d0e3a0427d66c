"""The servers that a race starts: their command lines, and that they never outlive it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from dflash.errors import EngineError
from scripts import llamacpp_env
from scripts.servers import serving
from scripts.vllm_servers import Pair, command

PAIR = Pair("/models/a target", "/models/draft", 16, "float32", 512)


def vllm(*, with_draft: bool) -> list[str]:
    return command(Path("/env/python"), PAIR, port=81, with_draft=with_draft)


def llamacpp(*, with_draft: bool) -> list[str]:
    built = llamacpp_env.LlamaCpp(Path("/build/llama-server"), Path("/source"))
    pair = llamacpp_env.GgufPair(Path("/models/a target.gguf"), Path("/models/draft.gguf"))
    return llamacpp_env.command(
        built,
        pair,
        block_size=16,
        num_threads=2,
        num_slots=4,
        slot_tokens=512,
        port=81,
        with_draft=with_draft,
    )


def after(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_a_server_is_told_the_drafts_and_not_the_block():
    config = json.loads(after(vllm(with_draft=True), "--speculative-config"))
    assert config == {"method": "dflash", "model": "/models/draft", "num_speculative_tokens": 15}
    assert after(vllm(with_draft=True), "--per-request-spec-decode-metrics") == "summary"
    assert after(llamacpp(with_draft=True), "--spec-draft-n-max") == "15"
    assert after(llamacpp(with_draft=True), "--ctx-size") == "2048", "shared by the four clients"


@pytest.mark.parametrize("words", [vllm, llamacpp])
def test_the_baseline_has_the_same_words_and_no_draft_and_both_stay_on_this_machine(words):
    plain, drafting = words(with_draft=False), words(with_draft=True)
    assert drafting[: len(plain)] == plain
    assert not any("spec" in word for word in plain)
    assert after(plain, "--host") == "127.0.0.1"


@pytest.mark.parametrize(("words", "flag"), [(vllm, "--served-model-name"), (llamacpp, "--alias")])
def test_the_model_is_not_named_by_a_path_which_saved_runs_and_links_would_tell(words, flag):
    assert after(words(with_draft=True), flag) == "target"


@pytest.mark.skipif(os.name == "nt", reason="the stand-in for cmake is a shell script")
def test_a_build_that_fails_is_one_sentence_and_its_log_has_the_whole_version(tmp_path: Path):
    cmake = tmp_path / "bin" / "cmake"
    cmake.parent.mkdir()
    cmake.write_text("#!/bin/sh\necho no C++ compiler\nexit 1\n")
    cmake.chmod(0o755)
    (tmp_path / "ready.txt").write_text("\n".join(llamacpp_env.TOOLS))
    name = llamacpp_env.PACKAGE.replace("-", "_").replace("==", "-")
    (tmp_path / name / "vendor" / "llama.cpp").mkdir(parents=True)
    with pytest.raises(EngineError, match=r"cmake failed: no C\+\+ compiler"):
        llamacpp_env.llama_cpp(tmp_path)
    assert (tmp_path / f"build-{name}.log").is_file()


def test_a_server_that_does_not_come_up_is_one_sentence_and_nothing_is_left(tmp_path: Path):
    def broken(*, port: int, with_draft: bool) -> list[str]:
        return [sys.executable, "-c", "raise SystemExit('no such model')"]

    with (
        pytest.raises(EngineError, match="a llama.cpp server ended: no such model"),
        serving("llama.cpp", broken, logs=tmp_path, variables={}),
    ):
        pytest.fail("it cannot have started")


HEALTHY = """
import http.server, os, pathlib, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *a): pass
pathlib.Path(sys.argv[1], str(os.getpid())).touch()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Health).serve_forever()
"""


def healthy(folder: Path, *, port: int, with_draft: bool) -> list[str]:
    """A server that only says it is healthy, and notes its process."""
    return [sys.executable, "-c", HEALTHY, str(folder), str(port)]


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at Linux's process table")
@pytest.mark.parametrize("end", ["normally", "by an error", "killed"])
def test_both_servers_end_however_the_race_ends(tmp_path: Path, end: str):
    noted = tmp_path / "pids"
    noted.mkdir()

    def pids() -> list[int]:
        return [int(p.name) for p in noted.iterdir()]

    if end == "killed":
        code = (
            "import os\n"
            "from functools import partial\n"
            "from pathlib import Path\n"
            "from scripts.servers import serving\n"
            "from tests.dflash.test_race_servers import healthy\n"
            f"start = partial(healthy, Path({str(noted)!r}))\n"
            f"with serving('x', start, logs=Path({str(tmp_path)!r}), variables={{}}):\n"
            "    os.kill(os.getpid(), 9)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
        assert done.returncode == -9
    else:
        try:
            start = partial(healthy, noted)
            with serving("x", start, logs=tmp_path, variables={}) as servers:
                assert len(servers) == 2 and all(is_alive(pid) for pid in pids())
                if end == "by an error":
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
    assert len(pids()) == 2
    wait_until(lambda: not any(is_alive(pid) for pid in pids()))


def wait_until(holds) -> None:
    deadline = time.monotonic() + 15
    while not holds():
        assert time.monotonic() < deadline, "a server is still running"
        time.sleep(0.05)
