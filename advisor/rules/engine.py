"""Rules that one engine brings: how it counts a block, what it reads, what it cannot do."""

from __future__ import annotations

from advisor.rules.case import REFERENCE, Case, Fault, rule
from advisor.rules.formats import target_quantization
from advisor.schema import EngineName
from advisor.values import shown

COUNTS = "https://github.com/NVIDIA/Model-Optimizer/pull/2313"
# Engines whose own setting counts the drafts only, without the anchor, and what it is called.
DRAFT_COUNT_SETTINGS: dict[EngineName, str] = {
    "vllm": "num_speculative_tokens",
    "llamacpp": "--spec-draft-n-max",
    "tensorrt-llm": "max_draft_len",
}
_RECURRENT = ("linear_attention", "mamba", "mamba2", "recurrent", "gated_delta_net", "conv")
# Settings that only recurrent layers have, for configs that do not list layer_types.
_RECURRENT_KEYS = ("linear_num_key_heads", "linear_conv_kernel_dim", "mamba_d_state",
                   "mamba_num_heads", ".ssm.conv_kernel", ".ssm.state_size")  # fmt: skip
_NO_WINDOW: dict[EngineName, str] = {"vllm": "vLLM", "llamacpp": "llama.cpp",
                                     "tensorrt-llm": "TensorRT-LLM"}  # fmt: skip


@rule("engine.block-count", "note", "engine", evidence=COUNTS)
def block_count(case: Case) -> Fault | None:
    """The engine's own setting counts the drafts without the anchor: block size - 1."""
    setting, block = DRAFT_COUNT_SETTINGS.get(case.engine or "sglang"), case.block_size
    if case.engine is None or setting is None or block is None or block < 2:
        return None
    if case.settings.block_size is not None and case.settings.block_size == case.draft.block_size:
        return None  # engine.count-typed-as-block says it louder
    return Fault(
        f"A block of {block} is {setting} {block - 1} for this engine, which does not count the "
        "anchor.",
        f"Set {setting} to {block - 1}.",
    )


@rule("engine.count-typed-as-block", "warning", "block_size", evidence=COUNTS)
def count_typed_as_block(case: Case) -> Fault | None:
    """The number given is the full block, which is one too many for this engine's own setting."""
    setting, block = DRAFT_COUNT_SETTINGS.get(case.engine or "sglang"), case.draft.block_size
    if case.engine is None or setting is None or block is None or block < 2:
        return None
    if case.settings.block_size != block:
        return None
    return Fault(
        f"{block} is the whole block, anchor included; as {setting} it would be one more than the "
        f"{block - 1} drafts this checkpoint makes.",
        f"Set {setting} to {block - 1}.",
    )


@rule("engine.llamacpp-default", "note", "engine",
      evidence="https://github.com/ggml-org/llama.cpp/pull/22105")  # fmt: skip
def llamacpp_default(case: Case) -> Fault | None:
    """llama.cpp drafts 3 tokens unless told otherwise, and clamps to block size - 1."""
    block = case.draft.block_size
    if case.engine != "llamacpp" or block is None or block <= 4:
        return None
    return Fault(
        f"llama.cpp drafts 3 tokens by default, of the {block - 1} this draft can make, and clamps "
        "anything larger to that.",
        f"Pass --spec-draft-n-max {min(case.block_size or block, block) - 1}; lower it where "
        "measurements say so.",
    )


@rule("engine.llamacpp-needs-gguf", "note", "engine",
      evidence="https://github.com/ggml-org/llama.cpp/issues/25792")  # fmt: skip
def llamacpp_needs_gguf(case: Case) -> Fault | None:
    """llama.cpp reads GGUF files, and this draft is a transformers checkpoint."""
    if case.engine != "llamacpp" or case.draft.dialect == "gguf" or not case.has_file:
        return None
    return Fault(
        "llama.cpp needs the draft as GGUF; this is a transformers checkpoint.",
        "Convert it with convert_hf_to_gguf.py and the target's folder as --target-model-dir; "
        "the converter adds 1 to every tap.",
    )


@rule("engine.cannot-read-gguf", "error", "engine",
      evidence="https://github.com/ggml-org/llama.cpp/issues/25792")  # fmt: skip
