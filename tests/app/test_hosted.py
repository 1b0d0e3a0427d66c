"""A public page: what visitors may name, how much they may ask for, and that home has no limits."""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from advisor.exports import FORMATS
from app.advice_form import AdviceForm, ask
from app.advice_wiring import advice_outputs, export_outputs
from app.api import Blocks, add_endpoints, refuse_names
from app.form import OWN_PAIR, PlaygroundForm
from app.hand_out import hand_out
from app.handlers import PlaygroundHandlers
from app.hosted import HOME, limits_from
from app.pair_card import pair_choices
from app.session import EnginePool, PairChoice, Sessions
from app.sweep import SweepForm, sweep
from app.wiring import shown
from dflash.errors import DFlashError

PUBLIC = limits_from({"SPACE_ID": "someone/dflash-playground"})


def form(**changes) -> PlaygroundForm:
    return replace(PlaygroundForm("demo", "", "", "hello", 8, 32, 0.0, 0, 0, 1.0, False), **changes)


def handlers(counting_engine, opened: list) -> PlaygroundHandlers:
    def opener(choice, report):
        opened.append(choice)
        return counting_engine()

    return PlaygroundHandlers(EnginePool(opener), Sessions(), lambda: "here", PUBLIC)


@pytest.mark.parametrize(
    ("environ", "hosted"),
    [
        ({}, False),
        ({"SPACE_ID": ""}, False),
        ({"SPACE_ID": "a/b"}, True),
        ({"DFLASH_HOSTED": "1"}, True),
        ({"SPACE_ID": "a/b", "DFLASH_HOSTED": "0"}, False),
    ],
)
def test_a_space_is_public_unless_its_owner_says_it_is_not(environ, hosted):
    assert limits_from(environ).is_hosted is hosted


def test_a_public_page_serves_the_pairs_that_come_with_it_and_no_others():
    assert {"demo", "smollm2-135m"} == PUBLIC.pair_ids
    ids = {pair_id for _, pair_id in pair_choices(PUBLIC)}
    assert ids == {"demo", "smollm2-135m"}
    assert OWN_PAIR in {pair_id for _, pair_id in pair_choices(HOME)}


def test_the_owner_may_serve_other_pairs_of_the_catalogue_but_no_unknown_ones():
    limits = limits_from({"SPACE_ID": "a/b", "DFLASH_HOSTED_PAIRS": "demo, qwen3-4b"})
    assert limits.pair_ids == {"demo", "qwen3-4b"}
    with pytest.raises(DFlashError, match="qwen3-4bb"):
        limits_from({"SPACE_ID": "a/b", "DFLASH_HOSTED_PAIRS": "qwen3-4bb"})


@pytest.mark.parametrize(
    "changes",
    [
        {"pair_id": OWN_PAIR, "target": "/etc", "draft": "/root"},
        {"pair_id": OWN_PAIR, "target": "someone/huge-model", "draft": "someone/draft"},
        {"pair_id": "qwen3-8b"},
        {"pair_id": "../../../etc/passwd"},
        {"prompt": "word " * 2000},
        {"max_new_tokens": 100_000},
    ],
)
def test_what_is_not_served_is_refused_in_a_sentence_before_anything_is_opened(
    counting_engine, changes
):
    opened: list = []
    views = list(handlers(counting_engine, opened).on_run(form(**changes), "visitor"))
    assert opened == []
    assert len(views) == 1 and views[0].running is False
    assert "here" in views[0].status


def test_a_served_pair_runs_as_at_home(counting_engine):
    opened: list = []
    views = list(handlers(counting_engine, opened).on_run(form(), "visitor"))
    assert opened == [PairChoice("demo")]
    assert views[-1].headline


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../../etc", "~/.ssh", "presets/../../x", "someone/private-model", "file.gguf"],
)
@pytest.mark.parametrize("field", ["draft", "target", "tokenizer"])
def test_the_advisor_reads_no_path_and_no_foreign_hub_id_on_a_public_page(field, name):
    with pytest.raises(DFlashError, match=field):
        PUBLIC.check_advice(AdviceForm(**{field: name}))
    HOME.check_advice(AdviceForm(**{field: name}))


