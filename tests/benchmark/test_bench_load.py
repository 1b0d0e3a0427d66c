"""Load on two servers: waves by a fake engine, figures by waves that are written down."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dflash.benchmark.__main__ import main
from dflash.benchmark.load import Answered, LoadPlan, Wave, measure_load
from dflash.benchmark.load_summary import crossover, percentiles, summarise_load
from dflash.benchmark.prompts import Prompt
from dflash.engines.counters import Counters
from dflash.errors import EngineError
from dflash.metrics import RunStats
from dflash.schema import Chunk, EngineInfo, Event, Finished, Request, SamplingParams, SpecStats

PROMPTS = (Prompt("a", ("one",)), Prompt("b", ("two",)), Prompt("c", ("three",)))
SPEC = SpecStats(4, 60, 12, None, "reported")


class FakeServed:
    """Answers its prompt; keeps how many streams were open at once and what was asked."""

    info = EngineInfo("fake", "1", "target", None, "here", "float32", "summary")

    def __init__(self, *, wait_for: int = 1, fails: str = "") -> None:
        self.together = threading.Barrier(wait_for)
        self.fails = fails
        self.asked: list[tuple[str, int, int, int]] = []

    def stream(self, request: Request) -> Iterator[Event]:
        text, sampling = request.messages[0].content, request.sampling
        self.asked.append((text, request.block_size, sampling.max_new_tokens, sampling.seed))
        if text == self.fails:
            raise EngineError("too long.")
        self.together.wait(timeout=10)  # passes only when enough clients are here at once
        yield Chunk(0.1, text, 1)
        yield Chunk(0.5, "!", 5)
        yield Finished(0.5, "stop", 5, SPEC if request.block_size > 1 else None)


def plan(engine: FakeServed, **changes: object) -> LoadPlan:
    base = LoadPlan(engine, PROMPTS, SamplingParams(max_new_tokens=40, seed=7), (1,), repeats=1)
    return replace(base, **changes)  # type: ignore[arg-type]


def test_a_wave_has_exactly_its_clients_at_once_and_every_prompt_in_order():
    waves = list(measure_load(plan(FakeServed(wait_for=4), levels=(4,))))
    assert [(w.level, w.arm) for w in waves] == [(4, "baseline"), (4, "dflash")]
    for wave in waves:
        assert [a.text for a in wave.answers] == ["one!", "two!", "three!"] * 2 + ["one!", "two!"]
        assert wave.wall_s > 0


def test_arms_alternate_and_each_wave_is_warmed_up_unmeasured():
    engine = FakeServed()
    waves = list(measure_load(plan(engine, levels=(1, 1), repeats=2)))
    there, back = ["baseline", "dflash"], ["dflash", "baseline"]
    assert [w.arm for w in waves] == [*there, *back, *back, *there]
    first = engine.asked[:4]
    assert first[0] == ("one", 1, 16, 7)  # short, and not among the answers
    assert [a[2] for a in first[1:]] == [40, 40, 40]
    assert {a[3] for a in engine.asked} == {7, 8}


def test_a_request_that_fails_is_counted_and_leaves_the_others_alone():
    (baseline, dflash) = measure_load(plan(FakeServed(fails="two")))
    assert [a.failure for a in baseline.answers] == [None, "too long.", None]
    (level,) = summarise_load([baseline, dflash], seed=0)
    assert (level.baseline.num_failed, level.baseline.first_failure) == (1, "too long.")
    assert level.num_checked == 2 and level.num_equal == 2


def test_counters_are_read_around_the_dflash_wave_only():
    readings = iter(
        [Counters(0, 0, 0, None, 0, 0), Counters(10, 150, 25, None, 0, 3)],
    )
    waves = list(measure_load(plan(FakeServed(), counters=lambda: next(readings))))
    assert waves[0].counted is None
    assert waves[1].counted is not None and waves[1].counted.tau == 3.5


# ---- figures ------------------------------------------------------------------------------------


def stats(ttft_s: float, decode_s: float, tokens: int | None, spec: SpecStats | None = None):
    return RunStats(None, tokens, ttft_s, decode_s, spec)


def wave(level: int, arm: str, wall_s: float, *, tokens: int | None = 11, **changes) -> Wave:
    decode_s = 1.0 if arm == "baseline" else 0.25
    answers = tuple(
        Answered(i, stats(0.1 * (i + 1), decode_s, tokens, changes.get("spec")), "same")
        for i in range(4)
    )
    return Wave(level, arm, 0, wall_s, answers, changes.get("counted"))  # type: ignore[arg-type]


def test_throughput_is_all_tokens_over_the_waves_wall_and_the_ratio_is_of_throughputs():
    (level,) = summarise_load([wave(1, "baseline", 4.0), wave(1, "dflash", 1.0)], seed=0)
    assert level.baseline.output_tokens_per_s == 11.0
    assert level.dflash.output_tokens_per_s == 44.0
    assert level.throughput_ratio == 4.0
    assert level.tpot_speedup is not None and level.tpot_speedup.median == pytest.approx(4.0)
    assert level.dflash.tpot_s is not None and level.dflash.tpot_s.p99 == pytest.approx(0.025)
    assert (level.num_equal, level.num_checked) == (4, 4)


def test_tokens_that_a_server_does_not_count_make_no_throughput():
    waves = [wave(1, "baseline", 4.0, tokens=None), wave(1, "dflash", 1.0)]
    (level,) = summarise_load(waves, seed=0)
    assert level.baseline.output_tokens_per_s is None and level.throughput_ratio is None
    assert crossover([level]).sentence == "No level could be compared."


def test_acceptance_is_what_requests_report_else_the_counters_else_unknown():
    counted = SpecStats(10, 150, 20, None, "counters")
    cases = [({"spec": SPEC}, 4.0), ({"counted": counted}, 3.0), ({}, None)]
    for changes, tau in cases:
        waves = [wave(1, "baseline", 1.0), wave(1, "dflash", 1.0, **changes)]
        (level,) = summarise_load(waves, seed=0)
        found = level.dflash.spec
        assert (found.tau if found else None) == tau
    assert summarise_load(
        [wave(1, "baseline", 1.0), wave(1, "dflash", 1.0, counted=counted)], seed=0
    )[0].dflash.spec.source == "counters"  # fmt: skip


@pytest.mark.parametrize(
    ("walls", "expected", "words"),
    [
        ({1: 0.25, 4: 0.5, 8: 1.2, 16: 2.0}, (4, 8), "up to 4 clients at once, not at 8"),
        ({1: 0.25, 4: 0.5}, (4, None), "every level tried, up to 4"),
        ({1: 1.5, 4: 2.0}, (None, 1), "does not pay, already at 1"),
    ],
)
def test_the_crossover_is_the_first_level_that_loses(walls, expected, words: str):
    waves = [w for n, s in walls.items() for w in (wave(n, "baseline", 1.0), wave(n, "dflash", s))]
    found = crossover(summarise_load(waves, seed=0))
    assert (found.last_winning, found.first_losing) == expected
    assert words in found.sentence


def test_percentiles_are_nearest_rank_like_the_obvious_count():
    values = [float(v) for v in range(1, 101)]
    found = percentiles(values)
    assert found is not None and (found.p50, found.p90, found.p99) == (50.0, 90.0, 99.0)
    assert percentiles([None]) is None
    one = percentiles([3.0, None])
    assert one is not None and (one.p50, one.p99, one.n) == (3.0, 3.0, 1)


# ---- the command --------------------------------------------------------------------------------


class Served(BaseHTTPRequestHandler):
    """A chat server that streams nine tokens; ``drafts`` adds acceptance as vLLM reports it."""

    drafts = False

    def do_GET(self) -> None:
        body = b'{"data": [{"id": "tiny"}]}'
        self._answer(200 if self.path == "/v1/models" else 404, body, "application/json")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        spec = {"num_spec_steps": 2, "num_draft_tokens": 30, "num_accepted_draft_tokens": 6}
        end: dict = {"choices": [], "usage": {"completion_tokens": 9, "prompt_tokens": 3}}
        if self.drafts:
            end["metrics"] = {"speculative_decoding": spec}
        events = [
            {"choices": [{"delta": {"content": "hi"}}], "usage": {"completion_tokens": 1}},
            {
                "choices": [{"delta": {}, "finish_reason": "stop"}],
                "usage": {"completion_tokens": 9},
            },
            end,
        ]
        body = "".join(f"data: {json.dumps(e)}\n\n" for e in events)
        self._answer(200, f"{body}data: [DONE]\n\n".encode(), "text/event-stream")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Quiet."""


