"""The catalogue: machines, workloads, guide cases, and which published draft a config is."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from advisor import catalog, guide
from advisor.catalog_page import PAGE, catalogue_page
from advisor.known import draft_from_facts, known_pairs
from advisor.schema import TASKS, DraftSpec, ModelShape
from dflash.errors import PresetError
from dflash.presets import load_pair, preset_ids

WIDE_TAPS = (1, 5, 9, 13, 17, 21, 25, 29)


@pytest.mark.parametrize("hardware_id", preset_ids("hardware"))
def test_every_machine_loads_with_memory_bandwidth_rate_and_source(hardware_id):
    machine = catalog.load_hardware(hardware_id).hardware()
    assert machine.id == hardware_id
    assert machine.memory_bytes and machine.memory_bytes >= 8e9
    assert machine.bandwidth_bytes_per_s and 1e10 < machine.bandwidth_bytes_per_s < 1e13
    assert machine.flops_per_s and all(1e11 < rate < 1e16 for rate in machine.flops_per_s.values())
    assert machine.source.startswith(("https://", "docs/"))


def test_machines_from_a_laptop_to_a_server_are_known():
    wanted = {
        "rtx-3060-12gb", "rtx-3090", "rtx-4060-ti-16gb", "rtx-4070", "rtx-4080", "rtx-4090",
        "rtx-5070-ti", "rtx-5080", "rtx-5090", "t4", "l4", "l40s", "a10", "a100-40gb", "a100-80gb",
        "h100-sxm", "h100-pcie", "h200", "b200", "gb10", "rtx-pro-6000", "mi300x", "strix-halo-395",
        "apple-m1", "apple-m2-ultra", "apple-m3-max", "apple-m4-pro", "apple-m5-max",
        "cpu-laptop-4core-ddr4", "cpu-desktop-8core-ddr5", "cpu-cloud-2core", "cpu-server-amx-56core",
    }  # fmt: skip
    assert wanted <= set(preset_ids("hardware"))


def test_vendor_figures_are_the_published_ones():
    h200 = catalog.load_hardware("h200").hardware()
    assert (h200.memory_bytes, h200.bandwidth_bytes_per_s) == (141e9, 4.8e12)
    assert h200.flops_per_s["bf16"] == 989.5e12  # dense: half of the 1,979 with sparsity
    assert catalog.load_hardware("rtx-4090").bandwidth_bytes_per_s == 1008e9
    assert catalog.load_hardware("apple-m4-max").bandwidth_bytes_per_s == 546e9


@pytest.mark.parametrize(
    ("said", "hardware_id"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA GeForce RTX 5070 Ti", "rtx-5070-ti"),
        ("NVIDIA GeForce RTX 5070", "rtx-5070"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("Apple M4 Max", "apple-m4-max"),
        ("Apple M4", "apple-m4"),
        ("Matrox Mystique", None),
        ("", None),
    ],
)
def test_a_machine_is_recognised_by_what_its_driver_says(said, hardware_id):
    found = catalog.hardware_named(said)
    assert (found.id if found else None) == hardware_id


@pytest.mark.parametrize("workload_id", preset_ids("workloads"))
def test_every_workload_loads_and_says_whose_choice_it_is(workload_id):
    preset = catalog.load_workload(workload_id)
    assert preset.id == workload_id
    assert preset.basis
    assert preset.workload().prompt_tokens == preset.prompt_tokens


def test_every_task_has_a_workload():
    assert set(TASKS) <= {catalog.load_workload(w).task for w in preset_ids("workloads")}


def test_the_guide_s_cases_agree_with_the_guide_s_rules():
    small, medium, large, long = (
        catalog.load_guide_preset(name) for name in ("small", "medium", "large", "long-context")
    )
    rule = guide.block_size(small.max_params)
    assert (rule.value, rule.low, rule.high) == (2, 1, 4)
    assert (small.block_size, small.block_size_low, small.block_size_high) == (2, 1, 4)
    rule = guide.block_size(large.min_params)
    assert (rule.value, rule.low, rule.high) == (12, 8, 16)
    assert (large.block_size, large.block_size_low, large.block_size_high) == (12, 8, 16)
    assert list(large.target_layer_ids or ()) == guide.target_layer_ids(120e9, None).value
    assert medium.interpolated and guide.block_size(14e9).interpolated
    assert long.sliding_window_size == guide.sliding_window_size(4e9, long.min_prompt_tokens).value
    assert guide.sliding_window_size(4e9, (long.min_prompt_tokens or 0) - 1).value is None


@pytest.mark.parametrize(
    ("folder", "load"),
    [
        ("hardware", catalog.load_hardware),
        ("workloads", catalog.load_workload),
        ("guide", catalog.load_guide_preset),
    ],
)
def test_an_unknown_id_names_the_folder_and_what_is_there(folder, load):
    with pytest.raises(PresetError, match=f"presets/{folder}/ has no 'nonesuch'"):
        load("nonesuch")


def test_an_unknown_key_in_a_machine_file_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "hardware"
    folder.mkdir()
    text = (Path(catalog.PRESETS) / "hardware" / "h200.yaml").read_text(encoding="utf-8")
    (folder / "h200.yaml").write_text(text.replace("memory_bytes", "memory_byte"), encoding="utf-8")
    monkeypatch.setattr(catalog, "PRESETS", tmp_path)
    with pytest.raises(PresetError, match="unknown key 'memory_byte'; did you mean 'memory_bytes'"):
        catalog.load_hardware.__wrapped__("h200")


def spec(**fields: object) -> DraftSpec:
    return replace(DraftSpec(dialect="z-lab"), **fields)


def test_a_draft_s_revision_is_told_by_its_taps_and_layers():
    name = "z-lab/Qwen3.5-4B-DFlash"
    after = catalog.match_draft(spec(name=name, target_layer_ids=WIDE_TAPS))
    before = catalog.match_draft(spec(name=name, target_layer_ids=(1, 8, 15, 22, 29)))
    assert after and after.facts.label == "after June 2026" and after.agrees
    assert before and before.facts.label == "before June 2026" and before.agrees
    by_depth = catalog.match_draft(spec(name=name, shape=ModelShape(num_layers=5)))
    assert by_depth and by_depth.facts.label == "before June 2026"


def test_a_draft_with_the_right_name_and_wrong_taps_is_found_and_disagrees():
    guessed = spec(
        name="z-lab/Qwen3.8-27B-DFlash2",
        dialect="dflash2",
        num_target_layers=64,
        target_layer_ids=(1, 16, 31, 46, 61),
    )
    match = catalog.match_draft(guessed)
    assert match and match.pair.id == "qwen3.8-27b-dflash2" and not match.agrees


def test_a_draft_without_a_name_is_known_by_its_verifier_and_its_shape():
    taps = (1, 9, 17, 25, 33)
    known = spec(target_name="Qwen/Qwen3-8B", target_layer_ids=taps, num_target_layers=36)
    match = catalog.match_draft(known)
    assert match and (match.pair.id, match.by) == ("qwen3-8b", "verifier")
    assert catalog.match_draft(replace(known, target_layer_ids=(2, 14, 26))) is None
    assert catalog.match_draft(spec(target_name="Qwen/Qwen3-8B")) is None
    assert catalog.match_draft(spec(name="somebody/else")) is None


def test_the_name_in_the_file_counts_when_the_spec_has_another():
    match = catalog.match_draft(
        spec(name="/tmp/draft", raw={"_name_or_path": "z-lab/Qwen3-4B-DFlash-b16"})
    )
    assert match and match.pair.id == "qwen3-4b"
    assert catalog.match_draft(spec(raw={"_name_or_path": 7})) is None


@pytest.mark.parametrize("pair", known_pairs(), ids=lambda pair: pair.id)
def test_every_pair_s_own_facts_match_it(pair):
    match = catalog.match_draft(draft_from_facts(pair))
    assert match and match.agrees
    assert match.pair.id == pair.id


def test_a_target_s_best_known_pair_comes_first():
    assert catalog.match_target("qwen/qwen3-8b")[0].id == "qwen3-8b"
    assert catalog.match_target("google/gemma-4-31B-it")[0].id == "gemma-4-31b"
    assert catalog.match_target("meta-models/Muse-Glimmer-30B")[0].id == "muse-glimmer-30b-dflash2"
    assert catalog.match_target("Qwen3-8B")[0].id == "qwen3-8b"  # organisation left out
    assert catalog.match_target("nobody/nothing") == ()
    assert catalog.match_target("nobody/Qwen3-8B") == ()  # a fine-tune, for all we know


def test_published_results_are_narrowed_to_the_task_and_the_way_of_asking():
    pair = load_pair("qwen3-8b")
    chat = catalog.published_results(pair, task="chat", thinking=False, temperature=0.0)
    assert [(r.row.benchmark, r.row.tau) for r in chat] == [("MT-Bench", 4.24)]
    hot = catalog.published_results(pair, task="chat", thinking=False, temperature=0.7)
    assert [(r.row.benchmark, r.row.tau) for r in hot] == [("MT-Bench", 3.80)]
    thinking = catalog.published_results(pair, task="math", thinking=True)
    where = {r.table.where for r in thinking}
    assert "Table 3" in where  # does not say
    assert "Table 1" not in where  # says thinking was off


def test_results_of_another_draft_or_another_revision_are_left_out():
    another = catalog.published_results(load_pair("qwen3-8b"))
    assert "Table 2" not in {r.table.where for r in another}  # the paper's reasoning draft
    pair = load_pair("qwen3.5-9b")
    before = catalog.published_results(pair, facts=pair.earlier_drafts[0])
    after = catalog.published_results(pair, facts=pair.draft)
    assert {r.table.engine for r in before} - {r.table.engine for r in after} == set()
    quantised = {"bf16", "8-bit target", "6-bit target"}
    assert quantised <= {r.table.quantization for r in before}
    assert not quantised & {r.table.quantization for r in after}


def test_a_figure_of_a_machine_says_where_it_was_read_or_that_no_page_was_opened():
    page = catalogue_page()
    for preset in catalog.all_hardware():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{preset.id}` |"))
        for urls in preset.field_sources.values():
            assert all(url in row for url in urls), preset.id
        words = {"memory_bytes": "memory", "bandwidth_bytes_per_s": "bandwidth"}
        last = row.rsplit("|", 2)[1]
        for name in preset.unread:
            assert words.get(name, "rates") in last, preset.id
        if not preset.unread:
            assert last.strip() == "–", preset.id
    assert catalog.load_hardware("h200").unread == ("bandwidth_bytes_per_s",)
    assert catalog.load_hardware("cpu-cloud-2core").unread == ()  # a class is computed


def test_hardware_named_in_a_published_table_exists():
    for pair in known_pairs():
        for table in pair.published:
            assert table.hardware is None or table.hardware in preset_ids("hardware"), pair.id


def test_the_page_of_the_catalogue_is_fresh():
    assert PAGE.read_text(encoding="utf-8") == catalogue_page(), (
        "docs/catalogue.md is stale: run python -m advisor.catalog_page"
    )


def test_the_catalogue_is_read_in_a_blink_and_without_heavy_imports():
    code = (
        "import sys, time\n"
        "from advisor import catalog, known\n"
        "start = time.process_time()\n"
        "known.known_pairs(); catalog.all_hardware()\n"
        "spent = time.process_time() - start\n"
        "assert not {'torch', 'gradio', 'transformers'} & set(sys.modules)\n"
        "print(spent)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 0.2  # 0.04 s on a quiet machine
