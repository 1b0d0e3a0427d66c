"""Every reader of outside data as one function of bytes, with the files it knows as seeds.

A target may refuse what it is given with the project's own errors, in one line that a page can
show. Whatever else comes out, and whatever reads differently after it was written, is a finding.
Knows the parsers; knows no fuzzer, so the test suite can run every target without one.
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qsl, urlencode

import httpx

from dflash.errors import DFlashError
from scripts.fuzz_input import Choices, deepened, edited, flow_yaml, words_of

ROOT = Path(__file__).resolve().parent.parent
_SERVERS = ROOT / "tests" / "fixtures" / "servers"
_MAX_EVENT_BYTES = 2000
_MAX_REFUSAL = 1000  # characters; a toast is read, not scrolled
RAW, EDITED = b"\x00", b"\x01"  # the first byte of an input: a file as it is, or edits of a seed


@dataclass(frozen=True, slots=True)
class Target:
    """One parser. ``read`` gets the bytes of an input and raises ``DFlashError`` for a refusal.

    ``seeds`` are inputs that it accepts; ``words`` are what its files are made of.
    """

    parser: str
    read: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    words: tuple[str, ...] = ()


def try_input(target: Target, data: bytes) -> bool:
    """Read one input; tell whether it was accepted. Any other outcome than a refusal raises."""
    broken: list[BaseException] = []
    with _listening_to_threads(broken):
        try:
            target.read(data)
            accepted = True
        except DFlashError as error:
            _check_refusal(str(error))
            accepted = False
    if broken:
        raise broken[0]
    return accepted


def load(name: str) -> Target:
    """Build a target; the parsers it needs are imported now. Raises ``KeyError``."""
    return TARGETS[name]()


def _check_refusal(text: str) -> None:
    text.encode("utf-8")
    assert "\n" not in text, f"a refusal of several lines: {text[:200]!r}"
    assert len(text) <= _MAX_REFUSAL, f"a refusal of {len(text)} characters: {text[:80]!r}"


@contextmanager
def _listening_to_threads(broken: list[BaseException]) -> Iterator[None]:
    """An exception that ends a thread is otherwise printed and forgotten."""
    before = threading.excepthook
    threading.excepthook = lambda args: broken.append(args.exc_value or args.exc_type())
    try:
        yield
    finally:
        threading.excepthook = before


def _json_target(
    parser: str,
    read: Callable[[bytes, Choices], None],
    documents: Sequence[Any],
    *,
    write: Callable[[Any, Choices], bytes] | None = None,
    raw: Sequence[bytes] | None = None,
) -> Target:
    """A target whose files are JSON: as they are, or one of ``documents`` with edits.

    ``read`` also gets what is left of the choices. ``write`` puts an edited document into the
    file's own format; ``raw`` are whole files where they are not the documents as JSON.
    """
    words = words_of(documents)
    put = write or _as_json

    def read_input(data: bytes) -> None:
        if data[:1] != EDITED:
            read(data[1:], Choices(b""))
            return
        choices = Choices(data[1:])
        document = edited(documents, words, choices)
        read(put(document, choices), choices)

    files = [put(d, Choices(b"")) for d in documents] if raw is None else raw
    seeds = [RAW + file for file in files]
    seeds += [EDITED + bytes([i, 0]) for i in range(len(documents))]
    return Target(parser, read_input, tuple(seeds), words)


def _as_json(document: Any, choices: Choices) -> bytes:
    return deepened(json.dumps(document), choices).encode()


def _as_yaml(document: Any, choices: Choices) -> bytes:
    return deepened(flow_yaml(document, choices), choices).encode("utf-8", "replace")


# ---- the advisor's files ------------------------------------------------------------------------


def _config() -> Target:
    from advisor.check import check_values
    from advisor.cli_check import report_text
    from advisor.schema import ENGINES
    from advisor.sources import parse_config
    from app import advice_view

    healthy = _healthy()
    drafts, targets = [pair[0] for pair in healthy], [pair[1] for pair in healthy]
    tokenizers = [
        {"added_tokens_decoder": {"7": {"content": "<eos>"}}, "eos_token": "<eos>",
         "chat_template": "{{ x }}", "add_bos_token": False, "model": {"vocab": {"a": 0}},
         "added_tokens": [{"id": 9, "content": "<m>"}], "mask_token": {"content": "<m>"}},
        {"eos_token_id": [7, 8], "pad_token_id": 7},
    ]  # fmt: skip
    gguf = drafts[-1]
    drafts.append({"metadata": {k: {"value": v} for k, v in gguf.items()}})  # as gguf-dump writes
    drafts.append({"dflash": {"block_size": 16, "target_layers": [2]}, "general": {"name": "x"}})

    def read(data: bytes, choices: Choices) -> None:
        others = [choices.pick(drafts), choices.pick(targets), choices.pick(tokenizers)]
        others[choices.below(3)] = parse_config(data)
        draft, target, tokenizer = others
        report = check_values(
            draft, target=target, tokenizer=tokenizer, engine=choices.pick((None, *ENGINES))
        )
        json.dumps(report.as_json(), allow_nan=False)
        shown = report_text(report) + advice_view.findings(report.findings)
        shown.encode("utf-8")
        assert len(shown) < 200_000, f"{len(shown)} characters of findings"

    return _json_target(
        "draft, target, tokenizer and GGUF-metadata JSON (check)",
        read,
        [*drafts, *targets, *tokenizers],
    )


def _recommend() -> Target:
    from advisor.cli_recommend import as_json, as_text
    from advisor.exports import yaml_file
    from app.advice_form import AdviceForm, ask

    pairs = _healthy()
    documents = [
        {"draft": draft, "target": target, "tau": "3@8", "hardware": "h200", "mode": "",
         "policy": "evidence", "prompt_tokens": 9000, "temperature": 0.0, "concurrency": 1,
         "params": "4B", "task": "code", "engine": "vllm"}
        for draft, target in pairs
    ]  # fmt: skip

    def read(data: bytes, choices: Choices) -> None:
        asked = _object(data)
        draft, target = asked.pop("draft", None), asked.pop("target", None)
        with _file(json.dumps(target).encode()) as path:
            form = AdviceForm(
                pasted_draft="" if draft is None else json.dumps(draft),
                target=None if target is None else str(path),
                **_form_values(asked),
            )
            answer = ask(form)
        json.dumps(as_json(answer), allow_nan=False)
        as_text(answer).encode("utf-8", "backslashreplace")
        again = yaml_file.parse(yaml_file.dump(answer), name="the file")
        assert yaml_file.dump(again) == yaml_file.dump(answer), "reads differently when written"

    return _json_target("the Advisor's form with pasted configs (recommend)", read, documents)


def _form_values(asked: dict[str, Any]) -> dict[str, Any]:
    """The fields of a form with the types that Gradio gives them; others are left out."""
    texts = ("tau", "hardware", "mode", "policy", "params", "task", "engine")
    numbers = ("prompt_tokens", "temperature", "concurrency")
    found: dict[str, Any] = {n: asked[n] for n in texts if isinstance(asked.get(n), str)}
    for name in numbers:
        value = asked.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
            found[name] = value
    return found


def _recommendation() -> Target:
    from advisor import exports
    from advisor.answer import recommend_for
    from advisor.cli_recommend import as_json
    from advisor.exports import yaml_file
    from advisor.gather import Request
    from app.advice_view import against
    from app.advice_wiring import advice_outputs

    asked = (
        Request(draft="qwen3-8b", target="qwen3-8b", hardware="h200", tau=3.0, tau_block_size=8),
        Request(params=4_000_000_000, mode="train", prompt_tokens=9000),
    )
    answers = [recommend_for(request) for request in asked]
    documents = [{**as_json(answer), "exports": {}, "export_notes": {}} for answer in answers]
    files = [yaml_file.dump(answer).encode() for answer in answers]

    def read(data: bytes, choices: Choices) -> None:
        answer = yaml_file.parse(data.decode("utf-8", "surrogateescape"), name="the file")
        json.dumps(as_json(answer), allow_nan=False).encode("utf-8")
        against(answer, answer).encode("utf-8")
        to = choices.pick(exports.FORMATS)
        with (
            tempfile.TemporaryDirectory(dir=_home().name) as downloads,
            patch.object(tempfile, "tempdir", downloads),
        ):
            outputs = advice_outputs(answer, to)
        for text in outputs[1:5]:
            text.encode("utf-8")
        written = yaml_file.dump(answer)
        assert yaml_file.dump(yaml_file.parse(written, name="the file")) == written

    return _json_target(
        "recommendation files (strict YAML, exports, the Advisor's page)",
        read,
        documents,
        write=_as_yaml,
        raw=files,
    )


def _yaml() -> Target:
    from advisor.catalog import GuidePreset, HardwarePreset, WorkloadPreset
    from dflash.presets import PairPreset
    from dflash.strict_yaml import StrictModel, parse_yaml, validated

    models = {
        "pairs": PairPreset,
        "hardware": HardwarePreset,
        "workloads": WorkloadPreset,
        "guide": GuidePreset,
    }
    paths = [sorted((ROOT / "presets" / name).glob("*.yaml"))[0] for name in models]
    paths.append(ROOT / "presets" / "pairs" / "demo.yaml")
    files = [path.read_bytes() for path in paths]
    documents = [parse_yaml(file.decode(), name="seed") for file in files]

    def fit(values: Any, model: type[StrictModel]) -> None:
        found = validated(values, model, name="a file")
        assert model.model_validate_json(found.model_dump_json(), strict=False) == found

    def read(data: bytes, choices: Choices) -> None:
        values = parse_yaml(data.decode("utf-8", "surrogateescape"), name="a file")
        _all_that_read(*(functools.partial(fit, values, model) for model in models.values()))

    return _json_target(
        "strict YAML (catalogue, machines, workloads, guide)",
        read,
        documents,
        write=_as_yaml,
        raw=files,
    )


def _evidence() -> Target:
    from advisor.answer import recommend_for
    from advisor.cli_recommend import as_json
    from advisor.evidence_files import read_costs, read_tau_per_position
    from advisor.gather import Request
    from dflash.measurements import Calibration, TuneResult, save
    from dflash.measurements import load as load_measurement

    provenance = {"target_id": "t", "draft_id": "d", "machine_id": "m", "machine": "2 cores",
                  "date": "2026-12-01T10:00:00+00:00", "versions": {"torch": "2"}}  # fmt: skip
    costs = {"ar_step_s": 0.01, "draft_s": {"4": 0.001, "8": 0.002}, "verify_s": {"4": 0.02}}
    block = {"block_size": 4, "decode_speedup": {"median": 1.5, "low": 1.4, "high": 1.6, "n": 8}}
    documents = [
        costs,
        [0.9, 0.5, 0.25],
        {"kind": "calibration", "schema_version": 1, "provenance": provenance,
         "by_context": [{"context_tokens": 64, **costs}], "tau_per_position": [0.5],
         "tau_by_block": {"4": 2.5}, "num_prompts": 8},
        {"kind": "tune", "schema_version": 1, "provenance": provenance, "tuned": [block],
         "judged": block, "num_tuning_prompts": 6, "num_judging_prompts": 6},
    ]  # fmt: skip

    def advise(**files: str) -> None:
        answer = recommend_for(Request(draft="qwen3-8b", hardware="h200", **files))
        json.dumps(as_json(answer), allow_nan=False)

    def read_measurement(path: Path, model: type[Calibration] | type[TuneResult]) -> None:
        found = load_measurement(path, model)
        saved = save(found, path.parent)
        assert load_measurement(saved, model) == found, "reads differently when written"
        saved.unlink()

    def read(data: bytes, choices: Choices) -> None:
        with _file(data) as path:
            _all_that_read(
                functools.partial(read_measurement, path, Calibration),
                functools.partial(read_measurement, path, TuneResult),
                lambda: read_costs(path) and advise(costs=str(path)),
                lambda: read_tau_per_position(path) and advise(tau_per_position=str(path)),
            )

    return _json_target("--costs, --tau-per-position, the measurements store", read, documents)


# ---- weights ------------------------------------------------------------------------------------


def _gguf() -> Target:
    from advisor.check import check_case
    from advisor.checkpoint import read_draft, read_target
    from advisor.gguf_header import read_gguf
    from advisor.rules import Case

    configs = _doctor_configs()
    metadata = configs.gguf_metadata()
    shapes = {"fc.weight": [20480, 4096], "output.weight": [4096, 151936]}
    kinds = {"general.name": "x", "tokenizer.ggml.tokens": ["a", "b"], "n": -1, "on": True}
    files = []
    with _file(b"") as path:
        for pairs, tensors in ((metadata | kinds, shapes), (kinds, None), (metadata, None)):
            configs.write_gguf(path, pairs, tensors)
            files.append(path.read_bytes())
    target = configs.target_8b()

    def read(data: bytes) -> None:
        with _file(data) as path:
            raw, tensors = read_gguf(path)
        draft = read_draft(raw, tensor_shapes=tensors)
        as_target = read_target(raw, tensor_shapes=tensors)
        for other in (as_target, read_target(target)):
            found = check_case(Case(draft=draft.spec, target=other.spec), draft.findings)
            json.dumps(found.as_json(), allow_nan=False)

    words = words_of([metadata, kinds, shapes])
    return Target("GGUF headers (and the check of what they say)", read, tuple(files), words)


def _safetensors() -> Target:
    from advisor.check import check_case
    from advisor.checkpoint import read_draft
    from advisor.rules import Case
    from advisor.safetensors_header import INDEX_NAME, read_weights_header

    config = _doctor_configs().zlab_4b()
    shapes = _doctor_configs().draft_shapes(config)
    header = {
        "__metadata__": {"format": "pt"},
        **{
            name: {"dtype": "BF16", "shape": shape, "data_offsets": [0, 2]}
            for name, shape in shapes.items()
        },
    }
    index = {"metadata": {}, "weight_map": dict.fromkeys(shapes, "model-00001.safetensors")}

    def write(document: Any, choices: Choices) -> bytes:
        body = _as_json(document, choices)
        length = len(body) + choices.pick((0, 0, 0, 0, 1, -1, 2**62))
        return length.to_bytes(8, "little") + body + b"\0" * choices.pick((2, 0, 1))

    def read(data: bytes, choices: Choices) -> None:
        name = INDEX_NAME if data[:1] == b"{" else "model.safetensors"
        with _file(data, name) as path:
            found = read_weights_header(path.parent)
        if found is None:
            return
        draft = read_draft(config, tensor_shapes=found.shapes)
        json.dumps(check_case(Case(draft=draft.spec), draft.findings).as_json(), allow_nan=False)

    whole = [write(header, Choices(b"")), json.dumps(index).encode()]
    return _json_target("safetensors headers and indexes", read, [header], write=write, raw=whole)


# ---- what visitors open and send ----------------------------------------------------------------


def _race() -> Target:
    from app import card, headline
    from app.finished import replay_text
    from app.runs import dump_run, load_run
    from dflash.trace_file import trace_from_dict, trace_to_dict

    documents = [_short_race(path) for path in sorted((ROOT / "presets/traces").glob("*.json"))]

    def read(data: bytes, choices: Choices) -> None:
        run = load_run(data.decode("utf-8", "replace"), source="opened")
        again = load_run(dump_run(run), source="opened")
        assert replace(again, odds=()) == replace(run, odds=()), "reads differently when written"
        for trace in (run.baseline, run.dflash):
            assert trace_from_dict(trace_to_dict(trace)) == trace
        stage = replay_text(run)
        for line in stage.rstrip("\n").split("\n"):
            json.loads(line, parse_constant=_refuse)
        files = json.loads(card.takeaway(run, "v=1"), parse_constant=_refuse)
        shown = stage + headline.headline(run) + json.dumps(files, ensure_ascii=False)
        shown.encode("utf-8")

    return _json_target("saved races and their traces (and what the page shows)", read, documents)


def _link() -> Target:
    from app.form import PlaygroundForm
    from app.share import link_query, read_link

    plain = PlaygroundForm("demo", "", "", "hello", 8, 64, 0.0, 0, 0, 1.0, False)
    full = PlaygroundForm("demo", "a/b", "c/d", "x & y = ü\n", 4, 9, 0.7, 5, 20, 0.9, True)
    queries = [link_query(plain) or "", link_query(full) or ""]
    documents = [dict(parse_qsl(query)) for query in queries]
    known = frozenset({"demo"})

    def read(data: bytes, choices: Choices) -> None:
        text = data.decode("utf-8", "replace")
        fields = read_link(dict(parse_qsl(text, keep_blank_values=True)), known_pairs=known)
        form = replace(plain, **fields)
        query = link_query(form)
        if query is not None:
            again = replace(plain, **read_link(dict(parse_qsl(query)), known_pairs=known))
            kept = replace(form, temperature=again.temperature, top_p=again.top_p)
            assert again == kept or "" in (form.target, form.draft, form.prompt), (form, again)
        form.request()

    return _json_target(
        "share links",
        read,
        documents,
        write=lambda document, choices: (
            urlencode(document, errors="replace").encode()
            if isinstance(document, dict)
            else json.dumps(document).encode()
        ),
    )


def _prompts() -> Target:
    from dflash.benchmark.prompts import read_jsonl

    rows = [
        {"category": "chat", "turns": ["Hello?", "And then?"]},
        {"category": "math", "prompt": "1 + 1", "answer": "2"},
    ]

    def read(data: bytes, choices: Choices) -> None:
        with _file(data, "rows.jsonl") as path:
            for prompt in read_jsonl(path):
                assert prompt.turns and all(turn.strip() for turn in prompt.turns)
                json.dumps(prompt.turns, ensure_ascii=False).encode("utf-8")

    def write(document: Any, choices: Choices) -> bytes:
        return b"\n".join(_as_json(row, choices) for row in (document, choices.pick(rows)))

    return _json_target("prompt files (JSONL)", read, rows, write=write)


def _typed() -> Target:
    from advisor.cli_check import parse_settings
    from app.advice_form import AdviceForm, settings_from
    from app.hosted import limits_from
    from dflash.engines.url_guard import UrlGuard

    documents = [
        {"url": "http://127.0.0.1:8000/v1", "baseline": "https://example.com", "key": "k",
         "settings": {"block_size": 8, "target_layer_ids": [1, 2], "temperature": 0.5},
         "set": ["block_size=8", "sliding_window_size=none"], "params": "4B", "tau": "3@8",
         "prompt_tokens": 9000, "concurrency": 1, "temperature": 0.0, "hardware": "h200",
         "task": "code", "mode": "serve", "policy": "guide", "engine": "vllm"},
        {"url": "http://[::1]:8000", "baseline": "http://0x7f.1", "set": ["temperature=nan"]},
    ]  # fmt: skip
    hosted = limits_from({"DFLASH_HOSTED": "1"})

    def tries(asked: dict[str, Any]) -> Iterator[Callable[[], object]]:
        for name in ("url", "baseline"):
            text = str(asked.get(name, ""))
            yield functools.partial(UrlGuard().check, text)
            yield functools.partial(UrlGuard(["example.com:443"]).check, text)
            yield functools.partial(hosted.check_model_names, draft=text)
        yield lambda: settings_from(asked.get("settings") or None)
        listed = asked.get("set")
        yield lambda: parse_settings([str(s) for s in listed] if isinstance(listed, list) else [])
        yield lambda: AdviceForm(**_form_values(asked)).request().__enter__()

    def read(data: bytes, choices: Choices) -> None:
        asked = _object(data)
        if not isinstance(asked.get("settings"), dict | None):
            del asked["settings"]
        _all_that_read(*tries(asked))

    return _json_target("what is typed: server URLs, --set, the Advisor's fields", read, documents)


# ---- servers ------------------------------------------------------------------------------------


def _sse() -> Target:
    from dflash.engines import sse
    from dflash.engines.answer import Answer

    files = [path.read_bytes() for path in sorted(_SERVERS.glob("*.sse"))]

    def events(parts: list[bytes]) -> tuple[list[dict[str, Any]], DFlashError | None]:
        found: list[dict[str, Any]] = []
        try:
            # A limit that inputs of a fuzzer's size reach.
            with patch.object(sse, "MAX_EVENT_BYTES", _MAX_EVENT_BYTES):
                for event in sse.read_events(parts):
                    found.append(event)
        except DFlashError as error:
            _check_refusal(str(error))
            return found, error
        return found, None

    def read(data: bytes) -> None:
        choices = Choices(data[:8])
        stream = data[8:]
        ends = sorted(choices.below(1 + len(stream)) for _ in range(4))
        cut = [stream[a:b] for a, b in pairwise([0, *ends, len(stream)])]
        whole, fault = events([stream])
        parts, other = events(cut)
        longest = max((len(json.dumps(event, ensure_ascii=False)) for event in whole), default=0)
        assert longest <= 2 * _MAX_EVENT_BYTES, f"an event of {longest} characters got through"
        is_length = any("over 4 MB" in str(error) for error in (fault, other))
        if not is_length:
            assert parts == whole and str(fault) == str(other), "cutting the bytes changed them"
        answer = Answer()
        for number, event in enumerate(whole):
            for chunk in answer.add(float(number), event):
                chunk.text.encode("utf-8")
        if fault is not None:
            raise fault
        answer.finished("http://a.b")(None)

    words = ("data:", "data: ", "data: [DONE]\n\n", "\r\n", "\r", "\n\n", ": ", "event: x\n",
             '"error":', '"choices":[{', '"delta":{"content":', "\\ud800", "\u2028")  # fmt: skip
    cuts = (bytes(8), bytes((0, 16, 0, 64, 1, 0, 2, 0)))
    seeds = tuple(cut + file for cut in cuts for file in files)
    return Target("SSE streams, cut anywhere", read, seeds, words)


def _server() -> Target:
    from dflash.engines import open_engine, remote
    from dflash.engines.counters import read_counters, spec_between
    from dflash.schema import Message, Request, SamplingParams, Trace
    from dflash.trace_file import trace_from_dict, trace_to_dict

    metrics = [path.read_text("utf-8") for path in sorted(_SERVERS.glob("*metrics*.txt"))]
    request = Request((Message("user", "1 + 1?"),), SamplingParams(max_new_tokens=8), 16)

    def check_counters(text: str) -> None:
        for prefix in ("vllm", "llamacpp"):
            counters = read_counters(text, prefix=prefix)
            before = read_counters(metrics[-1], prefix=prefix)
            if counters is None or before is None:
                continue
            for spec in (spec_between(before, counters), spec_between(counters, counters)):
                assert spec is None or 0 <= spec.num_accepted_tokens <= spec.num_draft_tokens

    def read(data: bytes, choices: Choices) -> None:
        if data[:1] != b"{":
            check_counters(data.decode("utf-8", "replace"))
            return
        with patch.object(remote, "_COUNTER_WAIT_S", 0.0):
            serve(_object(data), choices)

    def serve(told: dict[str, Any], choices: Choices) -> None:
        backend = choices.pick(("vllm", "sglang", "llamacpp"))
        engine = open_engine(
            backend,
            base_url="http://a.test:8000",
            baseline_url=choices.pick(("http://b.test:8000", None)),
            needs_both=False,
            make_transport=lambda: httpx.MockTransport(functools.partial(_answered, told)),
        )
        for state in engine.server_states():
            _check_refusal(state.sentence)
        trace = Trace(request, engine.info, tuple(engine.stream(request)))
        written = json.dumps(trace_to_dict(trace), ensure_ascii=False, allow_nan=False)
        written.encode("utf-8")
        assert trace_from_dict(json.loads(written)) == trace, "a served run does not open again"
        parting = engine.served_divergence(request)
        if parting is not None:
            json.dumps([parting.verdict, parting.dflash_text], ensure_ascii=False).encode("utf-8")

    return _json_target(
        "what servers send: models, status, metrics, events, answers (vLLM, SGLang, llama.cpp)",
        read,
        _server_documents(metrics),
        raw=[text.encode() for text in metrics],
    )


def _server_documents(metrics: list[str]) -> list[dict[str, Any]]:
    """One server each as a value: what it says under every path, and the events of its answer."""
    from dflash.engines.sse import read_events

    token = {"token": "2", "logprob": -0.1, "top_logprobs": [{"token": "2", "logprob": -0.1}]}
    answers = [
        json.loads(path.read_text()) for path in sorted(_SERVERS.glob("sglang-*-names.json"))
    ]
    return [
        {
            "/v1/models": {"object": "list", "data": [{"id": "tiny"}]},
            "/metrics": metrics[i % len(metrics)],
            "/version": {"version": "0.32"},
            "/server_info": json.loads((_SERVERS / "sglang-0.5.15-server-info.json").read_text()),
            "/props": json.loads((_SERVERS / "llamacpp-b9001-props.json").read_text()),
            "answer": answers[i % len(answers)]
            | {"choices": [{"logprobs": {"content": [token]}, "message": {"content": "2"}}]},
            "events": list(read_events([path.read_bytes()])),
            "status": 200,
        }
        for i, path in enumerate(sorted(_SERVERS.glob("*.sse")))
    ]


def _answered(told: dict[str, Any], request: httpx.Request) -> httpx.Response:
    """A server that says what it was told to say, of whatever type that is."""
    found, path = told.get(request.url.path), request.url.path
    if path != "/v1/chat/completions":
        if found is None:
            return httpx.Response(404, json={"detail": "Not Found"})
        text = found if isinstance(found, str) else json.dumps(found)
        return httpx.Response(200, content=text.encode("utf-8", "replace"))
    status = told.get("status")
    status = status if isinstance(status, int) and 200 <= status < 600 else 200
    if not json.loads(request.content).get("stream"):
        return httpx.Response(status, content=json.dumps(told.get("answer")).encode())
    events = told.get("events")
    lines = [f"data: {json.dumps(e)}\n\n" for e in (events if isinstance(events, list) else [])]
    return httpx.Response(
        status, content="".join(lines).encode(), headers={"content-type": "text/event-stream"}
    )


# ---- odds and ends ------------------------------------------------------------------------------


def _all_that_read(*readers: Callable[[], object]) -> None:
    """Try every reader of one input; raises the first refusal when none of them takes it."""
    refusals: list[DFlashError] = []
    for reader in readers:
        try:
            reader()
        except DFlashError as error:
            _check_refusal(str(error))
            refusals.append(error)
    if len(refusals) == len(readers):
        raise refusals[0]


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def _object(data: bytes) -> dict[str, Any]:
    """The object in a seed or an edited one. Raises ``DFlashError``: no parser of ours is asked."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DFlashError("not a JSON object.") from error
    if not isinstance(value, dict):
        raise DFlashError("not a JSON object.")
    return value


