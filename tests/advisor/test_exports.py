"""Every export to the letter, off-by-ones in one place, hostile names harmless, no idle flags."""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.exports import FORMATS, ExportError, commands, render, yaml_file
from advisor.exports.block_counts import block_size_of, engine_count
from advisor.recommend import recommend
from advisor.schema import ENGINES, DraftSpec, ModelShape, TargetSpec, Workload
from advisor.situation import Situation
from dflash.errors import DFlashError

ROOT = Path(__file__).resolve().parents[2]
RAW = {"block_size": 16, "num_hidden_layers": 5, "layer_types": ["full_attention"] * 5, "x": 1}
DRAFT = DraftSpec(
    dialect="z-lab", name="z-lab/Qwen3-8B-DFlash-b16", block_size=16,
    target_layer_ids=(1, 9, 17, 25, 33), mask_token_id=151669,
    shape=ModelShape(num_layers=5, layer_types=("full_attention",) * 5), raw=RAW,
)  # fmt: skip
TARGET = TargetSpec(name="Qwen/Qwen3-8B", shape=ModelShape(num_layers=36))
SHORT = Workload(prompt_tokens=100)
LONG = Workload(prompt_tokens=20_000, concurrency=64)
NASTY = 'it\'s $HOME; rm -rf "x" `id` \\n #é'


def answer(target=TARGET, draft=DRAFT, workload=SHORT, **more):
    return recommend(Situation(target=target, draft=draft, workload=workload, **more))


GOLDEN = {
    "vllm": """vllm serve Qwen/Qwen3-8B --speculative-config '{"method": "dflash", "model": "z-lab/Qwen3-8B-DFlash-b16", "num_speculative_tokens": 15}'""",
    "sglang": "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --speculative-algorithm DFLASH --speculative-draft-model-path z-lab/Qwen3-8B-DFlash-b16 --speculative-num-draft-tokens 16",
    "llamacpp": "llama-server -m Qwen/Qwen3-8B --spec-draft-model z-lab/Qwen3-8B-DFlash-b16 --spec-type draft-dflash --spec-draft-n-max 15",
    "mlx-command": "python -m dflash.benchmark --backend mlx --model Qwen/Qwen3-8B --draft-model z-lab/Qwen3-8B-DFlash-b16 --dataset gsm8k --block-size 16",
    "transformers-command": "python -m dflash.benchmark --backend transformers --model Qwen/Qwen3-8B --draft-model z-lab/Qwen3-8B-DFlash-b16 --dataset gsm8k --block-size 16",
    "tensorrt-llm": """printf '%s\\n' '{"speculative_config": {"decoding_type": "DFlash", "speculative_model": "z-lab/Qwen3-8B-DFlash-b16", "max_draft_len": 15, "mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]}}' > dflash-trtllm.yaml && trtllm-serve Qwen/Qwen3-8B --extra_llm_api_options dflash-trtllm.yaml""",
    "mlx": '''\
"""Generate with DFlash on Apple silicon. The block size counts the anchor."""

from dflash.generate_mlx import stream_generate
from dflash.model_mlx import load, load_draft

model, tokenizer = load('Qwen/Qwen3-8B')
draft = load_draft('z-lab/Qwen3-8B-DFlash-b16')
for response in stream_generate(
    model,
    draft,
    tokenizer,
    "How many positive whole-number divisors does 196 have?",
    block_size=16,
    max_tokens=512,
    temperature=0.0,
):
    print(response.text, end="", flush=True)
print()
''',
    "transformers": '''\
"""Generate with DFlash through transformers. The block size counts the anchor."""

from transformers import AutoModelForCausalLM, AutoTokenizer

from dflash import load_draft

TARGET = 'Qwen/Qwen3-8B'
DRAFT = 'z-lab/Qwen3-8B-DFlash-b16'

tokenizer = AutoTokenizer.from_pretrained(TARGET)
target = AutoModelForCausalLM.from_pretrained(TARGET, dtype="auto").eval()
draft = load_draft(DRAFT, dtype=target.dtype, device=target.device)
messages = [{"role": "user", "content": "How many positive whole-number divisors does 196 have?"}]
inputs = tokenizer.apply_chat_template(
    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
)
input_ids = inputs["input_ids"].to(target.device)
output = draft.spec_generate(
    input_ids=input_ids,
    max_new_tokens=512,
    temperature=0.0,
    target=target,
    block_size=16,
)
print(tokenizer.decode(output[0, input_ids.shape[1] :], skip_special_tokens=True))
''',
    "compose-vllm": """\
services:
  vllm:
    image: vllm/vllm-openai:latest
    command:
    - Qwen/Qwen3-8B
    - --speculative-config
    - '{"method": "dflash", "model": "z-lab/Qwen3-8B-DFlash-b16", "num_speculative_tokens": 15}'
    ports:
    - 127.0.0.1:8000:8000
    volumes:
    - ~/.cache/huggingface:/root/.cache/huggingface
    ipc: host
    deploy:
      resources:
        reservations:
          devices:
          - driver: nvidia
            count: 1
            capabilities:
            - gpu
""",
}


