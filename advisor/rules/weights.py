"""Rules that compare the draft's config with the shapes in its weights file."""

from __future__ import annotations

import re

from advisor.rules.case import Case, Fault, rule
from advisor.rules.taps import fc_in_features

MATMUL = "https://github.com/vllm-project/vllm/pull/48113"
_LAYER = re.compile(r"(?:^|\.)(?:layers|blk)\.(\d{1,5})\.")


def _shape(case: Case, *endings: str) -> tuple[int, ...] | None:
    shapes = case.draft.tensor_shapes or {}
    return next((shape for name, shape in shapes.items() if name.endswith(endings)), None)


@rule("weights.no-fc", "error", "architecture", evidence=MATMUL)
def no_fc(case: Case) -> Fault | None:
    """The weights have no fc, the layer that mixes the tapped states."""
    if not case.draft.tensor_shapes or fc_in_features(case) is not None:
        return None
    return Fault(
        "The weights file has no fc.weight, so this is no complete DFlash checkpoint.",
        "Fetch the draft's own weights; an adapter or a target's file is not enough.",
    )


@rule("weights.fc-output", "error", "hidden_size", evidence=MATMUL)
def fc_output(case: Case) -> Fault | None:
    """fc.weight does not put out the draft's hidden size."""
    shape, hidden = _shape(case, "fc.weight"), case.draft.shape.hidden_size
    if shape is None or len(shape) != 2 or hidden is None or shape[0] == hidden:
        return None
    return Fault(
        f"fc.weight puts out {shape[0]} features; hidden_size is {hidden}.",
        "Config and weights come from different checkpoints; fetch both again.",
    )


@rule("weights.layers", "error", "num_hidden_layers", evidence=MATMUL)
def layers(case: Case) -> Fault | None:
    """The weights hold another number of layers than the config says."""
    found = {
        int(m.group(1)) for name in case.draft.tensor_shapes or () if (m := _LAYER.search(name))
    }
    stated = case.draft.shape.num_layers
    if not found or stated is None or len(found) == stated:
        return None
    return Fault(
        f"The weights hold {len(found)} layers; num_hidden_layers is {stated}.",
        "Config and weights come from different revisions; fetch both again.",
    )


@rule("weights.attention", "error", "head_dim", evidence=MATMUL)
def attention(case: Case) -> Fault | None:
    """The query projection does not have heads x head size rows."""
    found = _shape(case, "self_attn.q_proj.weight", "attn_q.weight")
    shape = case.draft.shape
    if found is None or len(found) != 2 or shape.num_attention_heads is None or not shape.head_dim:
        return None
    expected = shape.num_attention_heads * shape.head_dim
    if found[0] == expected:
        return None
    return Fault(
        f"q_proj has {found[0]} rows; {shape.num_attention_heads} heads of {shape.head_dim} "
        f"need {expected}.",
        "Config and weights come from different checkpoints; fetch both again.",
    )


@rule("weights.attention-bias", "error", "attention_bias",
      evidence="https://huggingface.co/z-lab/gpt-oss-20b-DFlash")  # fmt: skip
def attention_bias(case: Case) -> Fault | None:
    """attention_bias and the weights disagree on whether projections have biases."""
    stated = case.draft.attention_bias
    if not case.draft.tensor_shapes or stated is None:
        return None
    if _shape(case, "self_attn.q_proj.weight") is None:
        return None
    has_bias = _shape(case, "self_attn.q_proj.bias") is not None
    if has_bias == stated:
        return None
    return Fault(
        f"attention_bias is {str(stated).lower()}, but the weights "
        f"{'have' if has_bias else 'lack'} projection biases.",
        "Set attention_bias to what the weights hold.",
    )
