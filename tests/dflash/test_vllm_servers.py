"""The servers that the vLLM race starts: their command line, and that they never outlive it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dflash.errors import EngineError
from scripts.vllm_servers import Pair, arguments, serving

PAIR = Pair("/models/a target", "/models/draft", 16, "float32", 512)


def test_vllm_is_told_the_drafts_and_not_the_block():
    words = arguments(PAIR, port=81, with_draft=True)
    config = json.loads(words[words.index("--speculative-config") + 1])
    assert config == {"method": "dflash", "model": "/models/draft", "num_speculative_tokens": 15}
    assert words[words.index("--per-request-spec-decode-metrics") + 1] == "summary"
    assert words[words.index("--host") + 1] == "127.0.0.1"


def test_the_baseline_has_the_same_words_and_no_draft():
    plain = arguments(PAIR, port=81, with_draft=False)
    assert arguments(PAIR, port=81, with_draft=True)[: len(plain)] == plain
    assert not any("spec" in word for word in plain)


def test_a_server_that_does_not_come_up_is_one_sentence_and_nothing_is_left(tmp_path: Path):
    with (
        pytest.raises(EngineError, match="a vLLM server ended"),
        serving(Path(sys.executable), PAIR, logs=tmp_path, variables={}),
    ):
        pytest.fail("vLLM is not in this environment")


HEALTHY = """
import http.server, os, pathlib, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *a): pass
pathlib.Path(os.environ["PIDS"], str(os.getpid())).touch()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Health).serve_forever()
"""


@pytest.fixture
def fake_vllm(tmp_path: Path) -> dict[str, str]:
    """A module under vLLM's name that only says it is healthy, and notes its process."""
    package = tmp_path / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    (package / "api_server.py").write_text(HEALTHY)
    (tmp_path / "pids").mkdir()
    return {"PYTHONPATH": str(tmp_path), "PIDS": str(tmp_path / "pids")}


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at Linux's process table")
@pytest.mark.parametrize("end", ["normally", "by an error", "killed"])
def test_both_servers_end_however_the_race_ends(tmp_path, fake_vllm, end: str):
    def pids() -> list[int]:
        return [int(p.name) for p in (tmp_path / "pids").iterdir()]

    python = Path(sys.executable)
    if end == "killed":
        code = (
            "import os, pathlib, sys\n"
            "from scripts.vllm_servers import Pair, serving\n"
            "pair = Pair('t', 'd', 16, 'float32', 512)\n"
            f"with serving(pathlib.Path(sys.executable), pair, logs=pathlib.Path({str(tmp_path)!r}),"
            f" variables={fake_vllm!r}):\n"
            "    os.kill(os.getpid(), 9)\n"
        )
        done = subprocess.run([python, "-c", code], cwd=Path(__file__).parents[2], timeout=60)
        assert done.returncode == -9
    else:
        try:
            with serving(python, PAIR, logs=tmp_path, variables=fake_vllm) as servers:
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