@functools.cache
def _home() -> tempfile.TemporaryDirectory[str]:
    """A folder in memory where there is one: a campaign writes a million small files."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(
        prefix="dflash-fuzz-", dir=memory if memory.is_dir() else None
    )


@contextmanager
def _file(data: bytes, name: str = "file.json") -> Iterator[Path]:
    path = Path(_home().name) / name
    path.write_bytes(data)
    try:
        yield path
    finally:
        path.unlink()


def _doctor_configs() -> Any:
    """The tests' healthy configs in every dialect."""
    tests = str(ROOT / "tests")
    if tests not in sys.path:
        sys.path.append(tests)
    import doctor_configs

    return doctor_configs


def _healthy() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return list(_doctor_configs().HEALTHY.values())


def _short_race(path: Path) -> dict[str, Any]:
    """A recorded race cut after a few events: edits are to meet every field, not every event."""
    race = json.loads(path.read_text(encoding="utf-8"))
    for lane in ("baseline", "dflash"):
        events = race[lane]["events"]
        race[lane]["events"] = [*events[:3], events[-1]]
    race["odds"] = race["odds"][:2]
    race["words"] = dict(list(race["words"].items())[:8])
    return race


TARGETS: dict[str, Callable[[], Target]] = {
    "config": _config,
    "recommend": _recommend,
    "recommendation": _recommendation,
    "gguf": _gguf,
    "safetensors": _safetensors,
    "race": _race,
    "link": _link,
    "yaml": _yaml,
    "sse": _sse,
    "server": _server,
    "evidence": _evidence,
    "prompts": _prompts,
    "typed": _typed,
}
