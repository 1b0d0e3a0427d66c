"""What a visitor may ask for: everything on one's own machine, less on a public page.

Knows environment variables and the catalogue's names. Knows no page, no engine and no file: a name
is allowed because the catalogue has it, never because something lies at that path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from advisor.known import draft_names, known_pairs, target_names
from app.advice_form import AdviceForm, is_pasted
from app.form import OWN_PAIR
from app.session import PairChoice, ServerChoice
from dflash.engines.url_guard import UrlGuard
from dflash.errors import DFlashError
from dflash.presets import load_pair, pair_ids, preset_ids
from dflash.schema import Request

_HINT = "This page is public; on your own machine the playground has no such limit."
_MAX_PROMPT_CHARS = 8_000
_MAX_NEW_TOKENS = 512
_MAX_SWEEP_RUNS = 60
_MAX_WAITING = 40


@dataclass(frozen=True, slots=True)
class Limits:
    """What this page allows. The defaults are one's own machine: no limit at all."""

    is_hosted: bool = False
    pair_ids: frozenset[str] | None = None  # of the catalogue; ``None`` is every pair
    max_prompt_chars: int | None = None
    max_new_tokens: int | None = None
    max_sweep_runs: int | None = None
    max_waiting: int = 64  # events in the queue, over all visitors
    measures: bool = True  # a GPU lent for seconds is nothing to measure with
    servers: frozenset[str] = frozenset()  # host or host:port that a public page may connect to

    @property
    def offers_own_models(self) -> bool:
        """Whether a visitor may name a folder or a hub id."""
        return not self.is_hosted

    @property
    def offers_servers(self) -> bool:
        """Whether a visitor may name a model server."""
        return not self.is_hosted or bool(self.servers)

    @property
    def guard(self) -> UrlGuard | None:
        """What looks at every address a server's name leads to; ``None`` where all are allowed."""
        return UrlGuard(self.servers) if self.is_hosted else None

    def check_choice(self, choice: PairChoice) -> None:
        """Refuse models that this page does not serve. Raises ``DFlashError``."""
        if not self.is_hosted:
            return
        if choice.server:
            self._check_server(choice.server)
            return
        if choice.pair_id == OWN_PAIR or choice.target or choice.draft:
            raise DFlashError("folders and hub ids cannot be named here.", _HINT)
        self.check_pair(choice.pair_id)

    def _check_server(self, server: ServerChoice) -> None:
        if not self.offers_servers or self.guard is None:
            raise DFlashError("model servers cannot be named here.", _HINT)
        for url in filter(None, (server.url, server.baseline_url)):
            self.guard.check(url)

    def check_pair(self, pair_id: str) -> None:
        """Refuse a pair that is not among those served here. Raises ``DFlashError``."""
        if self.pair_ids is not None and pair_id not in self.pair_ids:
            raise DFlashError(
                f"the pair {_short(pair_id)} does not run here.",
                f"Choose one of {', '.join(sorted(self.pair_ids))}. {_HINT}",
            )

    def check_request(self, request: Request) -> None:
        """Refuse what takes too long here. Raises ``DFlashError`` with the number and the limit."""
        chars = sum(len(message.content) for message in request.messages)
        if self.max_prompt_chars is not None and chars > self.max_prompt_chars:
            raise DFlashError(
                f"the prompt has {chars} characters; {self.max_prompt_chars} are allowed here.",
                f"Shorten it. {_HINT}",
            )
        self.check_new_tokens(request.sampling.max_new_tokens)

    def check_new_tokens(self, num_tokens: int) -> None:
        """Refuse more new tokens than are allowed here. Raises ``DFlashError``."""
        if self.max_new_tokens is not None and num_tokens > self.max_new_tokens:
            raise DFlashError(
                f"{num_tokens} new tokens are asked for; {self.max_new_tokens} are allowed here.",
                f"Lower max tokens. {_HINT}",
            )

    def check_model_names(self, **named: str | None) -> None:
        """Refuse draft, target or tokenizer fields that are neither known ids nor pasted JSON.

        Raises ``DFlashError`` naming the field.
        """
        if not self.is_hosted:
            return
        for field, text in named.items():
            name = (text or "").strip()
            if not name or is_pasted(name) or name.lower() in _known_names():
                continue
            raise DFlashError(
                f"the {field} {_short(name)} is no name of the catalogue.",
                f"Choose one of the list or paste the text of its config.json. {_HINT}",
            )

    def check_advice(self, form: AdviceForm) -> AdviceForm:
        """Give back the form if every model in it may be named here. Raises ``DFlashError``."""
        self.check_model_names(draft=form.draft, target=form.target, tokenizer=form.tokenizer)
        return form

    def check_measuring(self, pair_id: str) -> None:
        """Refuse sweeps and calibration where they cannot be done. Raises ``DFlashError``."""
        if not self.measures:
            raise DFlashError(
                "the GPU here is lent for single runs, too short to measure with.",
                "Measure on your own machine with python -m dflash.benchmark.",
            )
        self.check_pair(pair_id)

    def check_prompt_sets(self, names: Iterable[str]) -> None:
        """Refuse data sets that are not ours: a name could be a file. Raises ``DFlashError``."""
        for name in names:
            if name not in preset_ids("prompts"):
                raise DFlashError(f"there is no prompt set {_short(name)} here.")


HOME = Limits()


def limits_from(environ: Mapping[str, str]) -> Limits:
    """The limits of this page: a Space is public, and so is a page told ``DFLASH_HOSTED=1``.

    ``DFLASH_HOSTED=0`` lifts them on a private Space. ``DFLASH_HOSTED_PAIRS`` names the pairs that
    are served, by commas; without it those that come with the project. ``DFLASH_HOSTED_SERVERS``
    names the model servers that visitors may use, as host or host:port by commas; without it none.
    Raises ``DFlashError`` for a pair that the catalogue does not have and for a server's URL.
    """
    said = environ.get("DFLASH_HOSTED", "").strip().lower()
    if said in ("0", "false", "no") or not (said or environ.get("SPACE_ID")):
        return HOME
    return Limits(
        is_hosted=True,
        pair_ids=_served(environ.get("DFLASH_HOSTED_PAIRS", "")),
        max_prompt_chars=_MAX_PROMPT_CHARS,
        max_new_tokens=_MAX_NEW_TOKENS,
        max_sweep_runs=_MAX_SWEEP_RUNS,
        max_waiting=_MAX_WAITING,
        measures=not environ.get("SPACES_ZERO_GPU"),
        servers=_servers(environ.get("DFLASH_HOSTED_SERVERS", "")),
    )


def _servers(listed: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in listed.split(",") if name.strip())
    wrong = sorted(name for name in names if "/" in name)
    if wrong:
        raise DFlashError(
            f"DFLASH_HOSTED_SERVERS names {wrong[0]!r}.", "Give host or host:port, no http://."
        )
    return names


def _served(listed: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in listed.split(",") if name.strip())
    if not names:
        return frozenset(i for i in pair_ids() if load_pair(i).status == "embedded")
    unknown = names - frozenset(pair_ids())
    if unknown:
        raise DFlashError(
            f"DFLASH_HOSTED_PAIRS names {', '.join(sorted(unknown))}, not in presets/pairs/.",
            "Use ids of docs/catalogue.md.",
        )
    return names


@cache
def _known_names() -> frozenset[str]:
    """Every name a draft or target of the catalogue goes by, in lower case."""
    pairs = known_pairs()
    names = {pair.id for pair in pairs}
    for pair in pairs:
        names.update(name.lower() for name in (*draft_names(pair), *target_names(pair.target)))
    return frozenset(names)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
