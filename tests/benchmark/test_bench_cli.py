"""``python -m dflash.benchmark`` on a tiny real pair: flags, table, files and exit codes."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_pair import write_tiny_pair

from advisor import gather
from advisor.answer import recommend_for
from dflash.benchmark import commands, curves
from dflash.benchmark.__main__ import main
from dflash.benchmark.library import GenerateBaseline
from dflash.benchmark.lossless import Difference
from dflash.benchmark.runner import Plan, Run, Skipped
from dflash.engines.torch_engine import TorchEngine
from dflash.measurements import Calibration, TuneResult, load
from dflash.metrics import compare, run_stats
from dflash.pairs import resolve_pair
from dflash.schema import Message, Request, SamplingParams, Trace

ROWS = [{"category": c, "turns": [f"say {c} {i}"]} for c in ("code", "chat") for i in range(2)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_tiny_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def flags(pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("DFLASH_MEASUREMENTS", str(tmp_path / "measurements"))
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join(json.dumps(r) for r in ROWS), "utf-8")
    target, draft = map(str, pair)
    flags = ["--backend", "transformers", "--model", target, "--draft-model", draft]
    return [*flags, "--dataset", str(data), "--max-new-tokens", "12", "--device", "cpu"]


def last_json(capsys: pytest.CaptureFixture[str]) -> tuple[str, dict]:
    text = capsys.readouterr().out
    return text, json.loads(text.strip().splitlines()[-1])


def test_the_guides_command_measures_checks_and_writes_the_documented_file(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, rows = tmp_path / "out.json", tmp_path / "out.csv"
    command = [*flags, "--block-size", "8", "4", "--repeats", "1"]
    assert main([*command, "--output", str(out), "--csv", str(rows)]) == 0
    text, summary = last_json(capsys)
    assert summary["lossless"] == {"num_equal": 4, "num_checked": 4}
    assert "4/4" in text and "code" in text
    data = json.loads(out.read_text("utf-8"))
    assert data["summary"] == summary
    assert set(summary["by_block_size"]) == {"4", "8"}
    for run in data["runs"]:
        arms = run["arms"]
        assert set(arms) == {"baseline_loop", "baseline_generate", "dflash"}
        for arm in arms.values():
            assert arm["time_per_output_token"] > 0 and arm["time_to_first_token"] > 0
            assert arm["num_output_tokens"] == arms["dflash"]["num_output_tokens"]
        assert set(arms["baseline_loop"]["acceptance_lengths"]) <= {1}
    about = data["provenance"]
    assert about["versions"]["torch"] and about["num_threads"] and about["command"]
    assert about["sampling"]["max_new_tokens"] == 12
    assert len(rows.read_text("utf-8").splitlines()) == 1 + 4 * 4


def test_sampled_outputs_are_not_called_equal_or_different(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags, "--temperature", "0.8", "--limit", "2", "--repeats", "1"]) == 0
    _, summary = last_json(capsys)
    assert summary["lossless"] == {"num_equal": 0, "num_checked": 0}
    assert summary["block_size"] == 8  # the trained one


def test_calibration_is_saved_for_the_advisor_and_written_in_its_costs_format(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "costs.json"
    assert main([*flags, "--calibrate", "--time-budget", "0.5", "--output", str(out)]) == 0
    _, costs = last_json(capsys)
    assert costs == json.loads(out.read_text("utf-8"))
    assert costs["ar_step_s"] > 0
    assert set(costs["draft_s"]) == set(costs["verify_s"]) == {"2", "3", "4", "5", "6", "8"}
    (path,) = (tmp_path / "measurements").glob("calibration-*.json")
    saved = load(path, Calibration)
    assert saved.by_context[0].ar_step_s == costs["ar_step_s"]
    assert saved.tau_per_position is not None and len(saved.tau_per_position) == 7
    assert saved.tau_by_block is not None and set(saved.tau_by_block) == {2, 3, 4, 5, 6, 8}
    assert saved.num_prompts is not None
    # The next measurement of this pair on this machine is set beside what the costs foretell.
    run = tmp_path / "run.json"
    asked = ["--block-size", "4", "8", "--repeats", "1", "--limit", "2", "--output", str(run)]
    assert main([*flags, *asked]) == 0
    text, summary = last_json(capsys)
    assert "from the calibration" in text
    assert [p["block_size"] for p in summary["predicted"]] == [4, 8]
    # And the two become a page with its curve.
    written = tmp_path / "page.md"
    assert curves.main([str(run), "--write", str(written)]) == 0
    text = written.read_text("utf-8")
    for found in summary["predicted"]:
        assert f"| {found['block_size']} | {found['tau']:.2f} |" in text
        assert f"| {found['error']:+.1%} |" in text
    assert "](page.svg)" in text and (tmp_path / "page.svg").is_file()


def test_tuning_judges_on_other_prompts_and_prints_predicted_beside_measured(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags, "--tune", "--time-budget", "0.5", "--block-size", "2", "8"]) == 0
    text, found = last_json(capsys)
    assert "predicted" in text and "judging" in text
    (path,) = (tmp_path / "measurements").glob("tune-*.json")
    saved = load(path, TuneResult)
    assert saved.judged.block_size == found["block_size"]
    assert (saved.num_tuning_prompts, saved.num_judging_prompts) == (2, 2)
    assert {t.block_size for t in saved.tuned} == {2, 8}
    # The advisor then answers with what was measured, whichever way the same pair is named.
    model, draft = flags[flags.index("--model") + 1], flags[flags.index("--draft-model") + 1]
    for named in (draft, f"{draft}/config.json", os.path.relpath(draft)):
        answer = recommend_for(gather.Request(draft=named, target=model))
        block = answer.knobs["block_size"]
        gain = saved.judged.decode_speedup.median
        assert block.rung == "measured"
        assert block.value == (saved.judged.block_size if gain > 1 else 1)
        assert f"{gain:.2f}x" in block.reason


def test_the_mlx_backend_is_measured_against_its_own_loop(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mlx_lm")
    flags = flags[: flags.index("--device")]
    assert main([*flags, "--backend", "mlx", "--limit", "2", "--repeats", "1"]) == 0
    _, summary = last_json(capsys)
    assert summary["lossless"] == {"num_equal": 2, "num_checked": 2}
    assert set(summary["decode_speedup_over"]) == {"baseline_loop"}


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--block-size", "9"], "block size 9 cannot be measured"),
        (["--block-size", "1"], "baseline that is always measured"),
        (["--dataset", "nowhere.jsonl"], "nowhere.jsonl: cannot be read"),
        (["--temperature", "-1"], "temperature must be 0 or more"),
        (["--draft-model", "/no/such/folder"], "neither a folder"),
        (["--device", "cudaa"], "there is no device 'cudaa' here"),
        (["--backend", "mlx"], "mlx chooses its own device, not 'cpu'"),
        (["--seed", "99999999999999999999999", "--temperature", "1"], "seed must fit in 64 bits"),
        (["--seed", str(2**63 - 1), "--repeats", "2"], "seed must fit in 64 bits"),
        (["--temperature", "1e-45"], "temperature must be 0 (greedy) or at least 1e-05"),
    ],
)
def test_what_cannot_be_done_is_one_line_on_stderr_and_exit_code_two(
    flags: list[str], extra: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags, *extra]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = [x for x in captured.err.splitlines() if x.startswith("error: ")]
    assert words in line


@pytest.mark.parametrize("flag", ["--output", "--csv"])
def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(
    flags: list[str], flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(commands, "open_subject", None)  # must not come so far
    for place in (tmp_path, tmp_path / "rows.jsonl" / "x"):
        assert main([*flags, flag, str(place)]) == 2
        assert "could not be written" in capsys.readouterr().err


def test_a_file_that_fails_after_all_loses_neither_the_table_nor_the_other_file(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    out, rows = tmp_path / "out.json", tmp_path / "out.csv"
    warm_up = commands.warm_up

    def take_the_place(plan: Plan) -> None:
        rows.mkdir()
        warm_up(plan)

    monkeypatch.setattr(commands, "warm_up", take_the_place)
    files = ["--output", str(out), "--csv", str(rows)]
    assert main([*flags, *files, "--limit", "1", "--repeats", "1", "--loop-baseline-only"]) == 2
    captured = capsys.readouterr()
    summary = json.loads(captured.out.strip().splitlines()[-1])
    assert json.loads(out.read_text("utf-8"))["summary"] == summary
    assert "out.csv could not be written" in captured.err


def test_ctrl_c_while_the_report_is_made_still_gives_the_report(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    find_differences = commands.find_differences

    def stopped(runs: tuple[Run, ...], *, look: object) -> list[Difference]:
        if look is not None:
            raise KeyboardInterrupt
        return find_differences(runs)

    monkeypatch.setattr(commands, "find_differences", stopped)
    out = tmp_path / "out.json"
    assert main([*flags, "--limit", "1", "--repeats", "1", "--output", str(out)]) == 130
    _, summary = last_json(capsys)
    assert json.loads(out.read_text("utf-8"))["summary"] == summary
    assert summary["lossless"] == {"num_equal": 1, "num_checked": 1}


@pytest.mark.parametrize("num_runs", [0, 1, 4])
def test_ctrl_c_reports_whole_rounds_and_without_one_says_so_in_a_sentence(
    num_runs: int, flags: list[str], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    measure = commands.measure

    def stopped(plan: Plan) -> Iterator[Run | Skipped]:
        yield from itertools.islice(measure(plan), num_runs)
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "measure", stopped)
    assert main([*flags, "--limit", "2", "--repeats", "1"]) == 130
    captured = capsys.readouterr()
    if num_runs < 3:  # the first round has three arms
        assert captured.out == ""
        assert captured.err.splitlines()[-1] == "stopped before anything was measured"
    else:
        assert json.loads(captured.out.splitlines()[-1])["lossless"]["num_checked"] == 1


def test_the_generate_baseline_says_the_same_as_our_loop_and_stamps_every_token(
    pair: tuple[Path, Path],
) -> None:
    engine = TorchEngine(resolve_pair(*map(str, pair)), device="cpu")
    request = Request((Message("user", "say it"),), SamplingParams(max_new_tokens=10))
    ours = Trace(request, engine.info, tuple(engine.stream(request)))
    generate = GenerateBaseline(engine)
    theirs = Trace(request, generate.info, tuple(generate.stream(request)))
    assert compare(ours, theirs).outputs_match is True
    stats = run_stats(theirs)
    assert stats.tpot_s and stats.ttft_s and stats.spec is None
    assert len(theirs.cycles) == len(ours.cycles)
    assert "".join(p for c in theirs.cycles for p in c.pieces) == "".join(
        p for c in ours.cycles for p in c.pieces
    )


def test_a_window_is_swept_where_it_is_asked_for_and_the_advisor_reads_the_winner(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tune = ["--tune", "--time-budget", "0.5", "--block-size", "8", "--sliding-window-size", "2"]
    assert main([*flags, *tune]) == 0
    text, found = last_json(capsys)
    (path,) = (tmp_path / "measurements").glob("tune-*.json")
    saved = load(path, TuneResult)
    assert [(t.block_size, t.sliding_window_size) for t in saved.tuned] == [(8, None), (8, 2)]
    assert saved.judged.sliding_window_size == found["sliding_window_size"]
    model, draft = flags[flags.index("--model") + 1], flags[flags.index("--draft-model") + 1]
    answer = recommend_for(
        gather.Request(draft=draft, target=model, prompt_tokens=saved.prompt_tokens)
    )
    window = answer.knobs["sliding_window_size"]
    assert (window.value, window.rung) == (saved.judged.sliding_window_size, "measured")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["--sliding-window-size", "2", "4"], "2 values of --sliding-window-size"),
        (["--sliding-window-size", "2", "--calibrate"], "not with a window of 2"),
        (["--sliding-window-size", "2", "--backend", "vllm"], "cannot be told to a server"),
    ],
)
def test_a_window_that_cannot_be_measured_is_refused_in_a_sentence(
    flags: list[str], asked: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags, *asked]) == 2
    assert words in capsys.readouterr().err


def test_one_window_is_measured_without_changing_an_output(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags, "--block-size", "8", "--sliding-window-size", "2"]) == 0
    text, _ = last_json(capsys)
    assert " 4/4 " in text or "4/4\n" in text
