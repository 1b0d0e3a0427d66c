"""A served target as a visitor names it, and its race. Knows the fields, and that a block cannot be
asked for.

Keys are in no repr; they are handed to the engine and to nobody else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from app.race import BASELINE, DFLASH
from app.runs import Run
from app.server_card import server_card
from app.session import PairChoice, ServerChoice
from dflash.engines.remote import RemoteEngine, ServerState
from dflash.engines.server_client import root_url
from dflash.errors import DFlashError
from dflash.schema import Request

SERVED = "a server"
HERE = "this machine"
KINDS: tuple[tuple[str, str], ...] = (
    ("vLLM", "vllm"),
    ("SGLang", "sglang"),
    ("llama.cpp", "llamacpp"),
)
_DRAFTING = 2  # any block above 1 says that drafts are wanted; how many is the server's setting


@dataclass(frozen=True, slots=True)
class ServerForm:
    """The part of the form that names servers, as the page sends it, in input order."""

    engine: str  # SERVED or HERE
    kind: str
    url: str
    baseline_url: str
    model: str
    api_key: str = field(repr=False)
    baseline_api_key: str = field(repr=False)

    @property
    def is_chosen(self) -> bool:
        """Whether the race is for servers at all."""
        return self.engine == SERVED

    def choice(self) -> PairChoice:
        """The servers that were named. Raises ``DFlashError`` naming the field that is off."""
        if self.kind not in {kind for _, kind in KINDS}:
            raise DFlashError("this is no kind of server.", "Choose vLLM, SGLang or llama.cpp.")
        if not (self.url or "").strip():
            raise DFlashError(
                "no DFlash server was given.", "Type its URL, such as http://127.0.0.1:8001."
            )
        url = root_url(self.url)
        baseline_url = root_url(self.baseline_url) if (self.baseline_url or "").strip() else ""
        server = ServerChoice(
            kind=self.kind,
            url=url,
            baseline_url="" if baseline_url == url else baseline_url,
            model=(self.model or "").strip(),
            api_key=(self.api_key or "").strip(),
            baseline_api_key=(self.baseline_api_key or "").strip(),
        )
        return PairChoice(SERVED, server=server)


def served_request(request: Request) -> Request:
    """The request with drafting on; its block says nothing else."""
    return replace(request, block_size=_DRAFTING)


@dataclass(frozen=True, slots=True)
class Served:
    """Opened servers and what they say of themselves, for one race."""

    engine: RemoteEngine
    states: tuple[ServerState, ...]

    @classmethod
    def ask(cls, engine: RemoteEngine) -> Served:
        """Ask both servers whether they speculate. Never raises."""
        return cls(engine, engine.server_states())

    def named(self, choice: PairChoice) -> PairChoice:
        """The choice with the model's name in it, as the server told it."""
        assert choice.server is not None, "a server was opened for it"
        return replace(choice, server=replace(choice.server, model=self.engine.info.target_id))

    def machine(self, here: str) -> str:
        """Where the times of this race are taken."""
        return f"{self.engine.info.version}, timed from {here}"

    def settled(self, run: Run) -> Run:
        """The run with what is wrong with a server said in its lane. Drafts that were reported
        outweigh what the server said of itself before."""
        failures = dict(run.failures)
        for state in self.states:
            lane = DFLASH if state.lane == "dflash" else BASELINE
            drafted = lane == DFLASH and run.comparison.dflash.spec is not None
            if state.severity == "bad" and lane not in failures and not drafted:
                failures[lane] = state.sentence
        return replace(run, failures=failures)

    def card(self, run: Run | None = None) -> str:
        """The top line before a race, or after it, when it is known what was reported."""
        silent = run and run.dflash.finished and run.comparison.dflash.spec is None
        return server_card(self.engine, self.states, note=self.engine.unreported if silent else "")
