"""The command line of ``check``: exit codes, streams, settings, and what counts as a draft."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError

import pytest
from doctor_configs import (
    HEALTHY,
    changed,
    draft_shapes,
    gguf_metadata,
    target_4b,
    target_8b,
    write_gguf,
    write_json,
    write_safetensors,
    zlab_4b,
)

from advisor import hub
from advisor.__main__ import main
from advisor.check import check, check_values
from advisor.cli_check import SettingError, parse_settings
from advisor.cli_rules import rules_markdown
from advisor.sources import load_draft, parse_config

ROOT = Path(__file__).resolve().parents[2]


def outcome(capsys, *argv: str) -> tuple[int, str, str]:
    """Run the command in this process: (exit code, stdout, stderr)."""
    try:
        code = main(["check", *argv])
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_exit_code_0_without_an_error_and_1_with_one(tmp_path, capsys):
    draft = write_json(tmp_path / "draft.json", zlab_4b())
    good = write_json(tmp_path / "good.json", target_4b())
    wrong = write_json(tmp_path / "wrong.json", target_8b())
    assert outcome(capsys, "--draft", draft)[0] == 0
    assert outcome(capsys, "--draft", draft, "--target", good)[0] == 0
    assert outcome(capsys, "--draft", draft, "--target", wrong)[0] == 1
    assert outcome(capsys, "--draft", draft, "--set", "block_size=1")[0] == 0, (
        "a warning is no error"
    )


@pytest.mark.parametrize("name", HEALTHY)
def test_json_output_is_only_json_and_has_the_contracts_keys(name, tmp_path, capsys):
    draft, target = (write_json(tmp_path / f"{i}.json", c) for i, c in enumerate(HEALTHY[name]))
    code, out, err = outcome(capsys, "--draft", draft, "--target", target, "--json")
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert set(answer) == {"draft", "target", "findings"}
    assert answer["draft"]["block_size"] == 16
    assert answer["draft"]["target_layer_ids"] and answer["draft"]["hidden_size"]
    assert answer["target"]["num_hidden_layers"] > 30
    for finding in answer["findings"]:
        assert set(finding) == {"id", "severity", "field", "message", "hint", "evidence"}


def test_the_target_is_null_when_none_was_given(tmp_path, capsys):
    _, out, _ = outcome(capsys, "--draft", write_json(tmp_path / "d", zlab_4b()), "--json")
    assert json.loads(out)["target"] is None


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--draft", "no-such-thing"],
        ["--draft", "no/such/path/config.json"],
        ["--draft", "nul\0byte"],
        ["--draft", "x" * 5000],
        ["--draft", "DRAFT", "--target", "no-such-thing"],
        ["--draft", "DRAFT", "--tokenizer", "no-such-thing"],
        ["--draft", "DRAFT", "--set", "blocksize=8"],
        ["--draft", "DRAFT", "--set", "block_size"],
        ["--draft", "DRAFT", "--set", "block_size=eight"],
        ["--draft", "DRAFT", "--set", "block_size=" + "9" * 5000],
        ["--draft", "DRAFT", "--set", "block_size=1e999"],
        ["--draft", "DRAFT", "--set", "target_layer_ids=[1,[2]]"],
        ["--draft", "DRAFT", "--set", "enable_thinking=maybe"],
        ["--draft", "DRAFT", "--set", "temperature=nan"],
        ["--draft", "DRAFT", "--set", "mask_token_id=<mask>"],
        ["--draft", "DRAFT", "--engine", "tgi"],
        ["--draft", "DRAFT", "--prompt-tokens", "-5"],
        ["--draft", "DRAFT", "--prompt-tokens", "many"],
        ["--draft", "DRAFT", "--surprise"],
    ],
)
def test_what_cannot_be_used_gives_exit_2_and_one_line(argv, tmp_path, capsys):
    draft = write_json(tmp_path / "draft.json", zlab_4b())
    code, out, err = outcome(capsys, *[draft if part == "DRAFT" else part for part in argv])
    assert code == 2 and out == ""
    assert err.count("\n") == 1 and err.endswith("\n") and len(err) < 400


BAD_FILES = {
    "empty": b"",
    "spaces": b"  \n ",
    "not json": b"block_size: 16",
    "cut json": b'{"block_size": 16, "dflash_config": {"mask',
    "a list": b"[1, 2, 3]",
    "a number": b"42",
    "null": b"null",
    "latin-1": '{"name": "café"}'.encode("latin-1"),
    "utf-16": '{"block_size": 16}'.encode("utf-16"),
    "deep": b'{"a":' * 100_000,
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "endless integer": b'{"block_size": ' + b"9" * 10_000 + b"}",
    "gguf magic only": b"GGUF",
    "gguf cut": b"GGUF\x03\x00\x00\x00" + b"\xff" * 16,
    "gguf odd version": b"GGUF\x63\x00\x00\x00" + b"\x00" * 16,
    "binary": bytes(range(256)),
}


@pytest.mark.parametrize("kind", BAD_FILES)
@pytest.mark.parametrize("option", ["--draft", "--target", "--tokenizer"])
def test_an_unreadable_file_gives_exit_2_and_one_line(kind, option, tmp_path, capsys):
    bad = tmp_path / "bad.json"
    bad.write_bytes(BAD_FILES[kind])
    draft = write_json(tmp_path / "draft.json", zlab_4b())
    argv = ["--draft", str(bad)] if option == "--draft" else ["--draft", draft, option, str(bad)]
    code, out, err = outcome(capsys, *argv)
    assert code == 2 and out == "" and err.count("\n") == 1


def test_a_folder_one_may_not_read_gives_exit_2_and_one_line(tmp_path, capsys, monkeypatch):
    def refuse(self, **_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    code, out, err = outcome(capsys, "--draft", str(tmp_path))
    assert code == 2 and out == "" and err.count("\n") == 1 and "PermissionError" in err


def test_a_reader_that_stops_early_brings_no_traceback(tmp_path):
    draft = write_json(tmp_path / "draft.json", changed(zlab_4b(), block_size=0))
    command = f"{sys.executable} -m advisor check --draft {draft} --json | true"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr


def test_a_gguf_with_a_large_vocabulary_is_read_quickly(tmp_path):
    vocabulary = {"tokenizer.ggml.tokens": [f"token {i}" for i in range(150_000)]}
    path = write_gguf(tmp_path / "big.gguf", gguf_metadata() | vocabulary)
    start = time.process_time()
    spec = load_draft(path).spec
    assert spec.target_layer_ids == (1, 9, 17, 25, 33)
    assert spec.shape.vocab_size == 150_000
    assert time.process_time() - start < 1  # about 0.1 s; not by the clock, for busy machines


def test_a_folder_without_a_config_and_one_with_two_ggufs_say_so(tmp_path, capsys):
    code, _, err = outcome(capsys, "--draft", str(tmp_path))
    assert code == 2 and "no config.json" in err
    write_gguf(tmp_path / "a.gguf", gguf_metadata())
    assert outcome(capsys, "--draft", str(tmp_path))[0] == 0
    write_gguf(tmp_path / "b.gguf", gguf_metadata())
    code, _, err = outcome(capsys, "--draft", str(tmp_path))
    assert code == 2 and "2 .gguf files" in err


def test_a_folder_is_checked_with_its_weights_header(tmp_path, capsys):
    write_json(tmp_path / "config.json", zlab_4b())
    weights = tmp_path / "model.safetensors"
    write_safetensors(weights, draft_shapes(zlab_4b()))
    assert outcome(capsys, "--draft", str(tmp_path))[0] == 0
    assert outcome(capsys, "--draft", str(weights))[0] == 0
    write_safetensors(weights, {"fc.weight": [2560, 2560]})
    code, out, _ = outcome(capsys, "--draft", str(tmp_path), "--json")
    assert code == 1
    assert "target_layer_ids" in {f["field"] for f in json.loads(out)["findings"]}


def test_sharded_weights_are_read_from_every_shard(tmp_path, capsys):
    write_json(tmp_path / "config.json", zlab_4b())
    shapes = draft_shapes(zlab_4b())
    first = {name: shape for name, shape in shapes.items() if name.startswith("layers.0")}
    write_safetensors(tmp_path / "model-00001-of-00002.safetensors", first)
    rest = {name: shape for name, shape in shapes.items() if name not in first}
    write_safetensors(tmp_path / "model-00002-of-00002.safetensors", rest)
    assert outcome(capsys, "--draft", str(tmp_path))[0] == 0


def test_tensors_of_shards_that_are_not_here_are_known_by_name(tmp_path, capsys):
    draft = write_json(tmp_path / "draft.json", zlab_4b())
    target = tmp_path / "target"
    write_json(target / "config.json", target_4b() | {"tie_word_embeddings": False})
    names = {"model.embed_tokens.weight": "a", "lm_head.weight": "b"}
    write_json(target / "model.safetensors.index.json", {"weight_map": names})
    assert outcome(capsys, "--draft", draft, "--target", str(target))[0] == 0
    write_json(target / "model.safetensors.index.json", {"weight_map": {"lm_head.weight": "b"}})
    code, out, _ = outcome(capsys, "--draft", draft, "--target", str(target), "--json")
    assert code == 1 and "embeddings" in {f["field"] for f in json.loads(out)["findings"]}


BAD_HEADERS = {
    "empty": b"",
    "short": b"\x10\x00",
    "header beyond the file": b"\xff" * 8 + b"{}",
    "not json": b"\x03\x00\x00\x00\x00\x00\x00\x00abc",
    "a list": b"\x02\x00\x00\x00\x00\x00\x00\x00[]",
    "no shape": b"\x13\x00\x00\x00\x00\x00\x00\x00" + b'{"fc.weight": null}',
    "negative shape": b'\x1d\x00\x00\x00\x00\x00\x00\x00{"fc.weight":{"shape":[-1]}} ',
}


@pytest.mark.parametrize("kind", BAD_HEADERS)
def test_a_broken_weights_header_gives_exit_2_and_one_line(kind, tmp_path, capsys):
    write_json(tmp_path / "config.json", zlab_4b())
    (tmp_path / "model.safetensors").write_bytes(BAD_HEADERS[kind])
    code, out, err = outcome(capsys, "--draft", str(tmp_path))
    assert code == 2 and out == "" and err.count("\n") == 1


def test_weights_cut_off_in_the_middle_are_refused(tmp_path, capsys):
    write_json(tmp_path / "config.json", zlab_4b())
    write_safetensors(tmp_path / "model.safetensors", draft_shapes(zlab_4b()), data=b"\0" * 100)
    code, _, err = outcome(capsys, "--draft", str(tmp_path))
    assert code == 2 and "cut off" in err


def test_control_characters_and_lone_surrogates_never_reach_the_terminal(tmp_path, capsys):
    evil = zlab_4b() | {"_name_or_path": "a\x1b[2Jb\ud800\n", "dtype": "\x1b]0;x\x07"}
    draft = write_json(tmp_path / "draft.json", evil)
    for argv in (["--draft", draft], ["--draft", draft, "--json"]):
        _, out, _ = outcome(capsys, *argv)
        assert "\x1b" not in out and "\x07" not in out and "\ud800" not in out


def test_values_of_the_wrong_type_are_findings_at_their_own_field(tmp_path, capsys):
    wrong = {
        "block_size": "16",
        "mask_token_id": True,
        "target_layer_ids": {"0": 1},
        "hidden_size": float("nan"),
        "rope_theta": float("inf"),
        "num_hidden_layers": 2**70,
        "layer_types": "full_attention",
        "sliding_window": [2048],
        "is_causal": "no",
        "num_target_layers": 36.5,
        "max_position_embeddings": {},
    }
    draft = write_json(tmp_path / "draft.json", zlab_4b() | wrong | {"dflash_config": None})
    code, out, _ = outcome(capsys, "--draft", draft, "--json")
    findings = json.loads(out)["findings"]
    fields = {f["field"] for f in findings if f["id"] == "config.wrong-type"}
    renamed = {"rope_theta": "rope", "max_position_embeddings": "context_length"}
    assert code == 1
    assert fields == {renamed.get(key, key) for key in wrong}


def test_settings_are_read_by_key():
    settings = parse_settings(
        ["block_size=8", "sliding_window_size=none", "target_layer_ids=[1, 9]", "temperature=0.7",
         "enable_thinking=False", "mask_token_id=5", "block_size=4"]
    )  # fmt: skip
    assert (settings.block_size, settings.sliding_window_size) == (4, None)
    assert (settings.target_layer_ids, settings.temperature) == ((1, 9), 0.7)
    assert (settings.enable_thinking, settings.mask_token_id) == (False, 5)
    assert "sliding_window_size" in settings.given
    with pytest.raises(SettingError, match="block_size"):
        parse_settings(["block_sise=8"])


def test_several_settings_follow_one_set_or_each_its_own(tmp_path, capsys):
    draft = write_json(tmp_path / "draft.json", zlab_4b())
    together = ["--set", "block_size=32", "mask_token_id=1"]
    apart = ["--set", "block_size=32", "--set", "mask_token_id=1"]
    answers = [outcome(capsys, "--draft", draft, *s, "--json")[1] for s in (together, apart)]
    fields = {f["field"] for f in json.loads(answers[0])["findings"]}
    assert answers[0] == answers[1]
    assert {"block_size", "mask_token_id"} <= fields


def test_a_targets_own_folder_brings_its_tokenizer(tmp_path, capsys):
    draft = write_json(tmp_path / "draft.json", changed(zlab_4b(), eos_token_id=None))
    write_json(tmp_path / "target" / "config.json", changed(target_4b(), eos_token_id=...))
    write_json(tmp_path / "target" / "generation_config.json", {"eos_token_id": [151669, 151643]})
    code, out, _ = outcome(capsys, "--draft", draft, "--target", str(tmp_path / "target"), "--json")
    assert code == 1
    assert "mask.is-stop-id" in {f["id"] for f in json.loads(out)["findings"]}


def test_names_of_known_drafts_are_found_in_paths_and_configs(tmp_path, capsys):
    broken = changed(zlab_4b(), dflash_config__mask_token_id=151670)
    folder = tmp_path / "models--z-lab--Qwen3-4B-DFlash-b16" / "snapshots" / "0123"
    write_json(folder / "config.json", broken)
    plain_folder = tmp_path / "Qwen3-4B-DFlash-b16"
    write_json(plain_folder / "config.json", broken)
    named = write_json(tmp_path / "x.json", broken | {"_name_or_path": "z-lab/Qwen3-4B-DFlash-b16"})
    for draft in (str(folder), str(plain_folder), named):
        _, out, _ = outcome(capsys, "--draft", draft, "--json")
        assert "mask.not-as-published" in {f["id"] for f in json.loads(out)["findings"]}


def test_pasted_configs_are_judged_like_files(tmp_path):
    draft, target = changed(zlab_4b(), dflash_config__mask_token_id=151645), target_8b()
    files = [write_json(tmp_path / f"{i}.json", c) for i, c in enumerate((draft, target))]
    from_files = check(files[0], target=files[1])
    pasted = check_values(parse_config(json.dumps(draft).encode()), target=target)
    assert pasted.findings == from_files.findings != ()
    assert pasted.as_json() == from_files.as_json()


def test_a_hub_id_is_read_from_the_hub_or_gives_exit_2_and_one_line(monkeypatch, capsys):
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)

    def answers(data: bytes | Exception):
        def urlopen(url, timeout):
            assert url.startswith("https://") and url.endswith("/config.json") and timeout < 10
            if isinstance(data, Exception):
                raise data
            return io.BytesIO(data)

        monkeypatch.setattr(hub.urllib.request, "urlopen", urlopen)
        return outcome(capsys, "--draft", "nobody/no-such-draft-anywhere", "--json")

    code, out, err = answers(json.dumps(zlab_4b()).encode())
    assert (code, err) == (0, "")
    assert json.loads(out)["draft"]["name"] == "nobody/no-such-draft-anywhere"
    for failure in (URLError("no route"), TimeoutError(), HTTPException(), b"<html>", b""):
        code, out, err = answers(failure)
        assert code == 2 and out == "" and err.count("\n") == 1
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", True)
    code, _, err = answers(b"{}")
    assert code == 2 and "switched off" in err


def test_the_rule_list_in_docs_is_fresh():
    assert (ROOT / "docs" / "rules.md").read_text(encoding="utf-8") == rules_markdown(), (
        "run: python -m advisor rules --markdown > docs/rules.md"
    )


def test_check_starts_fast_and_loads_neither_torch_nor_gradio(tmp_path):
    draft = write_json(tmp_path / "draft.json", zlab_4b())
    script = (
        "import sys, time; from advisor.__main__ import main; code = main(sys.argv[1:]); "
        "print(sorted({'torch', 'gradio', 'transformers', 'mlx'} & set(sys.modules))); "
        "print(time.process_time()); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "check", "--draft", draft],
        capture_output=True, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *_, loaded, spent_s = done.stdout.splitlines()
    assert loaded == "[]"
    assert float(spent_s) < 1  # about 0.25 s; not by the clock, for busy machines


def test_a_key_written_twice_is_refused_by_its_name(tmp_path, capsys):
    path = tmp_path / "dup.json"
    path.write_text('{"block_size": 16, "dflash_config": {"mask_token_id": 1, "mask_token_id": 2}}')
    code, out, err = outcome(capsys, "--draft", str(path))
    assert (code, out) == (2, "")
    assert "'dup.json': the key 'mask_token_id' is written twice" in err


def test_counts_are_refused_with_their_limits_and_an_empty_name_is_no_folder(
    tmp_path, capsys, monkeypatch
):
    draft = write_json(tmp_path / "config.json", zlab_4b())
    assert outcome(capsys, "--draft", draft, "--prompt-tokens", "0")[0] == 0
    for text in ("1000000000000", "-1"):
        code, _, err = outcome(capsys, "--draft", draft, f"--prompt-tokens={text}")
        assert code == 2 and f"'{text}' is not a whole number from 0 to 1000000000" in err
    monkeypatch.chdir(tmp_path)
    for name in ("", " "):
        code, _, err = outcome(capsys, "--draft", name)
        assert code == 2 and f"there is no file, folder or catalogue id '{name}'" in err
