"""What a Space and its git accept, as far as it can be checked without them.

Each rule is one function from the upload set to the problems it found, in sentences. Sources:
https://huggingface.co/docs/hub/spaces-config-reference, /spaces-zerogpu and
/repositories-getting-started; binary files that are refused at any size:
https://github.com/qdonnars/ohmywind/issues/289
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import PurePosixPath
from typing import Any, TypeAlias

import yaml
from huggingface_hub import SpaceHardware
from packaging.requirements import Requirement

from app.deploy.upload_set import UploadFile

Files: TypeAlias = Mapping[str, UploadFile]
Rule: TypeAlias = Callable[[Files], Iterator[str]]

MAX_PLAIN_BYTES = 10_000_000
MAX_TOTAL_BYTES = 200_000_000
_COLORS = ("red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray")
_ZEROGPU_PYTHONS = ("3.10", "3.12")
_ZEROGPU_TORCHES = ("2.10.0", "2.11.0")  # of those ZeroGPU has, the ones this project supports
_KEYS = {
    "title", "emoji", "colorFrom", "colorTo", "sdk", "sdk_version", "app_file", "python_version",
    "suggested_hardware", "short_description", "models", "datasets", "tags", "pinned", "fullWidth",
    "header", "license", "hf_oauth", "disable_embedding", "startup_duration_timeout",
    "preload_from_hub", "custom_headers", "base_path",
}  # fmt: skip
_ABSOLUTE = re.compile(r"(?<![\w.~:/<-])(?:/(?:home|root|work|Users|mnt)/\w|[A-Z]:\\Users\\)")
_SECRETS = re.compile(
    r"\bhf_[A-Za-z0-9]{30,}|\bsk-[A-Za-z0-9_-]{24,}|\bgh[pousr]_[A-Za-z0-9]{30,}|\bAKIA[0-9A-Z]{16}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY|://[^/\s:@{}]+:[^/\s:@{}]+@"
)
_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


def problems(files: tuple[UploadFile, ...]) -> tuple[str, ...]:
    """Everything that keeps this set from being uploaded; empty when nothing does."""
    by_name = {file.name: file for file in files}
    return tuple(problem for rule in RULES for problem in rule(by_name))


def files_are_small_enough(files: Files) -> Iterator[str]:
    """Over 10 MB only through the large-file path; the whole in reasonable size."""
    for file in files.values():
        if file.num_bytes > MAX_PLAIN_BYTES and not file.is_large:
            yield f"{file.name} has {file.num_bytes / 1e6:.1f} MB and is no large-file type."
    total = sum(file.num_bytes for file in files.values())
    if total > MAX_TOTAL_BYTES:
        yield f"the set has {total / 1e6:.0f} MB, more than {MAX_TOTAL_BYTES / 1e6:.0f} MB."


def binary_files_are_large_files(files: Files) -> Iterator[str]:
    """A binary file outside the large-file path is refused at any size."""
    for file in files.values():
        if not file.is_large and _text(file) is None:
            yield f"{file.name} is binary and matches no pattern of .gitattributes."


def everything_is_a_plain_file(files: Files) -> Iterator[str]:
    """No links out of the tree."""
    for file in files.values():
        if file.source.is_symlink():
            yield f"{file.name} is a link; a Space needs the file itself."


def front_matter_is_valid(files: Files) -> Iterator[str]:
    """Every value of the README's first lines, and no key that a Space does not know."""
    matter = front_matter(files)
    unknown = sorted(matter.keys() - _KEYS)
    if unknown:
        yield f"README.md: a Space does not know {', '.join(unknown)}."
    if matter.get("sdk") != "gradio":
        yield f"README.md: sdk is {matter.get('sdk')!r}, not 'gradio'."
    for key in ("colorFrom", "colorTo"):
        if matter.get(key) not in _COLORS:
            yield f"README.md: {key} is {matter.get(key)!r}; allowed are {', '.join(_COLORS)}."
    description = str(matter.get("short_description", ""))
    if not 0 < len(description) <= 60:
        yield f"README.md: short_description has {len(description)} characters; 1 to 60 fit."
    hardware = matter.get("suggested_hardware")
    if hardware not in _suggestable():
        yield f"README.md: suggested_hardware {hardware!r} is not one that can be suggested."
    if str(matter.get("python_version")) not in _ZEROGPU_PYTHONS:
        yield f"README.md: python_version must be a text, one of {', '.join(_ZEROGPU_PYTHONS)}."
    if not isinstance(matter.get("python_version"), str):
        yield "README.md: python_version must be quoted, or 3.10 becomes 3.1."
    models = matter.get("models", [])
    if not all(isinstance(m, str) and m.count("/") == 1 for m in models):
        yield "README.md: models must be ids like owner/name."