@pytest.mark.parametrize("to", GOLDEN)
def test_the_export_is_exactly_this(to):
    assert render(answer(), to).text == GOLDEN[to]


@pytest.mark.parametrize(
    ("engine", "count"),
    [("vllm", 15), ("sglang", 16), ("llamacpp", 15), ("mlx", 16), ("transformers", 16), ("tensorrt-llm", 15)],
)  # fmt: skip
def test_a_block_of_16_is_counted_as_each_engine_counts(engine, count):
    assert engine_count(engine, 16) == count
    assert block_size_of(engine, count) == 16


def test_every_engine_has_a_command_and_a_format():
    assert set(commands(answer())) == set(ENGINES)
    assert set(ENGINES) < set(FORMATS)


@pytest.mark.parametrize("to", ["vllm", "llamacpp", "tensorrt-llm"])
def test_an_engine_without_a_window_option_says_so_instead_of_a_flag(to):
    written = render(answer(workload=LONG), to)
    assert "window" not in written.text
    assert any("draft-config" in note for note in written.notes)


def test_sglang_and_our_own_engines_take_the_window():
    words = shlex.split(render(answer(workload=LONG), "sglang").text)
    assert words[words.index("--speculative-draft-window-size") + 1] == "4096"
    assert words[words.index("--max-running-requests") + 1] == "64"
    for engine in ("mlx", "transformers"):
        assert "sliding_window_size=4096)" in render(answer(workload=LONG), engine).text
        command = shlex.split(commands(answer(workload=LONG))[engine].text)
        assert command[command.index("--sliding-window-size") + 1] == "4096"


def test_a_trained_window_is_never_imposed_again():
    kinds = ("sliding_attention",) * 4 + ("full_attention",)
    shape = replace(DRAFT.shape, layer_types=kinds, sliding_window=2048)
    trained = answer(draft=replace(DRAFT, shape=shape), workload=LONG)
    for to in ("vllm", "sglang", "mlx", "llamacpp", "transformers"):
        written = render(trained, to)
        assert "window" not in written.text + " ".join(written.notes)


def test_the_windowed_draft_config_changes_only_the_window():
    """Not the direction of attention either: unwritten, a layer made sliding would turn causal."""
    config = json.loads(render(answer(workload=LONG), "draft-config").text)
    kinds = ["sliding_attention"] * 4 + ["full_attention"]
    assert config == {
        **RAW,
        "layer_types": kinds,
        "sliding_window": 4096,
        "use_sliding_window": True,
        "is_causal": False,
    }
    causal = replace(DRAFT, is_causal=True, raw={**RAW, "is_causal": True})
    config = json.loads(render(answer(draft=causal, workload=LONG), "draft-config").text)
    assert config["is_causal"] is True
    with pytest.raises(ExportError, match="no draft config to write"):
        render(answer(workload=SHORT), "draft-config")


def test_an_unknown_name_is_a_placeholder_with_a_note():
    written = render(answer(target=None, draft=None, num_params=8 * 10**9), "vllm")
    assert written.text.startswith("vllm serve TARGET")
    assert "Replace TARGET with your model." in written.notes


@settings(deadline=None)
@given(name=st.text(min_size=1, max_size=40).filter(lambda t: "\x00" not in t) | st.just(NASTY))
def test_any_name_survives_the_shell_python_json_and_yaml_unchanged(name):
    # Lone surrogates are no text that a file or a terminal could carry.
    name = name.encode("utf-8", "replace").decode("utf-8")
    found = answer(target=replace(TARGET, name=name), draft=replace(DRAFT, name=name))
    shown = f"./{name}" if name.startswith("-") else name
    vllm = shlex.split(render(found, "vllm").text)
    assert vllm[2] == shown
    assert json.loads(vllm[4])["model"] == shown
    assert shown in shlex.split(render(found, "sglang").text)
    trt = shlex.split(render(found, "tensorrt-llm").text)
    assert json.loads(trt[2])["speculative_config"]["speculative_model"] == shown
    for script in ("mlx", "transformers"):
        tree = ast.parse(render(found, script).text)
        texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        assert texts.count(shown) >= 2
    compose = yaml.safe_load(render(found, "compose-sglang").text)
    command = compose["services"]["sglang"]["command"]
    assert shown.replace("$", "$$") in command
    for engine in ENGINES:
        for note in render(found, engine).notes:
            assert "\n" not in note


