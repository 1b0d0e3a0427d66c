"""Every dialect comes out as the same spec; relatives never come out as DFlash."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from doctor_configs import (
    HEALTHY,
    assistant,
    changed,
    dflash2,
    gguf_metadata,
    speculators,
    target_27b_wrapped,
    write_gguf,
    zlab_4b,
    zlab_nested_eight_taps,
)

from advisor.check import check
from advisor.checkpoint import read_draft, read_target
from advisor.known import pairs_with_draft, pairs_with_target
from advisor.relatives import RELATIVES, find_relative
from advisor.sources import load_draft, load_target
from advisor.tokenizer import read_tokenizer

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "gguf"


@pytest.mark.parametrize(
    ("config", "dialect", "block", "taps", "mask"),
    [
        (zlab_4b(), "z-lab", 16, (1, 9, 17, 25, 33), 151669),
        (zlab_nested_eight_taps(), "z-lab", 16, (1, 6, 11, 16, 22, 27, 32, 37), 248077),
        (dflash2(), "dflash2", 16, (1, 13, 25, 37, 49), 201818),
        (assistant(), "assistant", 16, (1, 13, 25, 37, 49), 201818),
        (speculators(), "speculators", 16, (1, 9, 17, 25, 33), 151669),
        (gguf_metadata(), "gguf", 16, (1, 9, 17, 25, 33), 151669),
    ],
)
def test_every_dialect_gives_layer_outputs_block_and_mask(config, dialect, block, taps, mask):
    reading = read_draft(config)
    assert reading.findings == ()
    spec = reading.spec
    assert (spec.dialect, spec.block_size) == (dialect, block)
    assert (spec.target_layer_ids, spec.mask_token_id) == (taps, mask)
    assert spec.shape.num_layers in (5, 6)
    assert spec.rope.theta


def test_a_gguf_file_reads_like_its_metadata_as_json(tmp_path):
    path = write_gguf(tmp_path / "draft.gguf", gguf_metadata(), {"fc.weight": [20480, 4096]})
    from_file = load_draft(path).spec
    from_json = read_draft(gguf_metadata()).spec
    assert from_file.tensor_shapes == {"fc.weight": (4096, 20480)}
    assert from_file.target_layer_ids == from_json.target_layer_ids == (1, 9, 17, 25, 33)
    assert from_file.rope.theta == from_json.rope.theta
    assert from_file.shape == from_json.shape


def test_the_gguf_drafts_own_mask_wins_over_the_tokenizers():
    raw = gguf_metadata() | {"tokenizer.ggml.mask_token_id": 5, "dflash.mask_token_id": 248070}
    assert read_draft(raw).spec.mask_token_id == 248070


def test_a_gguf_sliding_window_pattern_becomes_layer_types():
    raw = gguf_metadata() | {
        "dflash.attention.sliding_window": 2048,
        "dflash.attention.sliding_window_pattern": [True, True, True, True, False],
    }
    shape = read_draft(raw).spec.shape
    assert shape.layer_types == ("sliding_attention",) * 4 + ("full_attention",)
    assert shape.sliding_window == 2048


def test_a_nested_value_wins_over_the_top_level():
    raw = changed(zlab_4b(), dflash_config__block_size=8)
    assert read_draft(raw).spec.block_size == 8


def test_speculators_windows_beside_the_layer_config_count():
    raw = changed(
        speculators(),
        layer_types=["sliding_attention"] * 5,
        sliding_window=2048,
        sliding_window_non_causal=True,
    )
    spec = read_draft(raw).spec
    assert spec.shape.layer_types == ("sliding_attention",) * 5
    assert spec.shape.sliding_window == 2048
    assert spec.is_causal is False
    assert spec.target_name == "Qwen/Qwen3-8B"


def test_yarn_and_theta_are_read_from_any_place():
    nested = {"rope_theta": 150000.0, "rope_type": "yarn", "factor": 32.0}
    assert (
        read_draft(changed(zlab_4b(), rope_theta=..., rope_parameters=nested)).spec.rope.theta
        == 150000
    )
    old = {"type": "yarn", "factor": 64.0}
    rope = read_draft(changed(zlab_4b(), rope_theta=50000.0, rope_scaling=old)).spec.rope
    assert (rope.theta, rope.rope_type, rope.parameters["factor"]) == (50000, "yarn", 64.0)


def test_one_rope_per_layer_type_is_read():
    per_layer = {
        "sliding_attention": {"rope_theta": 10000.0},
        "full_attention": {"rope_theta": 1e6},
    }
    raw = changed(zlab_4b(), rope_theta=..., rope_parameters=per_layer)
    assert read_draft(raw).spec.rope.theta == 1e6
    del per_layer["full_attention"]
    assert read_draft(raw | {"rope_parameters": per_layer}).spec.rope.theta == 10000


def test_gguf_metadata_is_read_as_dumped_and_as_nested_groups():
    flat = read_draft(gguf_metadata()).spec
    dumped = {
        "metadata": {key: {"type": "X", "value": value} for key, value in gguf_metadata().items()},
        "tensors": {},
    }
    nested: dict = {}
    for path, value in gguf_metadata().items():
        *groups, key = path.split(".")
        place = nested
        for group in groups:
            place = place.setdefault(group, {})
        place[key] = value
    for raw in (dumped, nested):
        spec = read_draft(raw).spec
        assert (spec.block_size, spec.target_layer_ids) == (16, (1, 9, 17, 25, 33))
        assert (spec.mask_token_id, spec.shape) == (151669, flat.shape)


def test_a_gguf_target_without_output_tensor_ties_its_head(tmp_path):
    metadata = {"general.architecture": "qwen3", "qwen3.block_count": 36}
    embedding = {"token_embd.weight": [2560, 151936]}
    tied = load_target(write_gguf(tmp_path / "a.gguf", metadata, embedding)).spec
    own = embedding | {"output.weight": [2560, 151936]}
    untied = load_target(write_gguf(tmp_path / "b.gguf", metadata, own)).spec
    assert (tied.tie_word_embeddings, untied.tie_word_embeddings) == (True, False)
    assert tied.tensor_shapes == {"token_embd.weight": (151936, 2560)}


def converted(name: str, folder: Path) -> str:
    """The demo pair as llama.cpp's own converter wrote it, without the weights."""
    path = folder / f"{name}.gguf"
    packed = FIXTURES / f"demo-{name}-header.gguf.gz"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return str(path)