def cannot_read_gguf(case: Case) -> Fault | None:
    """A GGUF draft is given to an engine that reads transformers checkpoints only."""
    if case.draft.dialect != "gguf" or case.engine in (None, "llamacpp"):
        return None
    return Fault(
        f"{case.engine} does not load a DFlash draft from GGUF.",
        "Use the draft's original safetensors checkpoint.",
    )


@rule("engine.no-window-override", "warning", "sliding_window",
      evidence="https://github.com/vllm-project/vllm/pull/40898")  # fmt: skip
def no_window_override(case: Case) -> Fault | None:
    """This engine follows the checkpoint's windows and has no setting to change them."""
    name = _NO_WINDOW.get(case.engine) if case.engine else None
    wanted = case.settings.sliding_window_size
    if name is None or "sliding_window_size" not in case.settings.given:
        return None
    if wanted == (case.draft.shape.sliding_window if case.has_sliding_layers else None):
        return None
    return Fault(
        f"{name} follows the checkpoint's layer_types and has no draft window setting; "
        f"sliding_window_size {wanted} would do nothing.",
        "Leave it out, or use SGLang (--speculative-draft-window-size) or MLX.",
    )


@rule("engine.dflash2-version", "warning", "engine",
      evidence="https://github.com/noonghunna/club-3090/issues/1064")  # fmt: skip
def dflash2_version(case: Case) -> Fault | None:
    """DFlash 2 needs a recent engine."""
    if not case.is_dflash2:
        return None
    if case.engine == "vllm":
        return Fault(
            "DFlash 2 needs vLLM 0.28 or newer with the V2 model runner; on V1 the selector does "
            "not load.",
            "Check `vllm --version`, and use the V2 runner.",
        )
    if case.engine == "sglang":
        return Fault(
            "DFlash 2 needs an SGLang with PR 35371.", "Check the version.", severity="note"
        )
    if case.engine == "llamacpp":
        return Fault(
            "DFlash 2 needs a llama.cpp of 2026-08-27 or newer (PR 27342).",
            "Check the version.",
            severity="note",
        )
    if case.engine == "transformers":
        return Fault(
            "transformers' own DFlash path has no DFlash 2 selector.",
            "Run it through this project's engine, which has.",
            severity="note",
        )
    return None


@rule("engine.hybrid-rollback", "error", "engine",
      evidence="https://github.com/huggingface/transformers/issues/49036")  # fmt: skip
def hybrid_rollback(case: Case) -> Fault | None:
    """transformers cannot roll back a target with recurrent layers: rejected tokens stay inside."""
    layers = _recurrent_layers(case)
    if layers is None or case.engine not in (None, "transformers"):
        return None
    if case.engine is None:
        return Fault(
            f"{layers}: the engine must restore their recurrent state after every rejection.",
            "vLLM, SGLang, MLX and this project's engine do; plain transformers does not.",
            severity="note",
        )
    return Fault(
        f"{layers}: transformers refuses to assist such a target, and cropping its cache leaves "
        "the rejected tokens in the state.",
        "Use vLLM, SGLang or MLX, or this project's own engine, which restores the state.",
    )


def _recurrent_layers(case: Case) -> str | None:
    """Say which target layers keep a running state, from layer_types or their own settings."""
    if case.target is None:
        return None
    types = case.target.shape.layer_types
    if types is not None:
        kinds = [kind for kind in types if kind in _RECURRENT]
        return f"{len(kinds)} of {len(types)} target layers are {kinds[0]}" if kinds else None
    inner = case.target.raw.get("text_config")
    keys = (*case.target.raw, *(inner if isinstance(inner, dict) else ()))
    mark = next((key for key in keys if key.endswith(_RECURRENT_KEYS)), None)
    return None if mark is None else f"The target has recurrent layers ({shown(mark)})"


@rule("engine.top-level-fields", "note", "engine",
      evidence="https://github.com/huggingface/transformers")  # fmt: skip
