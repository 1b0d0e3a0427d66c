"""Models that fail to load: cut, damaged, mixed up. Each is one sentence that says which file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_pair import write_tiny_pair

from dflash.engines import open_engine
from dflash.errors import CheckpointError
from dflash.pairs import resolve_pair


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    write_tiny_pair(folder)
    return folder


@pytest.fixture
def pair(whole, tmp_path) -> Path:
    """A copy to damage: ``target`` and ``draft``."""
    return Path(shutil.copytree(whole, tmp_path / "pair"))


def cut_half_way(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])


def another_page(folder: Path) -> None:
    (folder / "model.safetensors").write_text("<html>502 Bad Gateway</html>")


def nothing(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def config_of_a_wider_model(folder: Path) -> None:
    _change(folder, intermediate_size=128)


def config_of_a_deeper_model(folder: Path) -> None:
    _change(folder, num_hidden_layers=7)


def _change(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize("engine", ["torch", "mlx"])
@pytest.mark.parametrize("half", ["target", "draft"])
@pytest.mark.parametrize(
    "harm",
    [cut_half_way, another_page, nothing, config_of_a_wider_model, config_of_a_deeper_model],
)
def test_a_damaged_model_is_one_sentence(
    pair: Path, engine: str, half: str, harm: Callable[[Path], None]
):
    if engine == "mlx":
        pytest.importorskip("mlx_lm", reason="MLX is not here")
    harm(pair / half)
    with pytest.raises(CheckpointError, match=half) as told:
        open_engine(engine, pair=resolve_pair(str(pair / "target"), str(pair / "draft")))
    assert told.value.hint and "\n" not in str(told.value)


def test_a_damaged_tokenizer_is_one_sentence(pair: Path):
    (pair / "target" / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match="the tokenizer of .*target' cannot be loaded"):
        open_engine("torch", pair=resolve_pair(str(pair / "target"), str(pair / "draft")))