def test_a_really_converted_pair_is_read_like_the_folders_it_came_from(tmp_path):
    file = load_draft(converted("draft", tmp_path)).spec
    folder = load_draft("presets/models/demo/draft").spec
    assert file.target_layer_ids == folder.target_layer_ids == (1, 2, 3, 4, 5)
    assert (file.block_size, file.mask_token_id) == (folder.block_size, folder.mask_token_id)
    assert file.tensor_shapes is not None and file.tensor_shapes["fc.weight"] == (256, 1280)
    target = load_target(converted("target", tmp_path)).spec
    for spec, origin in ((file, folder), (target, load_target("presets/models/demo/target").spec)):
        for field in ("num_layers", "hidden_size", "num_kv_heads", "head_dim", "vocab_size"):
            assert getattr(spec.shape, field) == getattr(origin.shape, field), field
        assert spec.rope.theta == origin.rope.theta == 10_000
    assert target.tie_word_embeddings is True and target.quantization is None


@pytest.mark.parametrize("draft_is_file", [True, False])
def test_a_healthy_converted_pair_gets_no_remark(tmp_path, draft_is_file: bool):
    draft = converted("draft", tmp_path) if draft_is_file else "presets/models/demo/draft"
    assert check(draft, target=converted("target", tmp_path)).findings == ()


def test_the_title_in_a_gguf_is_the_name_of_the_folder_it_was_converted_from():
    assert pairs_with_draft("Qwen3 8B DFlash B16") == pairs_with_draft("z-lab/Qwen3-8B-DFlash-b16")
    assert [p.id for p in pairs_with_target("Qwen3 8B")] == [
        p.id for p in pairs_with_target("Qwen/Qwen3-8B")
    ]
    fields = {"general.architecture": "llama"}
    assert read_target(fields | {"general.name": "Target"}).spec.name is None
    assert read_target(fields | {"general.name": "Qwen3 8B"}).spec.name == "Qwen3 8B"


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config"])
def test_a_multimodal_wrapper_is_read_through(key):
    wrapped = target_27b_wrapped()
    wrapped[key] = wrapped.pop("text_config")
    spec = read_target(wrapped).spec
    assert (spec.shape.num_layers, spec.shape.hidden_size) == (64, 5120)
    assert spec.eos_token_ids == (248044,)
    twice = read_target({"thinker_config": wrapped}).spec
    assert twice.shape == spec.shape