def top_level_fields(case: Case) -> Fault | None:
    """transformers' own DFlash path reads block, taps and mask from the top level only."""
    section = case.draft.raw.get("dflash_config")
    if case.engine != "transformers" or not isinstance(section, dict):
        return None
    keys = ("block_size", "target_layer_ids", "mask_token_id")
    hidden = [k for k in keys if section.get(k) is not None and case.draft.raw.get(k) is None]
    if not hidden:
        return None
    return Fault(
        f"{', '.join(hidden)} stand in dflash_config only; transformers' own DFlash path "
        "(batch size 1) reads the top level.",
        "Copy them to the top level for that path; this project's engine reads both.",
    )


@rule("engine.remote-code", "note", "engine",
      evidence="https://github.com/huggingface/transformers/pull/47720")  # fmt: skip
def remote_code(case: Case) -> Fault | None:
    """The checkpoint brings code of its own, which current transformers releases break."""
    if case.engine != "transformers" or not isinstance(case.draft.raw.get("auto_map"), dict):
        return None
    return Fault(
        "The config names code of its own (auto_map); it crops caches in a way that transformers "
        "5 refuses, and older copies delete mask tokens from the output.",
        "Load the weights with this project's engine; no remote code is needed.",
    )


@rule("engine.mlx-quantized-block", "warning", "block_size",
      evidence="https://github.com/Aryagm/dflash-mlx/issues/2")  # fmt: skip
def mlx_quantized_block(case: Case) -> Fault | None:
    """On Apple chips a quantised target is verified fastest in small blocks."""
    method, block = target_quantization(case), case.block_size
    if case.engine != "mlx" or method is None or block is None or block <= 5:
        return None
    return Fault(
        f"MLX verifies a quantised target ({method}) token by token beyond small widths: a block "
        f"of {block} is usually slower than 4 or 5.",
        "Try a block of 4 or 5 and measure; 6 bits and fewer may not gain at all.",
    )


@rule("engine.gemma-on-vllm", "warning", "engine",
      evidence="https://github.com/vllm-project/vllm/pull/41703")  # fmt: skip
def gemma_on_vllm(case: Case) -> Fault | None:
    """Gemma scales its embeddings, which vLLM's draft has to repeat."""
    family = (case.target.model_type or "") if case.target else ""
    if case.engine != "vllm" or not family.startswith("gemma"):
        return None
    return Fault(
        f"The {family} target scales its embeddings; vLLM applies that to a borrowed embedding "
        "only with PR 41703.",
        "Use a build with that change, such as the one the draft's model card names.",
    )


@rule("engine.vllm-sliding", "note", "engine",
      evidence="https://github.com/vllm-project/vllm/pull/40898")  # fmt: skip
def vllm_sliding(case: Case) -> Fault | None:
    """Draft windows, and whether they are causal, need a vLLM that reads them."""
    if case.engine != "vllm" or not case.has_sliding_layers:
        return None
    if case.draft.dialect == "speculators" and case.draft.is_causal is False:
        return Fault(
            "sliding_window_non_causal is true; vLLM before PR 47453 drops it and runs the sliding "
            "layers causal, at lower acceptance.",
            "Use a vLLM with that change.",
            severity="warning",
        )
    return Fault(
        "This draft has sliding layers; early vLLM releases refused or ignored them (PR 40898).",
        "Use a current vLLM.",
    )


@rule("engine.sampled", "note", "temperature",
      evidence="https://github.com/z-lab/dflash/pull/169")  # fmt: skip
def sampled(case: Case) -> Fault | None:
    """Above temperature 0 the output stays exact in distribution, and acceptance falls."""
    temperature = case.settings.temperature
    if temperature is None or temperature <= 0:
        return None
    mlx = (
        " Some MLX servers answer sampled requests without the draft."
        if case.engine == "mlx"
        else ""
    )
    return Fault(
        f"At temperature {temperature:g} the output keeps the target's distribution, but fewer "
        f"drafts are accepted (paper, Qwen3-8B: tau 6.5 at 0, 5.5 at 1).{mlx}",
        "Keep the draft greedy: sampling its proposals lowers acceptance further.",
    )


@rule("engine.temperature-range", "error", "temperature", evidence=REFERENCE)
def temperature_range(case: Case) -> Fault | None:
    """The temperature is negative."""
    temperature = case.settings.temperature
    if temperature is None or temperature >= 0:
        return None
    return Fault(f"temperature is {temperature:g}; it must be 0 or more.", "Use 0 for greedy.")
