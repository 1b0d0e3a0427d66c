"""Each rule, from the inputs of public reports and one for every kind: break one thing, be told.

Every case says which rule must speak, how loudly and about which field; every rule has a case.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from doctor_configs import (
    HEALTHY,
    Config,
    assistant,
    changed,
    dflash2,
    draft_shapes,
    gguf_metadata,
    speculators,
    target_4b,
    target_8b,
    target_27b_wrapped,
    target_muse,
    write_json,
    write_safetensors,
    zlab_4b,
    zlab_nested_eight_taps,
    zlab_sliding,
)

from advisor.check import Report, check
from advisor.cli_check import parse_settings
from advisor.rules import RULES

Shapes = dict[str, list[int]]
ADDED = {"248045": {"content": "<|im_start|>"}, "248046": {"content": "<|im_end|>"}}


@dataclass(frozen=True)
class Broken:
    """One input and what must be said about it."""

    rule: str
    severity: str
    field: str
    draft: Config = field(default_factory=zlab_4b)
    target: Config | None = None
    tokenizer: Config | None = None
    settings: tuple[str, ...] = ()
    draft_shapes: Shapes | None = None
    target_shapes: Shapes | None = None
    options: dict[str, Any] = field(default_factory=dict)


def error(rule: str, of: str, draft: Config | None = None, **rest: Any) -> Broken:
    return Broken(rule, "error", of, zlab_4b() if draft is None else draft, **rest)


def warning(rule: str, of: str, draft: Config | None = None, **rest: Any) -> Broken:
    return Broken(rule, "warning", of, zlab_4b() if draft is None else draft, **rest)


def note(rule: str, of: str, draft: Config | None = None, **rest: Any) -> Broken:
    return Broken(rule, "note", of, zlab_4b() if draft is None else draft, **rest)


def diagnose(case: Broken, folder: Any) -> Report:
    """Run the doctor on files, the way the command line does."""
    draft_path = write_json(folder / "draft" / "config.json", case.draft)
    if case.draft_shapes is not None:
        write_safetensors(folder / "draft" / "model.safetensors", case.draft_shapes)
    target_path = tokenizer_path = None
    if case.target is not None:
        target_path = write_json(folder / "target" / "config.json", case.target)
    if case.target_shapes is not None:
        write_safetensors(folder / "target" / "model.safetensors", case.target_shapes)
    if case.tokenizer is not None:
        tokenizer_path = write_json(folder / "tok.json", case.tokenizer)
    return check(
        draft_path,
        target=target_path,
        tokenizer=tokenizer_path,
        settings=parse_settings(list(case.settings)),
        **case.options,
    )


TAPS, MASK, BLOCK = "target_layer_ids", "mask_token_id", "block_size"
LAYERS36 = target_4b()
EMBED, HEAD = {"model.embed_tokens.weight": [151936, 2560]}, {"lm_head.weight": [151936, 2560]}
SPARSE_TAPS = {"dflash_config": {"target_layer_ids": [1, 9, 17, 25, 33]}}

ARCHITECTURE = [
    error("architecture.relative", "architecture", zlab_4b() | {"architectures": ["DSparkDraftModel"]}),
    error("architecture.relative", "architecture", {"architectures": ["LlamaForCausalLMEagle3"]}),
    error("architecture.not-a-draft", "architecture", target_4b()),
    error("architecture.not-a-draft", "architecture", {}),
    error("architecture.not-a-draft", "architecture", {"general.architecture": "llama"}),
    error("architecture.target-is-draft", "architecture", target=zlab_4b()),
    error("architecture.target-unreadable", "architecture", target={"vision_config": {}}),
    warning("architecture.target-unreadable", "architecture", target={"num_hidden_layers": 36}),
    error("architecture.selector-without-name", "architecture",
          draft_shapes={**draft_shapes(zlab_4b()), "candidate_selector.predecessor_codebook": [9, 9]}),
    error("architecture.selector-without-name", "architecture", dflash2(),
          draft_shapes=draft_shapes(dflash2())),
]  # fmt: skip
PAIRING = [
    error("pairing.num-target-layers", "num_target_layers",
          target={"text_config": {"hidden_size": 2560, "num_hidden_layers": 32}}),
    error("pairing.num-target-layers", "num_target_layers", changed(zlab_4b(), num_target_layers=0)),
    error("pairing.hidden-size", "hidden_size", target=target_8b()),
    error("pairing.hidden-size", "hidden_size", changed(zlab_4b(), hidden_size=...)),
    error("pairing.hidden-size", "hidden_size", changed(zlab_4b(), hidden_size=-1)),
    error("pairing.hidden-size", "hidden_size", speculators() | {"target_hidden_size": 2880},
          target=target_8b()),
    error("pairing.num-hidden-layers", "num_hidden_layers", changed(zlab_4b(), num_hidden_layers=...)),
    error("pairing.num-hidden-layers", "num_hidden_layers", changed(zlab_4b(), num_hidden_layers=0)),
    error("pairing.heads", "num_attention_heads", changed(zlab_4b(), num_key_value_heads=5)),
    error("pairing.heads", "head_dim", changed(zlab_4b(), head_dim=0)),
    warning("pairing.vocab-size", "vocab_size", target=target_4b() | {"vocab_size": 262144}),
    warning("pairing.vocab-size-unwritten", "vocab_size", changed(zlab_sliding(), vocab_size=...)),
    error("pairing.draft-vocab", "vocab_size", speculators() | {"draft_vocab_size": 999999}),
    error("pairing.draft-vocab", "vocab_size", speculators() | {"draft_vocab_size": 32000},
          draft_shapes={"fc.weight": [4096, 20480]}),
    warning("pairing.other-target", "_name_or_path", zlab_sliding()
            | {"_name_or_path": "z-lab/Qwen3.6-27B-DFlash"},
            target=target_27b_wrapped() | {"_name_or_path": "AEON-7/Qwen3.6-27B-AEON-Uncensored"}),
    warning("pairing.other-target", "_name_or_path", speculators(),
            target=target_8b() | {"_name_or_path": "Qwen/Qwen3-8B-Base"}),
    warning("pairing.other-target", "_name_or_path",
            target=target_4b() | {"_name_or_path": "someone/Qwen3-4B-abliterated"}),
    warning("formats.quantized-target", "quantization",
            target=target_4b() | {"quantization_config": {"quant_method": "awq", "bits": 4}}),
    warning("formats.quantized-target", "quantization",
            target=target_4b() | {"_name_or_path": "someone/Qwen3-4B-GPTQ-Int4"}),
    error("formats.quantized-target", "quantization",
          target=target_4b() | {"quantization_config": {"quant_method": "quarot"}}),
    note("formats.quantized-draft", "quantization",
         zlab_4b() | {"quantization_config": {"quant_method": "gptq"}}),
    note("formats.dtype", "dtype", changed(zlab_4b(), dtype="float32"), target=target_4b()),
    warning("formats.unknown-dtype", "dtype", changed(zlab_4b(), dtype="bfloat61")),
    note("pairing.num-target-layers-unwritten", "num_target_layers",
         changed(zlab_4b(), num_target_layers=...)),
]  # fmt: skip
TAP_CASES = [
    error("taps.missing", TAPS, changed(zlab_4b(), dflash_config__target_layer_ids=...)),
    error("taps.missing", TAPS, changed(zlab_4b(), dflash_config__target_layer_ids=[])),
    error("taps.missing", TAPS, changed(speculators(), aux_hidden_state_layer_ids=None)),
    error("taps.missing", TAPS, changed(gguf_metadata(), **{"dflash.target_layers": ...})),
    error("taps.negative", TAPS, changed(zlab_4b(), dflash_config__target_layer_ids=[-1, 9, 17, 25, 33])),
    error("taps.negative", TAPS, changed(speculators(), aux_hidden_state_layer_ids=[0, 10, 18, 26, 34])),
    error("taps.out-of-range", TAPS, changed(zlab_4b(), dflash_config__target_layer_ids=[1, 9, 17, 25, 36])),
    error("taps.out-of-range", TAPS, target={"hidden_size": 2560, "num_hidden_layers": 32}),
    error("taps.out-of-range", TAPS, changed(assistant()), target=target_muse() | {"num_hidden_layers": 48}),
    error("taps.duplicates", TAPS, changed(zlab_4b(), dflash_config__target_layer_ids=[1, 9, 9, 25, 33])),
    error("taps.order", TAPS, changed(zlab_4b(), dflash_config__target_layer_ids=[1, 17, 9, 25, 33])),
    warning("taps.last-layer", TAPS, changed(zlab_4b(), dflash_config__target_layer_ids=[1, 9, 17, 25, 35])),
    warning("taps.last-layer", TAPS, changed(gguf_metadata(), **{"dflash.target_layers": [2, 18, 36]}),
            target=target_8b()),
    warning("taps.shifted", TAPS, changed(zlab_4b(), dflash_config__target_layer_ids=[2, 10, 18, 26, 34])),
    warning("taps.shifted", TAPS, changed(gguf_metadata(), **{"dflash.target_layers": [1, 9, 17, 25, 33]}),
            target=target_8b()),
    note("taps.shifted", TAPS, changed(speculators(), aux_hidden_state_layer_ids=[1, 9, 17, 25, 33]),
         target=target_8b()),
    error("taps.fc-width", TAPS, draft_shapes={"fc.weight": [2560, 4 * 2560]}),
    error("taps.fc-width", TAPS, assistant(), draft_shapes={"encoder.fc.weight": [6656, 6656]}),
    error("taps.disagree", TAPS, zlab_4b() | {"target_layer_ids": [2, 10, 18, 26, 34]}),
    error("taps.override", TAPS, settings=("target_layer_ids=[2,14,26]",)),
    error("taps.override", TAPS, settings=("target_layer_ids=2,10,18,26,34",)),
    error("taps.not-as-published", TAPS, changed(dflash2(), _name_or_path="z-lab/Qwen3.8-27B-DFlash2",
          dflash_config__target_layer_ids=[1, 16, 31, 46, 61], num_target_layers=64)),
    warning("taps.unlike-published-draft", TAPS, changed(zlab_4b(), dflash_config__target_layer_ids=[1, 8, 17, 25, 33]),
            target=target_4b() | {"_name_or_path": "Qwen/Qwen3-4B"}),
]  # fmt: skip
MASK_CASES = [
    error("mask.missing", MASK, SPARSE_TAPS, tokenizer={"pad_token_id": 151645, "eos_token_id": 151645}),
    error("mask.missing", MASK, changed(gguf_metadata(), **{"tokenizer.ggml.mask_token_id": ...})),
    error("mask.missing", MASK, changed(zlab_4b(), dflash_config__mask_token_id=None)),
    error("mask.is-stop-id", MASK, changed(SPARSE_TAPS, dflash_config__mask_token_id=151645),
          tokenizer={"pad_token_id": 151645, "eos_token_id": 151645}),
    error("mask.is-stop-id", MASK, changed(zlab_4b(), dflash_config__mask_token_id=151645)),
    error("mask.is-stop-id", MASK, changed(zlab_4b(), dflash_config__mask_token_id=151643),
          target=target_4b() | {"eos_token_id": [151645, 151643], "bos_token_id": None}),
    error("mask.is-bos", MASK, changed(zlab_4b(), dflash_config__mask_token_id=151643)),
    warning("mask.is-pad", MASK, changed(zlab_4b(), pad_token_id=151669)),
    warning("mask.is-pad", MASK, tokenizer={"pad_token_id": 151669, "eos_token_id": 151645}),
    error("mask.negative", MASK, changed(zlab_4b(), dflash_config__mask_token_id=-1)),
    error("mask.negative", MASK, changed(gguf_metadata(), **{"tokenizer.ggml.mask_token_id": -1})),
    error("mask.outside-embedding", MASK, changed(zlab_4b(), dflash_config__mask_token_id=151936),
          target=target_4b()),
    error("mask.outside-embedding", MASK, changed(zlab_4b(), dflash_config__mask_token_id=10**9)),
    warning("mask.outside-embedding", MASK, changed(zlab_4b(), dflash_config__mask_token_id=151936)),
    error("mask.outside-embedding", MASK, target=target_4b(),
          target_shapes={"model.embed_tokens.weight": [151669, 2560], **HEAD}),
    warning("mask.is-unk", MASK, tokenizer={"unk_token_id": 151669, "eos_token_id": 151645}),
    warning("mask.is-chat-token", MASK, changed(zlab_sliding(), dflash_config__mask_token_id=248045),
            tokenizer={"eos_token_id": 248046, "added_tokens_decoder": ADDED}),
    warning("mask.disagree", MASK, gguf_metadata()
            | {"tokenizer.ggml.mask_token_id": 5, "dflash.mask_token_id": 151669}),
    warning("mask.disagree", MASK, zlab_4b() | {"mask_token_id": 5}),
    warning("mask.tokenizer-differs", MASK, tokenizer={"mask_token_id": 4, "eos_token_id": 151645}),
    error("mask.override", MASK, settings=("mask_token_id=151643",)),
    warning("mask.override", MASK, changed(zlab_4b(), dflash_config__mask_token_id=None),
            settings=("mask_token_id=151669",)),
    error("mask.not-as-published", MASK, changed(zlab_4b(), _name_or_path="z-lab/Qwen3-4B-DFlash-b16",
          dflash_config__mask_token_id=151670)),
    warning("mask.unlike-published-draft", MASK, changed(zlab_4b(), dflash_config__mask_token_id=151670),
            target=target_4b() | {"_name_or_path": "Qwen/Qwen3-4B"}),
]  # fmt: skip
BLOCK_CASES = [
    error("block.missing", BLOCK, changed(zlab_4b(), block_size=...)),
    error("block.not-positive", BLOCK, changed(zlab_4b(), block_size=0)),
    error("block.not-positive", BLOCK, settings=("block_size=0",)),
    warning("block.one", BLOCK, settings=("block_size=1",)),
    error("block.above-trained", BLOCK, settings=("block_size=17",)),
    error("block.above-trained", BLOCK, changed(dflash2(), dflash_config__block_size=8),
          settings=("block_size=16",)),
    note("block.below-trained", BLOCK, settings=("block_size=4",)),
    warning("block.disagree", BLOCK, changed(zlab_4b(), dflash_config__block_size=8)),
    error("block.window", "sliding_window", changed(zlab_sliding(), sliding_window=8)),
    error("block.window", "sliding_window", settings=("sliding_window_size=8",),
          options={"engine": "sglang"}),
    error("block.beyond-context", BLOCK, changed(zlab_4b(), block_size=50000)),
    error("block.not-as-published", BLOCK, changed(zlab_4b(), block_size=32,
          _name_or_path="z-lab/Qwen3-4B-DFlash-b16")),
    note("block.not-as-published", BLOCK, changed(zlab_4b(), block_size=8,
         _name_or_path="z-lab/Qwen3-4B-DFlash-b16")),
    warning("block.unlike-published-draft", BLOCK, changed(zlab_4b(), block_size=32)),
    warning("block.starts-at-anchor", BLOCK, changed(speculators(), sample_from_anchor=True)),
    warning("block.starts-at-anchor", BLOCK, changed(dflash2(), dflash_config__sample_from_anchor=True)),
    warning("block.proposal-count", BLOCK, changed(speculators(),
            speculators_config__proposal_methods=[{"speculative_tokens": 16}])),
]  # fmt: skip
WINDOW_CASES = [
    error("window.layer-types-length", "layer_types",
          changed(zlab_sliding(), layer_types=["sliding_attention"] * 3 + ["full_attention"])),
    error("window.layer-types-unknown", "layer_types",
          changed(zlab_4b(), layer_types=["linear_attention"] + ["full_attention"] * 4)),
    error("window.missing", "sliding_window", changed(zlab_sliding(), sliding_window=None)),
    error("window.missing", "sliding_window", changed(zlab_sliding(), sliding_window=...)),
    error("window.not-positive", "sliding_window", changed(zlab_sliding(), sliding_window=0)),
    error("window.not-positive", "sliding_window", settings=("sliding_window_size=-4",)),
    warning("window.flag-off", "sliding_window", changed(zlab_sliding(), use_sliding_window=False)),
    warning("window.layer-types-missing", "layer_types", changed(zlab_sliding(), layer_types=...)),
    warning("window.override", "sliding_window", zlab_sliding(), settings=("sliding_window_size=4096",)),
    warning("window.override", "sliding_window", zlab_sliding(), settings=("sliding_window_size=none",)),
    note("window.experimental", "sliding_window", settings=("sliding_window_size=4096",)),
    warning("window.not-as-published", "sliding_window", changed(zlab_sliding(),
            _name_or_path="z-lab/Qwen3.6-27B-DFlash", layer_types=["full_attention"] * 5)),
    warning("window.not-as-published", "sliding_window", changed(zlab_nested_eight_taps(),
            sliding_window=2048)),
    note("causal.unwritten", "is_causal", changed(zlab_sliding(), is_causal=...)),
    error("causal.disagree", "is_causal", changed(zlab_sliding(), dflash_config__causal=True)),
    error("causal.disagree", "is_causal", speculators()
          | {"sliding_window_non_causal": True, "is_causal": True}),
    note("causal.everywhere", "is_causal", zlab_4b() | {"is_causal": True}),
]  # fmt: skip
SELECTOR_CASES = [
    warning("selector.missing", "selector_rank", changed(dflash2(), dflash_config__selector_rank=...)),
    warning("selector.missing", "selector_top_k", changed(dflash2(), dflash_config__selector_top_k=None)),
    error("selector.size", "selector_rank", changed(dflash2(), dflash_config__selector_rank=0)),
    error("selector.size", "conv_kernel_size", changed(dflash2(), dflash_config__conv_kernel_size="2")),
    error("selector.top-k", "selector_top_k", changed(dflash2(), dflash_config__selector_top_k=10**6)),
    error("selector.conv-group", "conv_group_size", changed(dflash2(), dflash_config__conv_group_size=7)),
]  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096}
ROPE_CASES = [
    error("rope.missing", "rope", changed(zlab_4b(), rope_theta=...)),
    warning("rope.missing", "rope", changed(gguf_metadata(), **{"dflash.rope.freq_base": ...})),
    error("rope.disagree", "rope", zlab_4b() | {"rope_parameters": {"rope_theta": 10000000}}),
    error("rope.theta-range", "rope", changed(zlab_4b(), rope_theta=0)),
    note("rope.theta-differs", "rope", target=target_4b() | {"rope_theta": 10000000}),
    warning("rope.unknown-type", "rope", changed(zlab_4b(), rope_scaling={"rope_type": "yearn"})),
    error("rope.yarn-incomplete", "rope", changed(zlab_4b(), rope_scaling={"rope_type": "yarn"})),
    warning("rope.yarn-incomplete", "rope",
            changed(zlab_4b(), rope_scaling={"rope_type": "yarn", "factor": 32.0})),
    error("rope.scaling-disagree", "rope", changed(zlab_4b(), rope_scaling=YARN)
          | {"rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}}),
    error("rope.scaling-disagree", "rope",
          changed(zlab_4b(), rope_scaling=YARN | {"type": "linear"})),
    warning("rope.yarn-lost", "rope", target=target_4b() | {"rope_scaling": YARN}),
    warning("rope.yarn-lost", "rope",
            changed(zlab_4b(), _name_or_path="z-lab/gpt-oss-20b-DFlash")),
]  # fmt: skip
HEAD_CASES = [
    error("head.missing", "lm_head", target=target_4b() | {"tie_word_embeddings": False},
          target_shapes=EMBED),
    warning("head.missing", "lm_head", target=changed(target_4b(), tie_word_embeddings=...),
            target_shapes=EMBED),
    error("embeddings.missing", "embeddings", target=target_4b(), target_shapes=HEAD),
    note("embeddings.rows-differ", "embeddings", target=target_4b() | {"vocab_size": 151680},
         target_shapes=EMBED),
    error("embeddings.rows-differ", "embeddings", target=target_4b() | {"vocab_size": 152064},
          target_shapes=EMBED),
    warning("head.quantized", "lm_head", dflash2(),
            target=target_muse() | {"quantization_config": {"quant_method": "modelopt"}}),
    warning("head.tied-selector", "lm_head", dflash2(), options={"engine": "sglang"},
            target=target_muse() | {"tie_word_embeddings": True}),
    warning("head.softcap", "final_logit_softcapping", dflash2(),
            target=target_muse() | {"final_logit_softcapping": 30.0}),
    note("head.softcap", "final_logit_softcapping",
         target=target_4b() | {"final_logit_softcapping": 30.0}),
]  # fmt: skip
WEIGHT_CASES = [
    error("weights.no-fc", "architecture", draft_shapes={"norm.weight": [2560]}),
    error("weights.fc-output", "hidden_size", draft_shapes={"fc.weight": [4096, 12800]}),
    error("weights.layers", "num_hidden_layers",
          draft_shapes=draft_shapes(changed(zlab_4b(), num_hidden_layers=4))),
    error("weights.attention", "head_dim", changed(zlab_4b(), head_dim=80),
          draft_shapes=draft_shapes(zlab_4b())),
    error("weights.attention-bias", "attention_bias", zlab_4b() | {"attention_bias": True},
          draft_shapes=draft_shapes(zlab_4b())),
]  # fmt: skip
STOP_CASES = [
    error("stops.out-of-vocabulary", "stop_token_ids", target=target_4b(),
          tokenizer={"eos_token_id": [151645, 200002]}),
    error("stops.out-of-vocabulary", "stop_token_ids", tokenizer={"eos_token_id": -1}),
    warning("stops.missing", "stop_token_ids", tokenizer={"pad_token_id": 1}),
    error("stops.starts-a-turn", "stop_token_ids", zlab_sliding(),
          tokenizer={"eos_token_id": 248045, "added_tokens_decoder": ADDED}),
    warning("stops.disjoint", "stop_token_ids", target=target_4b(), tokenizer={"eos_token_id": 2}),
    note("stops.draft-differs", "stop_token_ids", target=target_4b() | {"eos_token_id": 2}),
]  # fmt: skip
CONTEXT_CASES = [
    error("context.exceeded", "context_length", target=target_4b(),
          options={"prompt_tokens": 40000, "max_new_tokens": 945}),
    error("context.exceeded", "context_length", target=target_4b(), options={"prompt_tokens": 50000}),
    error("context.not-positive", "context_length", changed(zlab_4b(), max_position_embeddings=0)),
    warning("context.draft-positions", "context_length",
            options={"prompt_tokens": 40000, "max_new_tokens": 2000}),
    note("context.trained-short", "context_length", options={"prompt_tokens": 8000}),
    warning("context.trained-short", "context_length", options={"prompt_tokens": 20000}),
    warning("context.target-window", "sliding_window",
            target=target_4b() | {"model_type": "gpt_oss", "sliding_window": 128},
            options={"prompt_tokens": 100, "max_new_tokens": 200, "engine": "mlx"}),
    note("context.target-window", "sliding_window",
         target=target_4b() | {"model_type": "gemma3", "sliding_window": 512,
                               "layer_types": ["sliding_attention", "full_attention"] * 18},
         options={"prompt_tokens": 600, "max_new_tokens": 1}),
]  # fmt: skip
TEMPLATE_CASES = [
    warning("thinking.mismatch", "chat_template", settings=("enable_thinking=true",)),
    warning("thinking.mismatch", "chat_template", changed(speculators()),
            settings=("enable_thinking=true",)),
    warning("thinking.mismatch", "chat_template",
            changed(zlab_nested_eight_taps(), _name_or_path="z-lab/Qwen3.5-35B-A3B-DFlash",
                    num_hidden_layers=8, layer_types=["full_attention"] * 8,
                    dflash_config__target_layer_ids=[1, 10, 19, 28, 37]),
            settings=("enable_thinking=false",)),
    note("thinking.server-default", "chat_template", options={"engine": "vllm"}),
    note("template.double-bos", "chat_template",
         tokenizer={"eos_token_id": 151645, "add_bos_token": True, "chat_template": "{{ bos_token }}"}),
]  # fmt: skip
ENGINE_CASES = [
    note("engine.block-count", "engine", options={"engine": "vllm"}),
    note("engine.block-count", "engine", options={"engine": "tensorrt-llm"}),
    warning("engine.count-typed-as-block", BLOCK, settings=("block_size=16",),
            options={"engine": "vllm"}),
    warning("engine.count-typed-as-block", BLOCK, settings=("block_size=16",),
            options={"engine": "llamacpp"}),
    note("engine.llamacpp-default", "engine", gguf_metadata(), options={"engine": "llamacpp"}),
    note("engine.llamacpp-needs-gguf", "engine", options={"engine": "llamacpp"}),
    error("engine.cannot-read-gguf", "engine", gguf_metadata(), options={"engine": "vllm"}),
    warning("engine.no-window-override", "sliding_window", settings=("sliding_window_size=4096",),
            options={"engine": "vllm"}),
    warning("engine.dflash2-version", "engine", dflash2(), options={"engine": "vllm"}),
    note("engine.dflash2-version", "engine", dflash2(), options={"engine": "sglang"}),
    note("engine.dflash2-version", "engine", dflash2(), options={"engine": "llamacpp"}),
    note("engine.dflash2-version", "engine", dflash2(), options={"engine": "transformers"}),
    error("engine.hybrid-rollback", "engine", zlab_sliding(), target=target_27b_wrapped(),
          options={"engine": "transformers"}),
    error("engine.hybrid-rollback", "engine", options={"engine": "transformers"},
          target=target_4b() | {"linear_num_key_heads": 16, "full_attention_interval": 4}),
    note("engine.hybrid-rollback", "engine", zlab_sliding(), target=target_27b_wrapped()),
    note("engine.remote-code", "engine", options={"engine": "transformers"},
         draft=zlab_4b() | {"auto_map": {"AutoModel": "modeling_dflash.DFlashDraftModel"}}),
    note("engine.top-level-fields", "engine", options={"engine": "transformers"}),
    warning("engine.mlx-quantized-block", BLOCK, options={"engine": "mlx"},
            target=target_4b() | {"quantization": {"group_size": 64, "bits": 4}}),
    warning("engine.gemma-on-vllm", "engine", target=target_4b() | {"model_type": "gemma4_text"},
            options={"engine": "vllm"}),
    note("engine.vllm-sliding", "engine", zlab_sliding(), options={"engine": "vllm"}),
    warning("engine.vllm-sliding", "engine", options={"engine": "vllm"}, draft=changed(speculators(),
            sliding_window_non_causal=True, sliding_window=2048, layer_types=["sliding_attention"] * 5)),
    note("engine.sampled", "temperature", settings=("temperature=0.8",)),
    error("engine.temperature-range", "temperature", settings=("temperature=-1",)),
]  # fmt: skip
BROKEN = (
    ARCHITECTURE + SELECTOR_CASES + PAIRING + TAP_CASES + MASK_CASES + BLOCK_CASES + WINDOW_CASES + ROPE_CASES
    + HEAD_CASES + WEIGHT_CASES + STOP_CASES + CONTEXT_CASES + TEMPLATE_CASES + ENGINE_CASES
)  # fmt: skip


@pytest.mark.parametrize("case", BROKEN, ids=[f"{i}-{case.rule}" for i, case in enumerate(BROKEN)])
def test_each_fault_is_reported_at_its_field_with_its_severity(case, tmp_path):
    report = diagnose(case, tmp_path)
    found = [(f.id, f.severity, f.field) for f in report.findings]
    assert (case.rule, case.severity, case.field) in found
    finding = next(f for f in report.findings if f.id == case.rule)
    assert finding.message.endswith(".") and len(finding.message) < 400


def test_every_rule_has_a_case():
    assert {rule.id for rule in RULES} - {case.rule for case in BROKEN} == set()


def test_every_finding_has_evidence_and_every_error_and_warning_a_hint(tmp_path):
    assert [rule.id for rule in RULES if not rule.evidence.startswith("https://")] == []
    for i, case in enumerate(BROKEN):
        for finding in diagnose(case, tmp_path / str(i)).findings:
            assert finding.hint or finding.severity == "note", finding


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_pair_has_no_error_and_no_warning(name, tmp_path):
    draft, target = HEALTHY[name]
    for given in (None, target):
        report = diagnose(Broken("", "", "", draft, given), tmp_path)
        assert [f for f in report.findings if f.severity != "note"] == []


FINE = {
    "a block below the trained one": Broken("", "", "", settings=("block_size=8",)),
    "the trained block": Broken("", "", "", settings=("block_size=16",)),
    "the trained taps given again": Broken(
        "", "", "", settings=("target_layer_ids=[1,9,17,25,33]",)
    ),
    "the trained mask given again": Broken("", "", "", settings=("mask_token_id=151669",)),
    "the trained window given again": Broken(
        "", "", "", zlab_sliding(), settings=("sliding_window_size=2048",)
    ),
    "a mask in padded rows": Broken(
        "", "", "", target=target_4b(), tokenizer={"eos_token_id": 151645, "pad_token_id": 151643}
    ),
    "six layers and eight taps": Broken("", "", "", zlab_nested_eight_taps()),
    "block size in both places, equal": Broken(
        "", "", "", changed(zlab_4b(), dflash_config__block_size=16)
    ),
    "theta in both places, equal": Broken(
        "", "", "", zlab_4b() | {"rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}}
    ),
    "padded vocabularies": Broken("", "", "", target=target_4b() | {"vocab_size": 152576}),
    "tied head without lm_head": Broken("", "", "", target=target_4b(), target_shapes=EMBED),
    "matching weights header": Broken("", "", "", draft_shapes=draft_shapes(zlab_4b())),
    "stop ids in several places": Broken(
        "", "", "", target=target_4b(), tokenizer={"eos_token_id": [151645, 151643]}
    ),
    "sglang counts the anchor": Broken(
        "", "", "", settings=("block_size=16",), options={"engine": "sglang"}
    ),
    "exactly the whole context": Broken(
        "", "", "", target=target_4b(), options={"prompt_tokens": 4000, "max_new_tokens": 36944}
    ),
    "a context stretched by yarn": Broken(
        "",
        "",
        "",
        changed(zlab_4b(), max_position_embeddings=131072, rope_scaling=YARN),
        target=target_4b()
        | {"rope_scaling": YARN | {"factor": 4.0, "original_max_position_embeddings": 32768}},
        options={"prompt_tokens": 4000, "max_new_tokens": 90000},
    ),  # fmt: skip
    "Kimi is published quantised": Broken(
        "",
        "",
        "",
        target={
            "model_type": "kimi_k25",
            "quantization_config": {"quant_method": "compressed-tensors"},
            "text_config": target_4b() | {"model_type": "kimi_k2"},
        },
    ),  # fmt: skip
    "gpt-oss is published quantised": Broken(
        "",
        "",
        "",
        target=target_4b()
        | {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}},
    ),  # fmt: skip
    "a bf16 copy of the published target": Broken(
        "", "", "", target=target_4b() | {"_name_or_path": "unsloth/Qwen3-4B-bf16"}
    ),
    "a target whose name only looks alike": Broken(
        "", "", "", target=target_4b() | {"_name_or_path": "someone/MyQwen3-4Bx"}
    ),
    "the named verifier under a local path": Broken(
        "", "", "", speculators(), target=target_8b() | {"_name_or_path": "/models/Qwen3-8B"}
    ),
}


@pytest.mark.parametrize("name", FINE)
def test_what_is_fine_is_not_called_an_error_or_a_warning(name, tmp_path):
    report = diagnose(FINE[name], tmp_path)
    assert [f for f in report.findings if f.severity != "note"] == []


def test_a_relative_is_not_judged_by_dflash_rules(tmp_path):
    relative = changed(zlab_4b(), dflash_config__markov_rank=256, block_size=0, rope_theta=...)
    report = diagnose(Broken("", "", "", relative, target_8b()), tmp_path)
    assert [f.id for f in report.findings] == ["architecture.relative"]


def test_the_message_of_a_wrong_target_names_both_numbers(tmp_path):
    report = diagnose(
        Broken("", "", "", target={"text_config": {"hidden_size": 2560, "num_hidden_layers": 32}}),
        tmp_path,
    )
    message = next(f.message for f in report.findings if f.field == "num_target_layers")
    assert "36" in message and "32" in message