def test_a_gguf_target_is_read():
    raw = {
        "general.architecture": "qwen3",
        "qwen3.block_count": 36,
        "qwen3.embedding_length": 4096,
        "qwen3.context_length": 40960,
        "qwen3.attention.head_count": [32, 0, 32],
        "tokenizer.ggml.eos_token_id": 151645,
        "tokenizer.ggml.tokens": {"length": 151936},
        "general.file_type": 15,
    }
    spec = read_target(raw).spec
    assert (spec.shape.num_layers, spec.shape.vocab_size) == (36, 151936)
    assert spec.quantization == "gguf file type 15"


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (zlab_4b() | {"architectures": ["DSparkDraftModel"]}, "DSpark"),
        (zlab_4b() | {"architectures": ["Qwen3DSparkModel"]}, "DSpark"),
        (changed(zlab_4b(), dflash_config__projector_type="dspark"), "DSpark"),
        (changed(zlab_4b(), dflash_config__markov_rank=256), "DSpark"),
        (gguf_metadata() | {"dflash.markov_rank": 256}, "DSpark"),
        ({"speculators_model_type": "dspark", "aux_hidden_state_layer_ids": [2]}, "DSpark"),
        (changed(zlab_4b(), dflash_config__projector_type="domino"), "Domino"),
        (zlab_4b() | {"architectures": ["JetSpecDraftModel"]}, "JetSpec"),
        (zlab_4b() | {"jetspec_config": {"head": 1}}, "JetSpec"),
        (zlab_4b() | {"architectures": ["Qwen3DFlyModel"]}, "DFly"),
        (zlab_4b() | {"enable_hidden_correction": True}, "DFly"),
        (zlab_4b() | {"ddtree_config": {"budget": 32}}, "DDTree"),
        ({"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 2560}, "EAGLE-3"),
        ({"architectures": ["EagleLlamaForCausalLM"]}, "EAGLE"),
        ({"general.architecture": "eagle3"}, "EAGLE-3"),
        ({"architectures": ["PEagleDraftModel"]}, "P-EAGLE"),
        ({"architectures": ["Qwen3_5MTPDraftModel"], "mtp_config": {}}, "MTP"),
        ({"medusa_num_heads": 4, "model_type": "llama"}, "Medusa"),
        ({"speculators_model_type": "dflare"}, "DFlare"),
        (zlab_4b() | {"_name_or_path": "RadixArk/Qwen3.8-27B-DSpark"}, "DSpark"),
        ({"method": "ddtree", "architectures": ["DFlashDraftModel"]}, "DDTree"),
        ({"speculators_model_type": "something-new"}, "something-new"),
        ({"speculators_model_type": "half \ud800"}, "half \\ud800"),  # no page could be sent it
    ],
)
def test_relatives_are_named_and_never_read_as_dflash(raw, name):
    relative = find_relative(raw)
    assert relative is not None and relative.name == name
    spec = read_draft(raw).spec
    assert spec.dialect == "unknown"
    assert spec.block_size is None and spec.target_layer_ids is None


def test_no_published_dflash_dialect_is_taken_for_a_relative():
    assert [name for name, (draft, _) in HEALTHY.items() if find_relative(draft)] == []
    assert len({relative.name for relative in RELATIVES}) == len(RELATIVES)


def test_stop_ids_are_united_and_tokens_given_as_text_are_looked_up():
    tokenizer_config = {
        "eos_token": "<|im_end|>",
        "pad_token": {"content": "<|endoftext|>"},
        "bos_token": None,
        "added_tokens_decoder": {
            "248044": {"content": "<|endoftext|>"},
            "248046": {"content": "<|im_end|>"},
        },
    }
    spec = read_tokenizer({"eos_token_id": [248046, 248044]}, tokenizer_config).spec
    assert set(spec.eos_token_ids) == {248046, 248044}
    assert (spec.pad_token_id, spec.bos_token_id) == (248044, None)
    assert spec.special_tokens[248046] == "<|im_end|>"
    assert read_tokenizer({"eos_token_id": 7}).spec.eos_token_ids == (7,)
