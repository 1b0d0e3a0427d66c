"""The last line of the page: what this is, in which version, on what, and within which limits."""

from __future__ import annotations

import importlib.metadata
import platform
from html import escape

from app.hosted import Limits
from dflash import __version__
from dflash.benchmark.provenance import git_hash

_SHOWN = ("torch", "transformers", "gradio", "plotly")


def versions() -> dict[str, str]:
    """Versions of this project, Python and what it stands on, without importing any of it."""
    found = {"dflash-playground": __version__, "python": platform.python_version()}
    for name in _SHOWN:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def footer(limits: Limits, machine: str) -> str:
    """The footer's markup."""
    commit = git_hash()
    known = versions()
    project = f"DFlash Playground {known.pop('dflash-playground')}"
    if commit:
        project += f" ({commit})"
    parts = [project, *(f"{name} {version}" for name, version in known.items()), machine]
    shown = " · ".join(escape(part) for part in parts)
    return f'<footer class="page-foot"><p>{shown}</p>{_limits(limits)}</footer>'


def _limits(limits: Limits) -> str:
    if not limits.is_hosted:
        return ""
    return (
        f"<p>This page is public: prompts of up to {limits.max_prompt_chars} characters, "
        f"{limits.max_new_tokens} new tokens, the listed pairs only, no servers. On your own "
        "machine there are no such limits.</p>"
    )
