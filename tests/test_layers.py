"""Imports run downhill: engine room, then advisor, then app. And importing stays cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAY_IMPORT = {
    "dflash": ("dflash",),
    "advisor": (
        "advisor",
        "dflash.schema",
        "dflash.metrics",
        "dflash.errors",
        "dflash.taps",
        "dflash.presets",
        "dflash.strict_yaml",
        "dflash.measurements",
        "dflash.device",
    ),
    "app": ("app", "advisor", "dflash"),
}
# Heavy libraries and the only places that may name them.
HEAVY = {
    "gradio": ("app/",),
    "plotly": ("app/charts",),
    "torch": ("dflash/",),
    "transformers": ("dflash/",),
    "mlx": ("dflash/model_mlx", "dflash/generate_mlx", "dflash/mlx_", "dflash/engines/mlx_engine"),
    "mlx_lm": (
        "dflash/model_mlx",
        "dflash/generate_mlx",
        "dflash/mlx_",
        "dflash/engines/mlx_engine",
    ),
}


def imported_names(path: Path) -> set[str]:
    """Every module a file imports, at any depth."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def belongs(name: str, allowed: tuple[str, ...]) -> bool:
    return any(name == a or name.startswith(a + ".") for a in allowed)


SOURCES = [p for package in MAY_IMPORT for p in sorted((ROOT / package).rglob("*.py"))]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_downhill(path: Path):
    package = path.relative_to(ROOT).parts[0]
    ours = {n for n in imported_names(path) if n.split(".")[0] in MAY_IMPORT}
    wrong = {
        n for n in ours if not belongs(n, MAY_IMPORT[package]) and n not in ("dflash", "advisor")
    }
    assert not wrong, f"{package} may not import {sorted(wrong)}"
    place = path.relative_to(ROOT).as_posix()
    for library, homes in HEAVY.items():
        if any(n.split(".")[0] == library for n in imported_names(path)):
            assert place.startswith(homes), f"{library} is imported outside {homes}"


def test_importing_the_packages_loads_nothing_heavy():
    code = (
        "import sys, dflash, advisor, dflash.schema, dflash.metrics, dflash.engines\n"
        "heavy = {'torch', 'gradio', 'mlx', 'transformers'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
