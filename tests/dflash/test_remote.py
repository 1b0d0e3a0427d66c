"""Served targets without a network: recorded payloads, and a real socket where closing matters."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash.engines import open_engine
from dflash.engines.answer import Answer
from dflash.engines.counters import is_only_request, read_counters, spec_between
from dflash.engines.llamacpp import LlamacppAdapter
from dflash.engines.sglang import SglangAdapter
from dflash.engines.sse import read_events
from dflash.engines.vllm import VllmAdapter
from dflash.errors import EngineError
from dflash.metrics import compare, run_stats
from dflash.schema import Chunk, EngineInfo, Finished, Message, Request, SamplingParams, Trace
from dflash.trace_file import trace_from_dict, trace_to_dict

SERVERS = Path(__file__).resolve().parents[1] / "fixtures" / "servers"
DFLASH_URL, BASELINE_URL = "http://dflash.test:8000", "http://plain.test:8000"
HELLO = (Message("user", "What is 1 + 1?"),)
GREEDY = Request(HELLO, SamplingParams(max_new_tokens=64), block_size=16)
MODELS = {"object": "list", "data": [{"id": "tiny", "object": "model"}]}


INFO = EngineInfo("x", "1", "t", None, "here", "float32", "summary")
# The names that are read somewhere, so that made-up JSON reaches every branch.
WORDS = st.sampled_from(
    [
        "choices",
        "delta",
        "content",
        "reasoning_content",
        "finish_reason",
        "usage",
        "completion_tokens",
        "metrics",
        "timings",
        "speculative_decoding",
        "num_spec_steps",
        "num_draft_tokens",
        "num_accepted_draft_tokens",
        "meta_info",
        "acceptance_histogram",
        "spec_verify_ct",
        "spec_num_correct_drafts",
        "spec_num_proposed_drafts",
        "draft_n",
        "draft_n_accepted",
        "draft_n_verif_steps",
        "default_generation_settings",
        "params",
        "speculative",
        "version",
        "speculative_algorithm",
        "build_info",
        "error",
        "data",
        "id",
    ]
)


def fixture(name: str) -> bytes:
    return (SERVERS / name).read_bytes()


class FakeServers:
    """Answers like the recorded servers; every request it got is in ``log``."""

    def __init__(self, answers: dict[tuple[str, str], object]) -> None:
        self.answers = answers
        self.log: list[httpx.Request] = []

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.log.append(request)
        found = self.answers.get((request.url.host.split(".")[0], request.url.path))
        if found is None and request.url.path == "/v1/models":
            found = MODELS
        if callable(found):
            found = found(request)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, httpx.Response):
            return found
        if isinstance(found, dict):
            return httpx.Response(200, json=found)
        if isinstance(found, bytes):
            return stream_of([found])
        return httpx.Response(404, json={"detail": "Not Found"})

    def bodies(self) -> list[dict]:
        return [json.loads(r.content) for r in self.log if r.method == "POST"]


def stream_of(parts: list[bytes]) -> httpx.Response:
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    return httpx.Response(200, headers=headers, content=iter(parts))


def text(body: bytes | str) -> httpx.Response:
    return httpx.Response(200, content=body, headers={"content-type": "text/plain"})


def opened(backend: str, answers: dict[tuple[str, str], object], **options):
    servers = FakeServers(answers)
    engine = open_engine(
        backend,
        base_url=DFLASH_URL,
        baseline_url=BASELINE_URL,
        make_transport=servers.transport,
        **options,
    )
    servers.log.clear()
    return engine, servers


def one_chat(body: object, backend: str = "vllm", **options):
    return opened(backend, {("dflash", "/v1/chat/completions"): body}, **options)


def trace_of(engine, request: Request = GREEDY) -> Trace:
    return Trace(request, engine.info, tuple(engine.stream(request)))


def shown(trace: Trace) -> str:
    return "".join(e.text for e in trace.events if isinstance(e, Chunk))


# ---- acceptance ---------------------------------------------------------------------------------


def test_vllm_reports_per_request_acceptance_tokens_and_prompt_from_the_last_event():
    engine, _ = one_chat(fixture("vllm-0.32-summary.sse"))
    finished = trace_of(engine).finished
    assert finished is not None and finished.spec is not None
    assert finished.spec.tau == pytest.approx(1.2325581395348837)
    assert finished.spec.acceptance_rate == pytest.approx(0.07751937984496124)
    assert finished.spec.acceptance_histogram == (39, 1, 0, 3)
    assert finished.spec.source == "reported"
    assert (finished.num_output_tokens, finished.num_prompt_tokens) == (54, 17)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(1, 400), max_size=12))
def test_chunks_merged_or_split_change_neither_tau_nor_text(cuts: list[int]):
    whole = fixture("vllm-0.32-summary.sse")
    parts, start = [], 0
    for cut in cuts:
        parts.append(whole[start : start + cut])
        start += cut
    engine, _ = one_chat(lambda _: stream_of([*parts, whole[start:]]))
    trace = trace_of(engine)
    assert shown(trace) == "1 + 1 = 2"
    assert trace.finished is not None and trace.finished.spec is not None
    assert trace.finished.spec.num_cycles == 43 and trace.finished.num_output_tokens == 54


def test_vllm_without_metrics_falls_back_on_its_counters_and_says_so():
    readings = iter(
        [fixture("vllm-0.32-metrics-before.txt"), fixture("vllm-0.32-metrics-after.txt")]
    )
    first = fixture("vllm-0.32-metrics-before.txt")
    engine, servers = one_chat(fixture("vllm-0.20-no-metrics.sse"))
    servers.answers["dflash", "/metrics"] = lambda _: text(next(readings, first))
    spec = trace_of(engine).finished.spec
    assert spec is not None and spec.source == "counters"
    assert (spec.num_cycles, spec.num_accepted_tokens, spec.num_draft_tokens) == (43, 10, 129)
    assert spec.acceptance_histogram == (39, 1, 0, 3)  # the same run, told by position


def test_counters_are_summed_over_engines_and_survive_odd_labels_and_nan():
    counters = read_counters(fixture("vllm-0.32-metrics-before.txt").decode(), prefix="vllm")
    assert counters is not None
    assert counters.num_cycles == 1_000_100
    assert counters.num_accepted_by_position == (31, 16, 5)
    assert (counters.num_busy, counters.num_finished) == (0, 5)


@pytest.mark.parametrize("change", ["busy before", "busy after", "two requests", "restarted"])
def test_counters_are_not_used_when_somebody_else_was_served(change: str):
    before = read_counters(fixture("vllm-0.32-metrics-before.txt").decode(), prefix="vllm")
    after_text = fixture("vllm-0.32-metrics-after.txt").decode()
    if change == "busy after":
        after_text = after_text.replace(
            'num_requests_running{engine="0",model_name="a {strange} name"} 0.0',
            'num_requests_running{engine="0",model_name="a {strange} name"} 3.0',
        )
    if change == "two requests":
        after_text = after_text.replace(
            'finished_reason="stop"} 2.0', 'finished_reason="stop"} 3.0'
        )
    after = read_counters(after_text, prefix="vllm")
    assert before is not None and after is not None
    if change == "busy before":
        before, after = (
            read_counters(
                fixture("vllm-0.32-metrics-before.txt")
                .decode()
                .replace(
                    'num_requests_waiting{engine="1",model_name="a {strange} name"} 0.0',
                    'num_requests_waiting{engine="1",model_name="a {strange} name"} 1.0',
                ),
                prefix="vllm",
            ),
            after,
        )
        assert before is not None
    if change == "restarted":
        assert spec_between(after, before) is None
    else:
        assert not is_only_request(before, after)


def test_counters_that_are_absent_are_unknown_and_not_zero():
    assert read_counters(fixture("vllm-0.32-metrics-plain.txt").decode(), prefix="vllm") is None
    engine, _ = one_chat(fixture("vllm-0.20-no-metrics.sse"))
    trace = trace_of(engine)
    assert trace.finished is not None and trace.finished.spec is None
    assert "--per-request-spec-decode-metrics" in engine.unreported
    assert "not single cycles" in engine.no_cycles


@pytest.mark.parametrize(
    "name", ["sglang-0.5.5-old-names", "sglang-0.5.12-middle-names", "sglang-0.5.15-new-names"]
)
def test_sglang_is_read_under_all_its_names(name: str):
    spec = SglangAdapter().parse_spec(json.loads(fixture(f"{name}.json")))
    assert spec is not None
    assert spec.tau == pytest.approx(63 / 43 + 1)
    assert spec.num_draft_tokens == 301
    if "middle" not in name:
        assert spec.acceptance_histogram is not None and sum(spec.acceptance_histogram) == 43


def test_sglang_streams_without_meta_info_and_asks_a_greedy_request_again_for_it():
    def chat(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if body["stream"]:
            if "return_meta_info" in body:
                return httpx.Response(400, content=fixture("sglang-0.5.15-400.json"))
            return stream_of([fixture("sglang-0.5-stream.sse")])
        return httpx.Response(200, content=fixture("sglang-0.5.15-new-names.json"))

    engine, servers = one_chat(chat, "sglang")
    trace = trace_of(engine)
    assert shown(trace) == "Let me add.1 + 1 = 2"  # reasoning is output too
    assert trace.finished is not None and trace.finished.spec is not None
    assert trace.finished.spec.num_cycles == 43
    streamed, again = servers.bodies()
    assert again["return_meta_info"] is True
    same = set(streamed) - {"stream", "stream_options"}
    assert {k: streamed[k] for k in same} == {k: again[k] for k in same}

    sampled = Request(HELLO, SamplingParams(temperature=1.0), block_size=16)
    assert trace_of(engine, sampled).finished.spec is None  # another draw would be another run
    assert len(servers.bodies()) == 3


def test_llamacpp_counts_drafts_but_knows_tau_only_where_it_counts_steps():
    engine, _ = one_chat(fixture("llamacpp-b9000-drafts.sse"), "llamacpp")
    spec = trace_of(engine).finished.spec
    assert spec is not None and spec.tau is None
    assert spec.acceptance_rate == pytest.approx(40 / 99)

    engine, _ = one_chat(fixture("llamacpp-27676-steps.sse"), "llamacpp")
    assert trace_of(engine).finished.spec.tau == pytest.approx(1 + 40 / 16)

    engine, _ = one_chat(fixture("llamacpp-plain.sse"), "llamacpp")
    assert trace_of(engine).finished.spec is None


def test_llamacpp_counters_fill_in_the_steps_that_timings_lack():
    zero = fixture("llamacpp-b9001-metrics.txt").decode()
    for number in ("_drafts_total 16", "_tokens_total 99", "_tokens_total 40"):
        zero = zero.replace(number, number.rsplit(" ", 1)[0] + " 0")
    readings = iter([zero.encode(), fixture("llamacpp-b9001-metrics.txt")])
    engine, servers = one_chat(fixture("llamacpp-b9000-drafts.sse"), "llamacpp")
    servers.answers["dflash", "/metrics"] = lambda _: text(next(readings))
    spec = trace_of(engine).finished.spec
    assert spec.tau == pytest.approx(3.5) and spec.source == "counters"


def test_counters_that_grew_by_somebody_elses_drafts_too_are_not_taken_for_this_answers():
    before = fixture("llamacpp-b9001-metrics.txt").decode()
    after = before.replace("_drafts_total 16", "_drafts_total 60").replace(
        "_tokens_total 99", "_tokens_total 500"
    )
    readings = iter([before.encode()])
    engine, servers = one_chat(fixture("llamacpp-b9000-drafts.sse"), "llamacpp")
    servers.answers["dflash", "/metrics"] = lambda _: text(next(readings, after.encode()))
    spec = trace_of(engine).finished.spec
    assert (spec.num_draft_tokens, spec.tau, spec.source) == (99, None, "reported")


def test_a_real_llamacpp_answer_its_counters_and_our_count_are_the_same_two_cycles():
    before, after = (fixture(f"llamacpp-0.3.36-metrics-{when}.txt") for when in ("before", "after"))
    readings = iter([before, before])  # the counters show an answer a moment after its last event
    engine, servers = one_chat(fixture("llamacpp-0.3.36-drafts.sse"), "llamacpp")
    servers.answers["dflash", "/metrics"] = lambda _: text(next(readings, after))
    finished = trace_of(engine).finished
    spec = finished.spec
    assert (spec.num_cycles, spec.num_draft_tokens, spec.num_accepted_tokens) == (2, 30, 14)
    assert spec.tau == 8 and spec.source == "counters"
    assert finished.num_output_tokens == 1 + 2 * 8, "the first token, then two blocks"
    assert finished.num_prompt_tokens == 23


def test_a_real_llamacpp_refusal_names_the_context_it_has():
    refused = httpx.Response(400, json=json.loads(fixture("llamacpp-0.3.36-400.json")))
    engine, _ = one_chat(refused, "llamacpp")
    with pytest.raises(EngineError, match="exceeds the available context size"):
        trace_of(engine)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_spec_steps": -1},
        {"num_spec_steps": True},
        {"num_spec_steps": "43"},
        {"num_draft_tokens": 0},
        {"num_accepted_draft_tokens": 1000},
        {"num_accepted_draft_tokens": None},
    ],
)
def test_counts_that_cannot_be_are_not_reported(wrong: dict):
    right = {"num_spec_steps": 43, "num_draft_tokens": 129, "num_accepted_draft_tokens": 10}
    final = {"metrics": {"speculative_decoding": {**right, **wrong}}}
    assert VllmAdapter().parse_spec(final) is None


def test_a_histogram_that_does_not_add_up_is_left_out():
    spec = {"num_spec_steps": 43, "num_draft_tokens": 129, "num_accepted_draft_tokens": 10}
    final = {"metrics": {"speculative_decoding": {**spec, "acceptance_histogram": [1, 2]}}}
    assert VllmAdapter().parse_spec(final).acceptance_histogram is None


# ---- what is sent -------------------------------------------------------------------------------


@pytest.mark.parametrize("adapter", [VllmAdapter(), SglangAdapter(), LlamacppAdapter()])
def test_sampling_thinking_and_usage_are_sent_explicitly(adapter):
    sampling = SamplingParams(0.7, 0.9, 20, seed=5, max_new_tokens=33, enable_thinking=True)
    body = adapter.payload(Request(HELLO, sampling, 16), "m", salt="x")
    assert (body["temperature"], body["top_p"], body["top_k"]) == (0.7, 0.9, 20)
    assert (body["seed"], body["max_tokens"], body["min_p"]) == (5, 33, 0.0)
    assert body["chat_template_kwargs"] == {"enable_thinking": True}
    assert body["stream_options"]["include_usage"] is True
    assert 1.0 in (body.get("repetition_penalty"), body.get("repeat_penalty"))


def test_thinking_is_switched_off_by_words_too():
    body = VllmAdapter().payload(GREEDY, "m", salt="x")
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["top_k"] == -1 and LlamacppAdapter().payload(GREEDY, "m", salt="x")["top_k"] == 0


def test_no_run_finds_its_prompt_in_the_servers_cache():
    engine, servers = one_chat(fixture("vllm-0.32-summary.sse"))
    trace_of(engine)
    trace_of(engine)
    salts = [b["cache_salt"] for b in servers.bodies()]
    assert len(set(salts)) == 2
    assert LlamacppAdapter().payload(GREEDY, "m", salt="x")["cache_prompt"] is False


def test_each_lane_goes_to_its_own_server_with_that_servers_model():
    engine, servers = opened(
        "vllm",
        {
            ("dflash", "/v1/chat/completions"): fixture("vllm-0.32-summary.sse"),
            ("plain", "/v1/chat/completions"): fixture("vllm-0.20-no-metrics.sse"),
            ("plain", "/v1/models"): {"data": [{"id": "tiny-plain"}]},
        },
    )
    dflash = trace_of(engine)
    baseline = trace_of(engine, Request(HELLO, GREEDY.sampling, 1))
    posts = [r for r in servers.log if r.method == "POST"]
    assert [r.url.host for r in posts] == ["dflash.test", "plain.test"]
    assert [b["model"] for b in servers.bodies()] == ["tiny", "tiny-plain"]
    assert baseline.finished is not None and baseline.finished.spec is None
    assert compare(baseline, dflash).outputs_match is True


def test_a_key_is_sent_to_no_other_origin():
    servers = FakeServers({})
    open_engine("vllm", base_url=DFLASH_URL, baseline_url=BASELINE_URL, api_key="secret",
                make_transport=servers.transport)  # fmt: skip
    keyed = {r.url.host for r in servers.log if "authorization" in r.headers}
    assert keyed == {"dflash.test"}
    assert "secret" not in repr(servers.log)


def test_a_lone_surrogate_in_the_prompt_does_not_break_the_request():
    engine, _ = one_chat(fixture("vllm-0.32-summary.sse"))
    request = Request((Message("user", "a\ud800b"),), GREEDY.sampling, 16)
    assert trace_of(engine, request).finished is not None


# ---- times and tokens ---------------------------------------------------------------------------


def test_tpot_of_chunks_divides_by_the_tokens_after_the_first_chunk():
    engine, _ = one_chat(fixture("vllm-0.32-summary.sse"))
    trace = trace_of(engine)
    chunks = [e for e in trace.events if isinstance(e, Chunk)]
    assert [c.num_tokens for c in chunks] == [1, 4, 20, 54]  # the role event is no chunk
    assert len({c.t_s for c in chunks}) == 1  # one read, one stamp
    for stamps, tpot_s in (
        ((0.2, 0.4, 0.8, 1.26), (1.26 - 0.2) / 53),
        ((0.4, 0.4, 0.8, 1.26), (1.26 - 0.4) / 50),  # the first two came in one piece
        ((0.4, 0.4004, 0.4008, 1.26), (1.26 - 0.4) / 34),  # three were held up together
        ((0.4, 0.4004, 0.4008, 0.4016), None),  # all of them were: nothing is known of the pace
    ):
        events = [Chunk(t, c.text, c.num_tokens) for t, c in zip(stamps, chunks, strict=True)]
        stats = run_stats(Trace(GREEDY, engine.info, (*events, trace.finished)))
        assert stats.ttft_s == stamps[0]
        assert stats.tpot_s == (tpot_s and pytest.approx(tpot_s))


def test_without_usage_the_number_of_tokens_is_unknown():
    body = fixture("vllm-0.20-no-metrics.sse").replace(b'"usage"', b'"usages"')
    engine, _ = one_chat(body)
    trace = trace_of(engine)
    assert run_stats(trace).num_output_tokens is None and run_stats(trace).tpot_s is None


def test_a_token_that_shows_no_text_is_still_stamped():
    event = (
        '{"choices":[{"delta":{"content":""},"finish_reason":%s}],"usage":{"completion_tokens":%d}}'
    )
    lines = [event % ("null", 1), event % ("null", 2), event % ('"stop"', 3)]
    engine, _ = one_chat("".join(f"data: {line}\n\n" for line in lines).encode())
    assert [e.num_tokens for e in trace_of(engine).events if isinstance(e, Chunk)] == [1, 2, 3]


def test_half_a_surrogate_pair_becomes_a_mark_that_can_be_shown():
    event = b'data: {"choices":[{"delta":{"content":"a\\ud800"},"finish_reason":"stop"}]}\n\n'
    engine, _ = one_chat(event)
    assert shown(trace_of(engine)) == "a?"


def test_reasoning_sent_under_two_names_is_shown_once():
    delta = {"reasoning": "hm", "reasoning_content": "hm", "content": "ok"}
    body = json.dumps({"choices": [{"delta": delta, "finish_reason": "length"}]})
    engine, _ = one_chat(f"data: {body}\n\n".encode())
    trace = trace_of(engine)
    assert shown(trace) == "hmok" and trace.finished.finish_reason == "length"


def test_stamps_are_taken_at_arrival_not_when_the_reader_gets_to_it():
    engine, _ = one_chat(fixture("vllm-0.32-summary.sse"))
    events = engine.stream(GREEDY)
    next(events)
    time.sleep(0.3)  # a page being drawn
    assert max(e.t_s for e in events) < 0.25


def test_a_served_run_is_saved_and_read_back_equal():
    engine, _ = one_chat(fixture("vllm-0.32-summary.sse"))
    trace = trace_of(engine)
    assert trace_from_dict(json.loads(json.dumps(trace_to_dict(trace)))) == trace


# ---- server-sent events -------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_ending_is_read_and_a_line_separator_is_text(end: str):
    odd = json.dumps({"a": "x\u2028y\x85z"}, ensure_ascii=False)
    wire = f": comment{end}event: x{end}data: {odd}{end}{end}data:[1{end}{end}".encode()
    events = read_events(wire[i : i + 1] for i in range(len(wire)))
    assert next(events) == {"a": "x\u2028y\x85z"}
    with pytest.raises(EngineError, match="not whole JSON"):
        next(events)


def test_how_the_bytes_were_cut_changes_no_event():
    wire = b'data: {"a": 1}\n\n\r\rdata: {"b": 2}\r\r'
    whole = list(read_events([wire]))
    assert whole == [{"a": 1}, {"b": 2}]
    for cut in range(len(wire)):
        assert list(read_events([wire[:cut], wire[cut:]])) == whole


@pytest.mark.parametrize("event", ['"\\ud800"', '{"error": "\\ud800"}', "\udcff"])
def test_half_a_character_from_a_server_is_refused_in_words_that_can_be_shown(event: str):
    with pytest.raises(EngineError) as refused:
        list(read_events([f"data: {event}\n\n".encode("utf-8", "surrogateescape")]))
    str(refused.value).encode()


def test_an_event_over_several_data_lines_is_one_event():
    assert list(read_events([b'data: {"a":\ndata: 1}\n\ndata: [DONE]\n\ndata: {"b":2}\n\n'])) == [
        {"a": 1}
    ]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.binary(max_size=40)
        | st.sampled_from([b"data: ", b"\n\n", b"{}", b"\r", b"[DONE]", b"null"]),
        max_size=20,
    )
)
def test_any_bytes_give_events_or_one_sentence(parts: list[bytes]):
    with contextlib.suppress(EngineError):
        assert all(isinstance(e, dict) for e in read_events(parts))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.dictionaries(WORDS, JSON, max_size=5), max_size=4))
def test_any_json_from_a_server_gives_usable_events_or_one_sentence(bodies: list[dict]):
    final: dict = {}
    answer = Answer()
    for body in bodies:
        final |= body
        for chunk in answer.add(0.1, body):
            chunk.text.encode()
    with contextlib.suppress(EngineError):
        finished = answer.finished("http://x")(None)
        trace = Trace(GREEDY, INFO, (Chunk(0.1, "a", 1), Chunk(0.2, "b"), finished))
        run_stats(trace)
    page = json.dumps(final)
    for adapter in (VllmAdapter(), SglangAdapter(), LlamacppAdapter()):
        spec = adapter.parse_spec(final)
        assert spec is None or spec.tau is None or spec.tau >= 1
        adapter.is_speculating(dict.fromkeys(adapter.status_paths, page))
        adapter.version(dict.fromkeys(adapter.status_paths, page))


# ---- what goes wrong ----------------------------------------------------------------------------

GOOD = fixture("vllm-0.32-summary.sse")


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (GOOD[: len(GOOD) // 2], "not whole JSON"),
        (GOOD[: GOOD.index(b'"stop"')].rsplit(b"data: ", 1)[0], "in the middle of the answer"),
        (b"", "in the middle of the answer"),
        (b"data: 7\n\n", "where an event was expected"),
        (b'data: {"error":{"message":"out of memory","code":500}}\n\n', "out of memory"),
        (b'data: {"object":"error","message":"aborted"}\n\n', "aborted"),
        (b"data: " + b"x" * 4_000_001, "over 4 MB"),
        (b'data: {"a":' + b"[" * 100_000, "not whole JSON"),
        (httpx.Response(404, content=fixture("vllm-0.32-404.json")), "`nope` does not exist"),
        (httpx.Response(400, content=fixture("vllm-0.32-400.json")), "max_model_len=512"),
        (httpx.Response(400, content=fixture("sglang-0.5.15-400.json")), "not supported with streaming"),
        (httpx.Response(404, json={"detail": "Not Found"}), "404: Not Found"),
        (httpx.Response(422, json={"detail": [{"loc": ["body"], "msg": "field required"}]}), "field required"),
        (httpx.Response(500, content=b"Internal Server Error"), "500: Internal Server Error"),
        (httpx.Response(502, content=b""), "no reason given"),
        (httpx.Response(503, json={"error": {"message": "Loading model"}}), "still loading"),
        (httpx.Response(200, html="<html>Welcome</html>"), "a web page"),
        (httpx.Response(404, html="<html>Not here</html>"), "a web page"),
        (httpx.Response(200, json={"choices": []}), "did not stream"),
        (httpx.Response(307, headers={"location": "http://elsewhere/"}), "redirects are not followed"),
        (httpx.ConnectError("refused"), "nothing answers at http://dflash.test:8000"),
        (httpx.ReadTimeout("slow"), "sent nothing for 9 s"),
        (httpx.RemoteProtocolError("cut"), "broke off"),
        (httpx.ReadError("reset"), "broke off"),
    ],
)  # fmt: skip
def test_every_failure_is_one_clear_sentence(answer, sentence: str):
    engine, _ = opened("vllm", {("dflash", "/v1/chat/completions"): answer}, read_timeout_s=9)
    with pytest.raises(EngineError) as caught:
        trace_of(engine)
    told = str(caught.value)
    assert sentence in told and "\n" not in told and len(told) < 500


def test_a_stream_that_breaks_in_the_middle_keeps_what_came_and_leaves_the_engine_usable():
    def broken() -> Iterator[bytes]:
        yield GOOD[:900]
        raise httpx.ReadError("reset")

    bodies = iter([broken(), iter([GOOD])])
    engine, _ = one_chat(lambda _: stream_of(next(bodies)))  # type: ignore[arg-type]
    events = engine.stream(GREEDY)
    assert isinstance(next(events), Chunk)
    with pytest.raises(EngineError, match="broke off"):
        list(events)
    assert trace_of(engine).finished is not None


def test_one_broken_lane_leaves_the_other_alive():
    engine, _ = opened(
        "vllm",
        {
            ("dflash", "/v1/chat/completions"): httpx.ConnectError("gone"),
            ("plain", "/v1/chat/completions"): fixture("vllm-0.20-no-metrics.sse"),
        },
    )
    baseline = engine.stream(Request(HELLO, GREEDY.sampling, 1))
    next(baseline)
    with pytest.raises(EngineError, match="nothing answers"):
        list(engine.stream(GREEDY))
    assert isinstance(list(baseline)[-1], Finished)


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8000", "ftp://a", "http://", "http://user:pass@host", "http://h/?key=1", "http://[::1",
     "http://\ud800"],
)  # fmt: skip
def test_a_url_that_is_none_is_refused_at_once(url: str):
    with pytest.raises(EngineError):
        open_engine("vllm", base_url=url, make_transport=FakeServers({}).transport)


@pytest.mark.parametrize("url", ["http://me:hunter2@[", "ftp://me:hunter2@a", "me:hunter2@host"])
def test_a_password_in_a_url_is_in_no_sentence(url: str):
    with pytest.raises(EngineError) as caught:
        open_engine("vllm", base_url=url, make_transport=FakeServers({}).transport)
    assert "hunter2" not in str(caught.value)


def test_a_url_may_end_in_a_slash_or_in_v1():
    for url in (f"{DFLASH_URL}/", f"{DFLASH_URL}/v1", f" {DFLASH_URL}/v1/ "):
        servers = FakeServers({})
        open_engine("vllm", base_url=url, make_transport=servers.transport)
        assert servers.log[0].url == f"{DFLASH_URL}/v1/models"


def test_a_server_that_lists_no_model_is_not_one():
    for models in (
        httpx.Response(200, html="<html>"),
        {"data": []},
        {"data": [{"id": 3}]},
        text("["),
    ):
        with pytest.raises(EngineError, match="does not list its models"):
            opened("vllm", {("dflash", "/v1/models"): models})


def test_a_request_for_the_baseline_needs_a_second_server():
    servers = FakeServers({})
    engine = open_engine("vllm", base_url=DFLASH_URL, make_transport=servers.transport)
    with pytest.raises(EngineError, match="no second server"):
        list(engine.stream(Request(HELLO)))


def test_one_llamacpp_server_serves_both_lanes_with_drafting_off_in_the_plain_one():
    bodies = {0: "llamacpp-plain.sse", None: "llamacpp-27676-steps.sse"}

    def chat(request: httpx.Request) -> httpx.Response:
        return stream_of([fixture(bodies[json.loads(request.content).get("speculative.n_max")])])

    servers = FakeServers({("dflash", "/v1/chat/completions"): chat})
    engine = open_engine("llamacpp", base_url=DFLASH_URL, make_transport=servers.transport)
    plain = trace_of(engine, Request(HELLO, GREEDY.sampling, 1))
    assert plain.finished is not None and plain.finished.spec is None
    assert trace_of(engine).finished.spec is not None
    assert {s.lane: s.severity for s in engine.server_states()}["baseline"] == "unknown"


def test_a_plain_lane_that_was_drafted_is_no_baseline():
    servers = FakeServers({("dflash", "/v1/chat/completions"): fixture("llamacpp-27676-steps.sse")})
    engine = open_engine("llamacpp", base_url=DFLASH_URL, make_transport=servers.transport)
    with pytest.raises(EngineError, match="no baseline"):
        list(engine.stream(Request(HELLO, GREEDY.sampling, 1)))


@pytest.mark.parametrize("gone", ["dflash", "plain"])
def test_where_one_server_may_be_gone_the_other_lane_still_runs(gone: str):
    answers: dict[tuple[str, str], object] = {
        ("dflash", "/v1/chat/completions"): GOOD,
        ("plain", "/v1/chat/completions"): fixture("vllm-0.20-no-metrics.sse"),
        (gone, "/v1/models"): httpx.ConnectError("refused"),
    }
    with pytest.raises(EngineError, match="nothing answers"):
        opened("vllm", answers)
    engine, _ = opened("vllm", answers, needs_both=False)
    lanes = {"dflash": GREEDY, "plain": Request(HELLO, GREEDY.sampling, 1)}
    with pytest.raises(EngineError, match=f"nothing answers at http://{gone}.test"):
        trace_of(engine, lanes.pop(gone))
    assert trace_of(engine, *lanes.values()).finished is not None


def test_llamacpp_counts_along_in_its_timings():
    events = [
        {"choices": [{"delta": {"content": "ab"}}], "timings": {"predicted_n": 2}},
        {"choices": [{"delta": {}, "finish_reason": "stop"}], "timings": {"predicted_n": 3}},
    ]
    engine, _ = one_chat("".join(f"data: {json.dumps(e)}\n\n" for e in events).encode(), "llamacpp")
    assert [e.num_tokens for e in trace_of(engine).events if isinstance(e, Chunk)] == [2, 3]


# ---- is speculation on? -------------------------------------------------------------------------


def states(backend: str, answers: dict[tuple[str, str], object]) -> dict[str, str]:
    engine, _ = opened(backend, answers)
    return {s.lane: s.severity for s in engine.server_states()}


def test_a_dflash_server_that_does_not_speculate_is_red():
    plain = lambda _: text(fixture("vllm-0.32-metrics-plain.txt"))  # noqa: E731
    drafting = lambda _: text(fixture("vllm-0.32-metrics-before.txt"))  # noqa: E731
    on, off = {("dflash", "/metrics"): drafting}, {("dflash", "/metrics"): plain}
    assert states("vllm", {**on, ("plain", "/metrics"): plain}) == {
        "dflash": "good",
        "baseline": "good",
    }
    assert states("vllm", off)["dflash"] == "bad"
    assert states("vllm", {**on, ("plain", "/metrics"): drafting})["baseline"] == "bad"
    assert states("vllm", {}) == {"dflash": "unknown", "baseline": "unknown"}


def test_sglang_names_its_algorithm_and_another_one_is_not_dflash():
    info = json.loads(fixture("sglang-0.5.15-server-info.json"))
    for algorithm, severity in (("DFLASH", "good"), ("EAGLE", "bad"), (None, "bad")):
        answer = {**info, "speculative_algorithm": algorithm}
        assert states("sglang", {("dflash", "/server_info"): answer})["dflash"] == severity
        assert states("sglang", {("dflash", "/get_server_info"): answer})["dflash"] == severity


def test_llamacpp_only_ever_says_yes():
    props = json.loads(fixture("llamacpp-b9001-props.json"))
    assert states("llamacpp", {("dflash", "/props"): props})["dflash"] == "good"
    props["default_generation_settings"]["params"]["speculative.types"] = "none"
    assert states("llamacpp", {("dflash", "/props"): props})["dflash"] == "unknown"


def test_llamacpp_slots_say_whether_it_drafts_and_overrule_its_props():
    slots = {k: json.loads(fixture(f"llamacpp-0.3.36-slots-{k}.json")) for k in ("drafts", "plain")}
    props = json.loads(fixture("llamacpp-0.3.36-props.json"))
    for kind, severity in (("drafts", "good"), ("plain", "bad")):
        answers = {
            ("dflash", "/props"): props,
            ("dflash", "/slots"): httpx.Response(200, json=slots[kind]),
        }
        assert states("llamacpp", answers)["dflash"] == severity


def test_a_server_that_went_away_is_red_with_the_reason():
    engine, servers = one_chat(GOOD)
    servers.answers["plain", "/v1/models"] = httpx.ConnectError("gone")
    dead = next(s for s in engine.server_states() if s.lane == "baseline")
    assert dead.severity == "bad" and "nothing answers" in dead.sentence


def test_the_version_is_the_servers_own():
    engine, _ = opened("vllm", {("dflash", "/version"): {"version": "0.32.0"}})
    assert engine.info.version == "vllm 0.32.0"
    props = json.loads(fixture("llamacpp-b9001-props.json"))
    engine, _ = opened("llamacpp", {("dflash", "/props"): props})
    assert engine.info.version == "llamacpp b9001-abc1234"


# ---- where two servers part -------------------------------------------------------------------------


def told(*tokens: tuple[str, float, str, float]) -> dict:
    """An unstreamed answer: per token its text and logprob, and those of the runner-up."""
    content = [
        {
            "token": best,
            "logprob": p,
            "top_logprobs": [{"token": second, "logprob": q}, {"token": best, "logprob": p}],
        }
        for best, p, second, q in tokens
    ]
    return {"choices": [{"message": {"content": "x"}, "logprobs": {"content": content}}]}


def test_a_difference_between_servers_is_found_by_token_and_judged_by_its_margin():
    same = ("1", -0.1, "2", -3.0)
    pairs = [
        (("a", -0.69, "b", -0.71), ("b", -0.69, "a", -0.70), "tie"),
        (("a", -0.1, "b", -2.5), ("b", -0.1, "a", -2.5), "fault"),
        (("a", -0.69, "b", -0.71), ("c", -0.69, "a", -0.70), "fault"),
    ]
    for left, right, verdict in pairs:
        engine, servers = opened(
            "vllm",
            {
                ("dflash", "/v1/chat/completions"): told(same, right),
                ("plain", "/v1/chat/completions"): told(same, left),
            },
        )
        found = engine.served_divergence(GREEDY)
        assert (found.index, found.baseline_text, found.dflash_text) == (1, left[0], right[0])
        assert found.verdict == verdict and found.baseline[0].text == left[0]
        assert all(b["logprobs"] and not b["stream"] for b in servers.bodies())


def test_servers_that_agree_or_give_no_logprobs_show_no_difference():
    for body in (told(("1", -0.1, "2", -3.0)), {"choices": []}, {"choices": [{"logprobs": None}]}):
        engine, _ = opened("vllm", {(lane, "/v1/chat/completions"): body for lane in ("dflash", "plain")})  # fmt: skip
        assert engine.served_divergence(GREEDY) is None


# ---- sockets ------------------------------------------------------------------------------------


class SlowServer:
    """A real socket that answers a head, then one event, then nothing; it notes hang-ups."""

    def __init__(self, *, says: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.hung_up = threading.Event()
        self.asked = threading.Event()
        self._says = says
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection:
            head = connection.recv(65536)
            if b"/v1/models" in head:
                connection.sendall(http_answer(json.dumps(MODELS).encode()))
                return
            if not head.startswith(b"POST"):
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                return
            self.asked.set()
            connection.sendall(self._says)
            while connection.recv(65536):
                pass
            self.hung_up.set()

    def close(self) -> None:
        self._listener.close()


def http_answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)  # fmt: skip


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
EVENT = b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'


@contextlib.contextmanager
def slow_server(says: bytes) -> Iterator[SlowServer]:
    server = SlowServer(says=says)
    try:
        yield server
    finally:
        server.close()


def test_closing_the_generator_closes_the_socket_while_the_server_is_silent():
    with slow_server(HEAD + EVENT) as server:
        engine = open_engine("vllm", base_url=server.url)
        events = engine.stream(GREEDY)
        assert next(events).text == "Hi"
        started = time.perf_counter()
        events.close()
        assert server.hung_up.wait(2) and time.perf_counter() - started < 2


def test_closing_works_before_the_server_has_said_anything_at_all():
    with slow_server(b"") as server:
        engine = open_engine("vllm", base_url=server.url, one_at_a_time=False)
        events = engine.stream(GREEDY)

        def wait() -> None:
            with contextlib.suppress(EngineError):
                next(events)

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        assert server.asked.wait(5)
        reader = next(t for t in threading.enumerate() if t.name == "dflash-server-stream")
        reader.cancel()  # what the generator's own ``finally`` does
        assert server.hung_up.wait(2)
        waiting.join(2)
        assert not waiting.is_alive()


def test_a_stream_is_stopped_while_the_server_is_silent_and_the_engine_stays_usable():
    with slow_server(HEAD + EVENT) as server:
        engine = open_engine("vllm", base_url=server.url)
        stop = threading.Event()
        events = engine.stream(GREEDY, should_stop=stop.is_set)
        assert next(events).text == "Hi"
        threading.Timer(0.2, stop.set).start()
        started = time.perf_counter()
        assert list(events) == []
        assert time.perf_counter() - started < 3
        assert server.hung_up.wait(2)
        assert next(engine.stream(GREEDY)).text == "Hi"


def test_a_server_that_stops_sending_is_given_up_after_the_timeout():
    with slow_server(HEAD + EVENT) as server:
        engine = open_engine("vllm", base_url=server.url, read_timeout_s=0.3)
        with pytest.raises(EngineError, match="sent nothing for 0.3 s"):
            list(engine.stream(GREEDY))


def test_nothing_listening_is_said_at_once():
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with pytest.raises(EngineError, match="nothing answers"):
        open_engine("vllm", base_url=f"http://127.0.0.1:{port}")


def test_two_lanes_of_one_engine_do_not_run_at_the_same_time():
    busy, most = [], []
    hold = {"s": 0.8}

    plain = fixture("vllm-0.20-no-metrics.sse")

    def slowly(_: httpx.Request) -> httpx.Response:
        def parts() -> Iterator[bytes]:
            busy.append(1)
            most.append(len(busy))
            yield plain[:900]
            time.sleep(hold.pop("s", 0))
            busy.pop()
            yield plain[900:]

        return stream_of(parts())  # type: ignore[arg-type]

    chat = {(lane, "/v1/chat/completions"): slowly for lane in ("dflash", "plain")}
    engine, _ = opened("vllm", chat)
    lanes = [engine.stream(GREEDY), engine.stream(Request(HELLO, GREEDY.sampling, 1))]
    first, second = [next(lane) for lane in lanes]
    assert all(isinstance(list(lane)[-1], Finished) for lane in lanes)
    assert most == [1, 1]
    assert second.t_s < 0.7  # waiting for the turn is on nobody's clock


def test_many_streams_may_run_at_once_where_load_is_what_is_measured():
    together = threading.Barrier(3, timeout=10)

    def parts() -> Iterator[bytes]:
        together.wait()
        yield GOOD

    engine, _ = one_chat(lambda _: stream_of(parts()), one_at_a_time=False)  # type: ignore[arg-type]
    done: list[object] = []
    readers = [
        threading.Thread(target=lambda: done.append(list(engine.stream(GREEDY))[-1]))
        for _ in range(3)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(15)
    assert len(done) == 3 and all(isinstance(last, Finished) for last in done)
