"""The Advisor tab and its endpoints, without a browser: form to request, answer to markup."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import gradio as gr
import pytest

from advisor import recommend as advisor
from advisor.exports import yaml_file
from advisor.schema import Costs
from advisor.situation import Situation, Tuned, TunedPoint
from app import advice_view
from app.advice_beside import advice_for, prompt_tokens
from app.advice_form import AdviceForm, ask, settings_from
from app.advice_wiring import advice_outputs
from app.api import check, export, recommend
from app.charts_advice import speedup_curve
from app.session import PairChoice
from app.tabs.advisor import build_advisor
from dflash.errors import DFlashError

Z_LAB = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "block_size": 16,
    "num_target_layers": 36,
    "num_hidden_layers": 5,
    "hidden_size": 2560,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 9728,
    "vocab_size": 151936,
    "rope_theta": 1000000,
    "max_position_embeddings": 40960,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
}


def test_a_size_and_a_prompt_length_are_enough_for_all_four_knobs():
    answer = ask(AdviceForm(params="4B", prompt_tokens=800, policy="guide"))
    assert answer.knobs["block_size"].value == 2
    assert set(answer.knobs) == {
        "block_size",
        "target_layer_ids",
        "sliding_window_size",
        "mask_token_id",
    }


def test_a_pasted_config_is_read_like_a_file_and_is_gone_afterwards():
    form = AdviceForm(pasted_draft=json.dumps(Z_LAB))
    with form.request() as request:
        path = request.draft
    answer = ask(form)
    assert list(answer.knobs["target_layer_ids"].value) == [1, 9, 17, 25, 33]
    assert not answer.knobs["mask_token_id"].tunable
    with pytest.raises(FileNotFoundError):
        Path(path).read_text()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"params": "many"}, "no parameter count"),
        ({"prompt_tokens": "2.5"}, r"prompt tokens must be a whole number from 0 .*got '2\.5'"),
        ({"prompt_tokens": "many"}, "got 'many'. Leave it empty if it is not known"),
        ({"prompt_tokens": 10**400}, "whole number"),
        ({"concurrency": 1.5}, r"concurrency must be a whole number from 1 .*got 1\.5"),
        ({"temperature": -1.0}, "'-1.0' is no temperature"),
        ({"tau": "0.5"}, "no tau"),
        ({"task": "poetry"}, "task 'poetry' is unknown"),
        ({"draft": "no/such/folder/anywhere"}, "no/such/folder/anywhere"),
        ({"pasted_draft": "x" * 2_000_001}, "over 2 MB"),
    ],
)
def test_a_field_that_is_off_is_named_in_one_sentence(fields, words):
    with pytest.raises(DFlashError, match=words):
        ask(AdviceForm(**fields))


@pytest.mark.parametrize(("typed", "understood"), [("", None), (" ", None), (" 800 ", 800)])
def test_a_prompt_length_that_is_left_empty_is_unknown(typed, understood):
    with AdviceForm(prompt_tokens=typed).request() as request:
        assert request.prompt_tokens == understood


def test_no_number_of_the_form_starts_empty_or_is_changed_before_it_is_read():
    """Gradio draws an empty number as 0, rounds in silence and names no field when it refuses."""
    with gr.Blocks():
        numbers = [part for part in build_advisor().form if isinstance(part, gr.Number)]
    assert [number.label for number in numbers if number.value is None] == []
    assert [number.preprocess(-1.5) for number in numbers] == [-1.5] * len(numbers)


def test_what_a_config_says_is_shown_as_text_not_markup():
    evil = "<img src=x onerror=alert(1)>"
    config = Z_LAB | {"_name_or_path": evil, "model_type": evil}
    answer = ask(AdviceForm(pasted_draft=json.dumps(config), target=None))
    page = "".join(str(part) for part in advice_outputs(answer, "vllm")[1:8])
    assert "<img" not in page


def test_every_number_of_the_answer_carries_a_badge():
    answer = ask(AdviceForm(draft="qwen3-8b", hardware="rtx-4090", task="code"))
    assert advice_view.verdict(answer).count('class="badge') == 3
    assert advice_view.knobs(answer).count('class="badge') == 4
    chart = speedup_curve(answer)
    assert chart.figure is not None
    assert len(chart.rows) >= 15


def test_every_figure_of_the_training_plan_carries_a_badge_and_its_reason():
    answer = ask(AdviceForm(target="qwen3-8b", mode="train", hardware="rtx-4090"))
    rows = advice_view.training(answer).split("<tr>")[1:]
    assert [row.count('class="badge') for row in rows] == [1] * len(answer.training)
    decay = next(row for row in rows if "loss decay gamma" in row)
    assert "<td>7 </td>" in decay and "badge-published" in decay and 'href="https://' in decay
    saved_before = replace(answer, training={"loss_decay_gamma": 7})
    assert "badge-unknown" in advice_view.training(saved_before)


def test_guide_and_evidence_stand_side_by_side():
    form = AdviceForm(draft="qwen3-8b", hardware="rtx-4090", task="code")
    table = advice_view.against(ask(form), ask(form.with_policy("guide")))
    assert "<td>2</td><td>16</td>" in table
    assert "151643" in table
    assert "151669" in table


def test_the_endpoints_answer_like_the_command_line():
    report = check(json.dumps(Z_LAB), settings={"block_size": 32})
    assert [f["field"] for f in report["findings"] if f["severity"] == "error"] == ["block_size"]
    answer = recommend(draft="qwen3-8b", hardware="rtx-4090", task="code")
    assert answer["knobs"]["block_size"]["value"] == 16
    written = export(answer["yaml"], "vllm")
    assert '"num_speculative_tokens": 15' in written["text"]
    assert yaml_file.parse(answer["yaml"], name="it").knobs["block_size"].value == 16


def test_settings_are_read_as_the_command_line_reads_them():
    settings = settings_from({"target_layer_ids": [1, 2], "enable_thinking": True})
    assert settings.target_layer_ids == (1, 2)
    assert settings.enable_thinking is True
    with pytest.raises(DFlashError):
        settings_from({"blocksize": 4})


def test_advice_beside_the_controls_counts_the_prompt_with_the_pairs_own_tokenizer():
    class Engine:
        def encode(self, messages, **_):
            return [0] * (7 + len(messages[0].content))

    class Pool:
        def __init__(self, engine):
            self.peek = lambda choice: engine

    choice = PairChoice("qwen3-8b")
    assert prompt_tokens(Pool(Engine()), choice, "abc") == 10
    assert prompt_tokens(Pool(None), choice, "abc") is None
    line = advice_view.advice_line(advice_for(Pool(Engine()), choice, "abc"))
    assert "Advised: <strong>16</strong>" in line
    assert 'class="badge' in line


def test_the_page_speaks_of_its_fields_and_never_of_command_line_flags():
    for form in (
        AdviceForm(),
        AdviceForm(params="4B"),
        AdviceForm(draft="qwen3-8b", hardware="auto"),
    ):
        page = "".join(str(part) for part in advice_outputs(ask(form), "vllm")[1:8])
        assert " --" not in page
        assert "(--" not in page
        assert "&#x27;value&#x27;" not in page


def test_the_page_speaks_of_its_own_tabs_where_the_command_line_has_a_command():
    answer = ask(AdviceForm(draft="qwen3-8b", hardware="rtx-4090"))
    shown = advice_view.findings(answer.findings)
    assert "Measure both: the Benchmark tab</p>" in shown and "--" not in shown.split("http")[0]


COSTS = Costs(0.01, {4: 0.001, 16: 0.002}, {4: 0.011, 16: 0.03})
POINT = TunedPoint(4, 1.8, 1.7, 1.9, 12, tau=3.0)


@pytest.mark.parametrize(
    ("situation", "badge"),
    [
        (Situation(costs=COSTS, tau_per_position=(0.9,) * 15), "calibrated here"),
        (Situation(tuned=Tuned((POINT,), POINT, "tuned here")), "measured here"),
    ],
)
def test_a_block_is_called_measured_only_where_it_was_run(situation, badge):
    answer = advisor.recommend(situation)
    assert answer.knobs["block_size"].rung == "measured"
    assert json.loads(advice_view.block_marks(answer))["rung"] == badge
    for shown in (advice_view.advice_line(answer), advice_view.knobs(answer)):
        assert ("measured here" in shown) == (badge == "measured here")
    verdict = advice_view.verdict(answer)
    assert ("badge-modelled" in verdict.split("speedup")[1]) == (badge == "calibrated here")