def test_the_scripts_use_names_that_exist():
    for script in ("mlx", "transformers"):
        for node in ast.walk(ast.parse(render(answer(), script).text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dflash"):
                path = ROOT / f"{node.module.replace('.', '/')}.py"
                homes = [path if path.is_file() else ROOT / "dflash" / "__init__.py"]
                source = "".join(home.read_text(encoding="utf-8") for home in homes)
                for alias in node.names:
                    assert f"def {alias.name}(" in source or f'"{alias.name}"' in source


def test_a_real_shell_sees_the_same_words():
    found = answer(target=replace(TARGET, name=NASTY))
    line = render(found, "vllm").text.replace("vllm serve", "printf '%s\\0'", 1)
    done = subprocess.run(["sh", "-c", line], capture_output=True, check=True)
    assert done.stdout.split(b"\0")[0].decode() == NASTY


@settings(deadline=None)
@given(
    prompt=st.none() | st.integers(0, 10**6),
    params=st.none() | st.integers(10**4, 10**13),
    policy=st.sampled_from(["guide", "evidence"]),
    mode=st.sampled_from(["serve", "train"]),
    name=st.text(max_size=20),
)
def test_yaml_reopens_to_the_same_recommendation(prompt, params, policy, mode, name):
    name = name.encode("utf-8", "replace").decode("utf-8")
    found = answer(
        target=replace(TARGET, name=name), num_params=params, policy=policy, mode=mode,
        workload=Workload(prompt_tokens=prompt), inputs={"target": name, "params": params},
    )  # fmt: skip
    assert yaml_file.parse(yaml_file.dump(found), name="file") == found


def test_the_yaml_names_the_versions_that_made_it():
    assert yaml.safe_load(yaml_file.dump(answer()))["versions"]["python"] == sys.version.split()[0]


@pytest.mark.parametrize(
    ("addition", "named"),
    [
        ("evil: 1\n", "unknown key 'evil'"),
        ("<<: {}\n", "unknown key '<<'"),
        ("versions2: !!binary aGk=\n", "tags"),
    ],
)
def test_what_a_saved_file_does_not_have_is_refused(addition, named):
    text = yaml_file.dump(recommend(Situation()))
    with pytest.raises(DFlashError, match=named):
        yaml_file.parse(text + addition, name="rec.yaml")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("curve: []", "curve: [{}]", "curve.0.block_size: Field required"),
        ("curve: []", "curve: [{block_size: 4, tau: x}]", "curve.0.tau"),
        ("training: null", "training: {hours: {value: many}}", "training.hours"),
        ("inputs:\n", "inputs:\n    hardware: [h200]\n", "hardware"),
        ("estimate:\n    tau:", "estimate:\n    eta:", "estimate.tau: Field required"),
    ],
)
def test_what_the_page_would_draw_is_checked_when_a_file_is_opened(old, new, named):
    text = yaml_file.dump(recommend(Situation()))
    assert old in text
    with pytest.raises(DFlashError, match=named):
        yaml_file.parse(text.replace(old, new), name="rec.yaml")


@pytest.mark.parametrize(
    ("value", "words"),
    [('{"a\\nb\\x85": 1}', "hardware"), ("{a: " * 70 + "1" + "}" * 70, "64 deep")],
    ids=["name of two lines", "deep"],
)
def test_a_refusal_is_one_line_whatever_the_file_says(value, words):
    text = yaml_file.dump(recommend(Situation())).replace(
        "inputs:\n", f"inputs:\n    hardware: {value}\n", 1
    )
    with pytest.raises(DFlashError, match=words) as refused:
        yaml_file.parse(text, name="rec.yaml")
    assert len(str(refused.value).encode().splitlines()) == 1


def test_a_tagged_value_is_refused_and_an_exclamation_mark_in_a_text_is_not():
    answer = recommend(Situation())
    text = yaml_file.dump(replace(answer, headline="Use it! <<"))
    assert yaml_file.parse(text, name="rec.yaml").headline == "Use it! <<"
    tagged = text.replace("mode: serve", "mode: !!binary c2VydmU=")
    assert tagged != text
    with pytest.raises(DFlashError, match="tags"):
        yaml_file.parse(tagged, name="rec.yaml")
