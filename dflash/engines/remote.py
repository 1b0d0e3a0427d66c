"""One engine for every OpenAI-compatible server; what differs between them is in an Adapter.

Knows the lanes' two servers and whose word counts for acceptance. Never infers acceptance from
chunks.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

from dflash.engines.answer import Answer
from dflash.engines.counters import Counters, is_only_request, read_counters, spec_between
from dflash.engines.dialect import Adapter, json_object
from dflash.engines.served_parting import ServedDivergence, find_parting, with_logprobs
from dflash.engines.server_client import (
    READ_S,
    MakeTransport,
    ServerClient,
    ShouldStop,
    make_plain_transport,
    never,
    same_origin,
)
from dflash.engines.url_guard import UrlGuard
from dflash.errors import EngineError
from dflash.schema import EngineInfo, Event, Message, Request, SpecStats

Lane = Literal["dflash", "baseline"]
Severity = Literal["good", "unknown", "bad"]

_CHAT_PATH = "/v1/chat/completions"
_METRICS_PATH = "/metrics"
_COUNTER_WAIT_S = 0.05  # a server may book a request a moment after its last byte
_COUNTER_READINGS = 8
_MAX_NAME = 500


@dataclass(frozen=True, slots=True)
class ServerState:
    """What one server says about itself, for a badge. ``bad`` is the red one."""

    lane: Lane
    severity: Severity
    sentence: str


class RemoteEngine:
    """A served target. ``base_url`` speculates; ``baseline_url`` is the same target without.

    ``model`` defaults to the first one each server lists. Two lanes of one engine never run at
    the same time unless ``one_at_a_time`` is false: the servers may share a device. ``ask_again``
    lets a greedy request be repeated where a server reports acceptance only to unstreamed ones.
    ``needs_both`` false lets one server be gone: its lane says so when it is asked. Without
    ``baseline_url`` the baseline is the same server where drafting can be turned off per request.
    ``guard`` is for hosted pages; a key is sent to the origin that it was given for only.
    """

    trained_block_size: int | None = None  # the server's own setting rules

    def __init__(
        self,
        adapter: Adapter,
        *,
        base_url: str,
        baseline_url: str | None = None,
        model: str | None = None,
        api_key: str | None = None,
        baseline_api_key: str | None = None,
        one_at_a_time: bool = True,
        ask_again: bool = True,
        needs_both: bool = True,
        read_timeout_s: float = READ_S,
        guard: UrlGuard | None = None,
        make_transport: MakeTransport = make_plain_transport,
    ) -> None:
        self._adapter = adapter
        self._ask_again = ask_again
        self._turn = threading.Lock() if one_at_a_time else None
        self._reports_by_request = False  # once it has, its counters need not be read
        if baseline_url and baseline_api_key is None and same_origin(base_url, baseline_url):
            baseline_api_key = api_key
        keys: dict[Lane, tuple[str, str | None]] = {"dflash": (base_url, api_key)}
        if baseline_url:
            keys["baseline"] = (baseline_url, baseline_api_key)
        for url, _ in keys.values():
            if guard:
                guard.check(url)
        self._servers: dict[Lane, ServerClient] = {
            lane: ServerClient(
                url,
                api_key=key,
                read_timeout_s=read_timeout_s,
                make_transport=guard.make_transport if guard else make_transport,
            )
            for lane, (url, key) in keys.items()
        }
        self._models = {lane: model for lane in self._servers if model}
        self._learn_models(needs_both=needs_both)
        answers = self._status("dflash")
        self.info = EngineInfo(
            backend=adapter.name,
            version=f"{adapter.name} {(adapter.version(answers) or '(version not told)')[:100]}",
            target_id=next(iter(self._models.values())),
            draft_id=None,
            device=self._servers["dflash"].url,
            dtype="as served",
            reports="nothing" if adapter.is_speculating(answers) is False else "summary",
        )

    def stream(self, request: Request, *, should_stop: ShouldStop = never) -> Iterator[Event]:
        """Yield Chunks, then Finished with the server's own counts. See ``Engine.stream``.

        ``should_stop`` ends a stream also while the server is silent; it has no Finished then.
        """
        lane: Lane = "dflash" if request.block_size > 1 else "baseline"
        server, payload = self._addressed(lane, request)
        needs_counters = lane == "dflash" and not self._reports_by_request
        before = self._counters(server) if needs_counters else None
        answer = Answer()
        arrivals = server.stream(_CHAT_PATH, payload, turn=self._turn, should_stop=should_stop)
        with closing(arrivals):
            for arrival in arrivals:
                yield from answer.add(arrival.t_s, arrival.body)
        if should_stop():
            return
        finished = answer.finished(server.url)
        if lane == "baseline":
            if self._adapter.parse_spec(answer.final) is not None:
                raise _no_baseline(server.url)
            yield finished(None)
            return
        spec = self._adapter.parse_spec(answer.final)
        if spec is not None and spec.num_cycles is not None:
            self._reports_by_request = True
        elif before is not None:
            spec = self._counted(server, before, told=spec) or spec
        if spec is None and self._ask_again and request.sampling.temperature == 0:
            spec = self._asked_again(server, payload)
        yield finished(spec)

    def served_divergence(self, request: Request) -> ServedDivergence | None:
        """Ask both servers the same greedy request again with logprobs, and find where they part.

        ``None`` when they do not, or give no logprobs. Raises ``EngineError``.
        """
        if request.sampling.temperature > 0:
            raise EngineError("sampled answers differ by chance.", "Use temperature 0.")
        lanes: tuple[Lane, Lane] = ("baseline", "dflash")
        addressed = {lane: self._addressed(lane, request) for lane in lanes}
        answers = {
            lane: server.post(_CHAT_PATH, with_logprobs(payload))
            for lane, (server, payload) in addressed.items()
        }
        return find_parting(answers["baseline"], answers["dflash"])

    def server_states(self) -> tuple[ServerState, ...]:
        """Ask both servers again whether they speculate. Never raises: a server that is gone is a
        ``bad`` state with the reason."""
        states = tuple(self._state(lane) for lane in self._servers)
        if "baseline" in self._servers:
            return states
        url = self._servers["dflash"].url
        if self._adapter.without_drafts({}) is None:
            return (*states, ServerState("baseline", "bad", str(_no_second_server())))
        asked = f"{url} is asked for the plain lane too, with drafting off."
        return (*states, ServerState("baseline", "unknown", asked))

    @property
    def unreported(self) -> str:
        """What to say where a chart needs acceptance and ``Finished.spec`` is ``None``."""
        return f"This server did not report acceptance. {self._adapter.how_to_report}"

    @property
    def no_cycles(self) -> str:
        """What to say where a chart needs single cycles, which no server reports."""
        return (
            f"{self.info.version} reports totals for a whole answer, not single cycles, so the "
            "blocks and their times cannot be drawn."
        )

    def encode(self, messages: tuple[Message, ...], *, enable_thinking: bool = False) -> list[int]:
        """A server tokenises by itself; nothing is known here."""
        raise EngineError("token ids are not known for a served model.")

    def decode(self, ids: list[int]) -> str:
        """See ``encode``."""
        raise EngineError("token ids are not known for a served model.")

    def close(self) -> None:
        """Nothing is held between streams; a stream in progress closes its own socket."""

    def read_counters(self) -> Counters | None:
        """What the DFlash server has counted so far over all its clients, if it counts."""
        return self._counters(self._servers["dflash"])

    def _learn_models(self, *, needs_both: bool) -> None:
        """Ask every server for its model's name. Raises ``EngineError`` when one that is needed
        does not answer."""
        error: EngineError | None = None
        for lane in self._servers:
            try:
                self._model(lane)
            except EngineError as reason:
                if needs_both:
                    raise
                error = error or reason
        if error and not self._models:
            raise error

    def _model(self, lane: Lane) -> str:
        if lane not in self._models:
            self._models[lane] = _first_model(self._servers[lane])
        return self._models[lane]

    def _addressed(self, lane: Lane, request: Request) -> tuple[ServerClient, dict[str, Any]]:
        """The server that a lane asks, and what it is sent. Raises ``EngineError`` where there is
        none to ask."""
        if lane in self._servers:
            salt = uuid.uuid4().hex
            return self._servers[lane], self._adapter.payload(request, self._model(lane), salt=salt)
        if self._adapter.without_drafts({}) is None:
            raise _no_second_server()
        server, payload = self._addressed("dflash", request)
        return server, self._adapter.without_drafts(payload) or payload

    def _state(self, lane: Lane) -> ServerState:
        url = self._servers[lane].url
        try:
            _first_model(self._servers[lane])
        except EngineError as error:
            return ServerState(lane, "bad", str(error))
        speculates = self._adapter.is_speculating(self._status(lane))
        if speculates is None:
            return ServerState(lane, "unknown", f"{url} does not say whether it speculates.")
        if lane == "dflash" and not speculates:
            return ServerState(
                lane, "bad", f"Speculation is not active at {url}: no draft is loaded there."
            )
        if lane == "baseline" and speculates:
            return ServerState(
                lane, "bad", f"The baseline at {url} speculates too, so it is no baseline."
            )
        words = "speculates" if speculates else "decodes without drafts"
        return ServerState(lane, "good", f"{url} {words}.")

    def _status(self, lane: Lane) -> dict[str, str]:
        """What a server says about itself; a path that it does not have is left out."""
        answers = {}
        for path in self._adapter.status_paths:
            try:
                answers[path] = self._servers[lane].get(path)
            except EngineError:
                continue
        return answers

    def _counters(self, server: ServerClient) -> Counters | None:
        prefix = self._adapter.counter_prefix
        if prefix is None:
            return None
        try:
            return read_counters(server.get(_METRICS_PATH), prefix=prefix)
        except EngineError:
            return None

    def _counted(
        self, server: ServerClient, before: Counters, *, told: SpecStats | None
    ) -> SpecStats | None:
        """The counters' growth over one request, if the server served nobody else meanwhile and
        it is what the answer ``told``, as far as that goes."""
        for _ in range(_COUNTER_READINGS):
            after = self._counters(server)
            if after is None:
                return None
            spec = spec_between(before, after) if is_only_request(before, after) else None
            if spec is not None and (told is None or _same_drafts(spec, told)):
                return spec
            time.sleep(_COUNTER_WAIT_S)
        return None

    def _asked_again(self, server: ServerClient, payload: dict[str, Any]) -> SpecStats | None:
        """The same greedy request unstreamed: the same tokens, so the same cycles."""
        again = self._adapter.unstreamed(payload)
        if again is None:
            return None
        try:
            return self._adapter.parse_spec(server.post(_CHAT_PATH, again))
        except EngineError:
            return None


def _same_drafts(one: SpecStats, other: SpecStats) -> bool:
    return (one.num_draft_tokens, one.num_accepted_tokens) == (
        other.num_draft_tokens,
        other.num_accepted_tokens,
    )


def _no_second_server() -> EngineError:
    return EngineError(
        "there is no second server for the autoregressive lane.",
        "Start the same target without speculation and give its URL.",
    )


def _no_baseline(url: str) -> EngineError:
    return EngineError(
        f"{url} drafted in the autoregressive lane, so that lane is no baseline.",
        "Start the same target without speculation and give its URL.",
    )


def _first_model(server: ServerClient) -> str:
    """The first model a server lists. Raises ``EngineError``."""
    listed = json_object(server.get("/v1/models")).get("data")
    first = listed[0] if isinstance(listed, list) and listed else None
    name = first.get("id") if isinstance(first, dict) else None
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        raise EngineError(
            f"{server.url} does not list its models.",
            "Give the root URL of an OpenAI-compatible server, such as http://127.0.0.1:8000.",
        )
    return name