class Drafting(Served):
    drafts = True


@pytest.fixture
def urls() -> Iterator[list[str]]:
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), kind) for kind in (Drafting, Served)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    places = [f"http://127.0.0.1:{server.server_port}" for server in servers]
    yield ["--base-url", places[0], "--baseline-url", places[1]]
    for server in servers:
        server.shutdown()
        server.server_close()


def test_the_command_prints_a_table_and_writes_json(tmp_path, capsys, urls):
    output = tmp_path / "load.json"
    args = command(tmp_path, *urls, "--concurrency", "2", "1", "--output", str(output))
    assert main(args) == 0
    shown, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    assert "DFlash" in shown and "4.00" in shown  # tau: 1 + 6 / 2
    assert json.loads(last)["levels"][0]["level"] == 1
    data = json.loads(output.read_text())
    first = data["summary"]["levels"][1]
    assert first["dflash"]["tau"] == 4.0 and first["baseline"]["tau"] is None
    assert first["dflash"]["num_requests"] == 8 and first["num_equal"] == 8
    assert data["provenance"]["backend"] == "vllm"


def test_a_baseline_that_is_missing_is_said_before_anything_is_measured(tmp_path, capsys, urls):
    urls[3] = "http://127.0.0.1:9"
    assert main(command(tmp_path, *urls)) == 2
    assert "nothing answers" in capsys.readouterr().err


def command(tmp_path, *extra: str) -> list[str]:
    rows = tmp_path / "prompts.jsonl"
    rows.write_text('{"category": "a", "turns": ["one"]}\n', encoding="utf-8")
    return ["--backend", "vllm", "--dataset", str(rows), *extra]


URLS = ("--base-url", "http://dflash.test:1", "--baseline-url", "http://plain.test:1")


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ((), "two servers are needed"),
        (URLS[:2], "two servers are needed"),
        ((*URLS, "--block-size", "8"), "set when it is started"),
        ((*URLS, "--tune"), "models loaded here"),
    ],
)
def test_flags_that_do_not_fit_a_server_are_one_sentence(tmp_path, capsys, extra, words: str):
    assert main(command(tmp_path, *extra)) == 2
    assert words in capsys.readouterr().err


def test_a_local_backend_still_needs_a_model(tmp_path, capsys):
    assert main(command(tmp_path)[2:]) == 2
    assert "no model was named" in capsys.readouterr().err