def gradio_is_the_tested_one(files: Files) -> Iterator[str]:
    """sdk_version is what the tests ran with and what requirements.txt admits."""
    wanted = str(front_matter(files).get("sdk_version"))
    tested = metadata.version("gradio")
    if wanted != tested:
        yield f"README.md: sdk_version is {wanted}; the tests ran with gradio {tested}."
    requirement = requirements(files).get("gradio")
    if requirement is None or not requirement.specifier.contains(wanted):
        yield f"requirements.txt does not admit gradio {wanted}."


def torch_suits_zerogpu(files: Files) -> Iterator[str]:
    """The torch range admits what ZeroGPU offers."""
    requirement = requirements(files).get("torch")
    for version in _ZEROGPU_TORCHES:
        if requirement is None or not requirement.specifier.contains(version):
            yield f"requirements.txt does not admit torch {version}, which ZeroGPU has."


def the_app_is_there(files: Files) -> Iterator[str]:
    """app_file exists and has a module-level ``demo``."""
    name = str(front_matter(files).get("app_file"))
    file = files.get(name)
    text = _text(file) if file else None
    if text is None:
        yield f"README.md: app_file {name} is not in the set."
        return
    targets = [
        target
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign)
        for target in node.targets
    ]
    if not any(isinstance(target, ast.Name) and target.id == "demo" for target in targets):
        yield f"{name} has no module-level 'demo'."


def the_served_models_are_there(files: Files) -> Iterator[str]:
    """The default pair's weights are part of the set: a Space starts with no download."""
    for part in ("target", "draft"):
        folder = f"presets/models/demo/{part}"
        if f"{folder}/config.json" not in files:
            yield f"{folder}/config.json is missing: train the demo pair first."
        if not any(n.startswith(f"{folder}/") and n.endswith(".safetensors") for n in files):
            yield f"{folder} has no weights."


def nothing_points_at_this_machine(files: Files) -> Iterator[str]:
    """No absolute paths of whoever uploads."""
    yield from _found(files, _ABSOLUTE, "an absolute path")


def nothing_is_secret(files: Files) -> Iterator[str]:
    """No tokens, keys or passwords in URLs."""
    yield from _found(files, _SECRETS, "something that looks like a secret")


def readme_links_lead_somewhere(files: Files) -> Iterator[str]:
    """Every relative link of the README is in the set."""
    for target in _LINK.findall(_text(files["README.md"]) or ""):
        name = str(PurePosixPath(target))
        if name not in files and not any(n.startswith(f"{name}/") for n in files):
            yield f"README.md links to {target}, which is not in the set."


RULES: tuple[Rule, ...] = (
    files_are_small_enough,
    binary_files_are_large_files,
    everything_is_a_plain_file,
    front_matter_is_valid,
    gradio_is_the_tested_one,
    torch_suits_zerogpu,
    the_app_is_there,
    the_served_models_are_there,
    nothing_points_at_this_machine,
    nothing_is_secret,
    readme_links_lead_somewhere,
)


def front_matter(files: Files) -> dict[str, Any]:
    """The README's YAML head; empty when there is none."""
    text = (_text(files["README.md"]) or "") if "README.md" in files else ""
    parts = text.split("---\n", 2)
    found = yaml.safe_load(parts[1]) if len(parts) == 3 and not parts[0] else None
    return found if isinstance(found, dict) else {}


def requirements(files: Files) -> dict[str, Requirement]:
    """requirements.txt by package name; of a package named twice the first."""
    text = (_text(files["requirements.txt"]) or "") if "requirements.txt" in files else ""
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    found: dict[str, Requirement] = {}
    for line in lines:
        if line and not line.startswith("-"):
            requirement = Requirement(line)
            found.setdefault(requirement.name, requirement)
    return found


def _suggestable() -> set[str]:
    """ZeroGPU is chosen in a Space's settings; it cannot be suggested."""
    return {hardware.value for hardware in SpaceHardware if "zero" not in hardware.value}


def _text(file: UploadFile) -> str | None:
    """The file's text; ``None`` for a binary one."""
    data = file.source.read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _found(files: Files, pattern: re.Pattern[str], what: str) -> Iterator[str]:
    for file in files.values():
        text = None if file.is_large else _text(file)
        for number, line in enumerate((text or "").split("\n"), 1):
            if pattern.search(line):
                yield f"{file.name}:{number} has {what}."