@pytest.mark.parametrize("name", ["qwen3-8b", "Qwen/Qwen3-8B", "", ' {"block_size": 16}'])
def test_catalogue_names_and_pasted_configs_are_welcome_on_a_public_page(name):
    PUBLIC.check_advice(AdviceForm(draft=name, target=name))


def test_endpoints_are_held_to_the_same_names(served_public):
    ok = served_public.predict("qwen3-8b", api_name="/check")
    assert ok["draft"]["block_size"] == 16
    with pytest.raises(Exception, match="no name of the catalogue"):
        served_public.predict("/etc/passwd", api_name="/check")
    with pytest.raises(Exception, match="no name of the catalogue"):
        served_public.predict("qwen3-8b", tokenizer="/etc", api_name="/check")
    with pytest.raises(Exception, match="no name of the catalogue"):
        served_public.predict(draft="/etc/passwd", api_name="/recommend")


@pytest.mark.parametrize(
    ("endpoint", "wrong"),
    [
        ("/check", {"draft": 5}),
        ("/check", {"draft": None}),
        ("/check", {"draft": "qwen3-8b", "settings": "x"}),
        ("/check", {"draft": "qwen3-8b", "prompt_tokens": "x"}),
        ("/check", {"draft": "qwen3-8b", "prompt_tokens": 1.5}),
        ("/check", {"draft": "qwen3-8b", "prompt_tokens": -5}),
        ("/check", {"draft": "qwen3-8b", "max_new_tokens": 10**12}),
        ("/recommend", {"params": 4e9}),
        ("/recommend", {"concurrency": 10**40}),
        ("/export", {"recommendation_yaml": None, "to": "vllm"}),
    ],
)
def test_an_endpoint_names_the_field_it_cannot_read(served_public, endpoint, wrong):
    field = list(wrong)[-1] if endpoint != "/export" else "recommendation_yaml"
    with pytest.raises(Exception, match=f"{field}.* got "):
        served_public.predict(**wrong, api_name=endpoint)


def called(client, endpoint: str, *values) -> str:
    """What plain HTTP answers to values in their order: the kind of the event and its data."""
    url = f"{client.src.rstrip('/')}/gradio_api/call/{endpoint}"
    event = httpx.post(url, json={"data": values}).json()["event_id"]
    return httpx.get(f"{url}/{event}", timeout=60).text


@pytest.mark.parametrize(
    ("endpoint", "values", "said"),
    [
        ("check", [], "/check takes 1 to 7 values, in this order: draft, target, "),
        ("check", ["qwen3-8b"] * 8, "engine, prompt_tokens, max_new_tokens; got 8."),
        ("export", ["x"], "/export takes 2 values, in this order: recommendation_yaml, to; got 1."),
        ("export", ["x", "vllm", 3], "/export takes 2 values"),
        ("check", [5], "draft: input should be a valid string, got 5."),
        (
            "check",
            ["qwen3-8b", "", "", None, "", 10**400, 1],
            "prompt_tokens must be a whole number",
        ),
    ],
)
def test_too_few_too_many_or_wrong_values_are_refused_in_a_sentence(
    served_public, endpoint, values, said
):
    answer = called(served_public, endpoint, *values)
    assert answer.startswith("event: error") and said in answer


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "No value provided for required argument: draft"),
        ({"draft": "qwen3-8b", "drafft": 1}, "Parameter `drafft` is not a valid"),
    ],
)
def test_names_that_do_not_fit_are_refused_in_a_sentence(served_public, fields, said):
    url = f"{served_public.src.rstrip('/')}/gradio_api/call/v2/check"
    answer = httpx.post(url, json=fields)
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(said)


def test_values_left_out_at_the_end_are_fields_left_out(served_public):
    answer = called(served_public, "check", "qwen3-8b")
    assert answer.startswith("event: complete")
    assert json.loads(answer.split("data: ")[1])[0] == served_public.predict(
        "qwen3-8b", api_name="/check"
    )
    assert called(served_public, "recommend").startswith("event: complete")


ROOT = str(Path(__file__).resolve().parents[2])


