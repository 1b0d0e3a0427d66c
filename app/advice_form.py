"""What the Advisor tab and its endpoints were given, as the advisor's own request.

Knows both shapes and how pasted text becomes a file for one question. Knows no rule and no page.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from advisor import cli_recommend
from advisor.answer import recommend_for
from advisor.cli_check import parse_settings
from advisor.gather import Request
from advisor.rules import Settings
from advisor.schema import ENGINES, TASKS, Mode, Policy, Recommendation
from app.own_folders import PASTED_PREFIX, without_own_folders
from dflash.errors import DFlashError
from dflash.whole_file import cannot_write

_MAX_PASTED_BYTES = 2_000_000


@dataclass(frozen=True, slots=True)
class AdviceForm:
    """The form as the page sends it, in input order; everything may be left empty."""

    params: str = ""
    prompt_tokens: str | float | None = None
    target: str | None = None
    draft: str | None = None
    pasted_draft: str = ""
    tokenizer: str = ""
    hardware: str | None = None
    task: str | None = None
    concurrency: float | None = None
    temperature: float | None = None
    tau: str = ""
    mode: str | None = None
    policy: str = "evidence"
    engine: str | None = None

    @contextlib.contextmanager
    def request(self) -> Iterator[Request]:
        """The request; pasted configs live in files that are gone afterwards.

        Raises ``DFlashError`` naming the field that is off.
        """
        tau, tau_block_size = _typed(cli_recommend.tau, self.tau, (None, None))
        plain = Request(
            params=_typed(cli_recommend.params, self.params, None),
            prompt_tokens=whole("prompt tokens", self.prompt_tokens, 0) or None,  # 0: not given
            target=_text(self.target),
            draft=_text(self.draft),
            tokenizer=_text(self.tokenizer),
            hardware=_text(self.hardware),
            task=one_of("task", self.task, TASKS),
            concurrency=whole("concurrency", self.concurrency, 1) or 1,
            temperature=_typed(cli_recommend.temperature, _shown(self.temperature), 0.0),
            mode=one_of("mode", self.mode, get_args(Mode)),
            policy=one_of("policy", self.policy, get_args(Policy)) or "evidence",
            engine=one_of("engine", self.engine, ENGINES),
            tau=tau,
            tau_block_size=tau_block_size,
        )
        with named_files(draft=self.pasted_draft) as paths:
            yield replace(plain, draft=paths["draft"] or plain.draft)

    def with_policy(self, policy: Policy) -> AdviceForm:
        """The same form under another policy."""
        return replace(self, policy=policy)


def ask(form: AdviceForm) -> Recommendation:
    """The advisor's answer to a form, fit to be shown to strangers. Raises ``DFlashError``."""
    with form.request() as request:
        return without_own_folders(recommend_for(request))


@contextlib.contextmanager
def named_files(**pasted: str | None) -> Iterator[dict[str, str | None]]:
    """Put each pasted JSON text into a file of its own for the length of one question.

    Raises ``DFlashError`` for a text that is too long, or when there is no room for it.
    """
    bodies = {name: (text or "").strip() for name, text in pasted.items()}
    for name, body in bodies.items():
        if len(body.encode("utf-8", "replace")) > _MAX_PASTED_BYTES:
            raise DFlashError(f"the pasted {name} is over 2 MB.", "Paste its config.json only.")
    with contextlib.ExitStack() as stack:
        paths: dict[str, str | None] = dict.fromkeys(bodies)
        given = {name: body for name, body in bodies.items() if body}
        try:
            home = stack.enter_context(_folder()) if given else ""
            for name, body in given.items():
                path = Path(home) / f"pasted-{name}.json"
                path.write_text(body, encoding="utf-8", errors="replace")
                paths[name] = str(path)
        except OSError as error:
            raise cannot_write(Path(tempfile.gettempdir()) / "the pasted text", error) from error
        yield paths


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=PASTED_PREFIX)


def is_pasted(text: str | None) -> bool:
    """Whether a draft, target or tokenizer was given as JSON text rather than by name."""
    return (text or "").lstrip().startswith("{")


def settings_from(values: dict[str, Any] | None) -> Settings | None:
    """``--set`` for endpoints: a JSON object of the same keys. Raises ``DFlashError``."""
    if not values:
        return None
    return parse_settings([f"{key}={_setting(value)}" for key, value in values.items()])


def _setting(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(str(v) for v in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _typed(read: Any, text: str | None, empty: Any) -> Any:
    """Read a field with the command line's own reader, so both refuse in the same words."""
    if not (text or "").strip():
        return empty
    try:
        return read(text)
    except argparse.ArgumentTypeError as error:
        raise DFlashError(f"{error}.") from error


def whole(name: str, value: str | float | None, least: int) -> int | None:
    """A count from a field or an endpoint; empty is ``None``. Raises ``DFlashError``."""
    if value is None or not str(value).strip():
        return None
    most = cli_recommend.MAX_TOKENS
    try:
        number = float(value)
    except (ValueError, OverflowError):  # no number at all, or one of hundreds of digits
        number = math.nan
    if not (number.is_integer() and least <= number <= most):
        limits = f"a whole number from {least} to {most}"
        raise DFlashError(
            f"{name} must be {limits}, got {value!r:.60}.", "Leave it empty if it is not known."
        )
    return int(number)


def one_of(name: str, value: str | None, allowed: tuple[Any, ...]) -> Any:
    """The value if it is allowed, ``None`` if empty. Raises ``DFlashError`` naming the choices."""
    if not value:
        return None
    if value not in allowed:
        raise DFlashError(f"{name} {value!r} is unknown.", f"Use one of {', '.join(allowed)}.")
    return value


def _text(value: str | None) -> str | None:
    return (value or "").strip() or None


def _shown(value: float | None) -> str:
    return "" if value is None else str(value)