def places_in(text: str) -> list[str]:
    """The server's own folders that a text names."""
    return [place for place in (ROOT, f"{tempfile.gettempdir()}/dflash-pasted") if place in text]


@pytest.mark.parametrize("draft", ["presets/models/demo/draft", '{"block_size": 8}'])
def test_no_answer_says_where_something_lies_on_the_server(served_public, draft):
    for endpoint in ("/check", "/recommend"):
        said = json.dumps(served_public.predict(draft=draft, api_name=endpoint))
        assert places_in(said) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"draft": "presets/models/demo/draft"},
        {"target": "presets/models/demo/target"},
        {"target": "presets/models/demo/target", "mode": "train"},
        {"pasted_draft": '{"block_size": 8}'},
    ],
)
def test_nothing_in_the_advisor_tab_says_where_something_lies_on_the_server(fields):
    answer = ask(PUBLIC.check_advice(AdviceForm(**fields)))
    *parts, _ = advice_outputs(answer, "vllm")
    download = parts.pop()
    assert places_in("".join(map(str, parts))) == []
    assert places_in(Path(download["value"]).read_text()) == []
    for name in FORMATS:
        text, notes, _ = export_outputs(answer, name)
        assert places_in(text + notes) == []


def test_a_refusal_does_not_say_where_something_lies_on_the_server():
    error = shown(DFlashError(f"folder '{ROOT}/presets/models/demo/draft' has no config.json."))
    assert error.message == "folder 'presets/models/demo/draft' has no config.json."


def test_a_field_sent_as_null_is_a_field_left_out(served_public):
    left_out = served_public.predict("qwen3-8b", api_name="/check")
    assert served_public.predict("qwen3-8b", settings=None, api_name="/check") == left_out
    assert served_public.predict("qwen3-8b", engine=None, api_name="/check") == left_out


def test_a_sweep_on_a_public_page_is_small_and_reads_no_files(counting_engine, tmp_path):
    pool = EnginePool(lambda choice, report: counting_engine())
    small = SweepForm("demo", ["demo"], [4], prompts_per_set=1, repeats=1, max_new_tokens=8)
    secret = tmp_path / "secret.jsonl"
    secret.write_text('{"category": "x", "turns": ["secret"]}\n')
    for changes, why in (
        ({"pair_id": "qwen3-8b"}, "does not run here"),
        ({"prompt_sets": [str(secret)]}, "no prompt set"),
        ({"max_new_tokens": 4096}, "allowed here"),
        ({"prompts_per_set": 12, "repeats": 10, "block_sizes": [2, 4, 8]}, "at most 60"),
    ):
        with pytest.raises(DFlashError, match=why):
            list(sweep(pool, replace(small, **changes), lambda: False, PUBLIC))
    assert not pool.device.locked()


@pytest.fixture(scope="module")
def served_public():
    from gradio_client import Client

    with Blocks() as demo:
        add_endpoints(PUBLIC)
    _, url, _ = demo.launch(
        prevent_thread_lock=True,
        quiet=True,
        app_kwargs={"exception_handlers": {TypeError: refuse_names}},
    )
    yield Client(url, verbose=False)
    demo.close()


def test_an_export_on_a_full_disk_is_a_sentence_beside_the_answer(monkeypatch, tmp_path):
    (tmp_path / "full").write_text("")
    monkeypatch.setattr("app.hand_out.tempfile.mkdtemp", lambda prefix: str(tmp_path / "full"))
    text, note, _ = export_outputs(ask(AdviceForm(draft="qwen3-8b")), "vllm")
    assert text == "" and "could not be written" in note


def test_a_download_is_kept_while_it_is_wanted_and_removed_when_it_is_old(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept, old = (Path(hand_out("run.csv", lambda path: path.write_text("x"))) for _ in range(2))
    long_ago = time.time() - 3600
    os.utime(old.parent, (long_ago, long_ago))
    unrelated = tmp_path / "of-somebody-else"
    unrelated.mkdir()
    os.utime(unrelated, (long_ago, long_ago))
    hand_out("next.csv", lambda path: path.write_text("y"))
    assert kept.exists() and unrelated.exists() and not old.parent.exists()
