"""Rules about prompt, answer and block fitting into the context."""

from __future__ import annotations

from advisor.rules.case import PAPER, QWEN3_CONFIG, Case, Fault, rule
from advisor.schema import DraftSpec, TargetSpec
from advisor.values import MAX_INTEGER

LIMIT = "https://github.com/predibase/lorax/issues/474"
POSITIONS = "https://github.com/spiritbuun/buun-llama-cpp/issues/32"
_TRAINED_TOKENS = 4096  # the papers' and SpecForge's training length
_LONG_TOKENS = 16_384  # where the paper's own 4K-trained draft has lost a quarter of its tau

_SLIDING_FAMILIES = ("gemma", "gpt_oss")


def _needed(case: Case) -> int | None:
    """Prompt plus answer, as far as given."""
    if case.prompt_tokens is None and case.max_new_tokens is None:
        return None
    return (case.prompt_tokens or 0) + (case.max_new_tokens or 0)


def _context(spec: DraftSpec | TargetSpec) -> int | None:
    """Positions a model can use: max_position_embeddings, or more where scaling stretches them."""
    limit, parameters = spec.max_position_embeddings, spec.rope.parameters
    factor, original = (
        parameters.get("factor"),
        parameters.get("original_max_position_embeddings"),
    )
    if limit is None or type(original) is not int or not isinstance(factor, int | float):
        return limit
    is_usable = 1 <= factor <= 1024 and 0 < original <= MAX_INTEGER
    return max(limit, int(original * factor)) if is_usable else limit


@rule("context.exceeded", "error", "context_length", evidence=LIMIT)
def exceeded(case: Case) -> Fault | None:
    """Prompt, answer and one block do not fit into the target's context."""
    limit, needed = _context(case.target) if case.target else None, _needed(case)
    if limit is None or needed is None:
        return None
    block = case.block_size or 0
    if needed + block <= limit:
        return None
    room = limit - (case.prompt_tokens or 0) - block
    hint = f"Ask for at most {room} new tokens." if room > 0 else "Shorten the prompt."
    return Fault(
        f"{case.prompt_tokens or 0} prompt tokens, {case.max_new_tokens or 0} new ones and a block "
        f"of {block} make {needed + block}; the target's context is {limit}.",
        hint,
    )


@rule("context.not-positive", "error", "context_length", evidence=QWEN3_CONFIG)
def not_positive(case: Case) -> Fault | None:
    """A context length is zero or negative."""
    for who, limit in (
        ("draft", case.draft.max_position_embeddings),
        ("target", case.target.max_position_embeddings if case.target else None),
    ):
        if limit is not None and limit < 1:
            return Fault(
                f"The {who}'s max_position_embeddings is {limit}; it must be positive.",
                "Restore the value from the published config.json.",
            )
    return None


@rule("context.draft-positions", "warning", "context_length", evidence=POSITIONS)
def draft_positions(case: Case) -> Fault | None:
    """Prompt and answer reach past the positions the draft knows."""
    limit, needed = _context(case.draft), _needed(case)
    if limit is None or needed is None or limit < 1 or needed <= limit:
        return None
    return Fault(
        f"{needed} tokens reach past the draft's {limit} positions; its acceptance falls there.",
        "Keep prompt and answer shorter, or use a draft trained for long context.",
    )


@rule("context.trained-short", "note", "context_length", evidence=PAPER)
def trained_short(case: Case) -> Fault | None:
    """A long prompt on a draft with full attention that was trained at about 4K tokens."""
    prompt = case.prompt_tokens
    if prompt is None or prompt <= _TRAINED_TOKENS or case.has_sliding_layers or case.is_dflash2:
        return None
    if "sliding_window_size" in case.settings.given or case.draft.shape.layer_types is None:
        return None
    return Fault(
        f"A prompt of {prompt} tokens is beyond the {_TRAINED_TOKENS} that drafts without windows "
        "are trained at; the paper's own draft falls from tau 4.9 at 1K to 3.6 at 16K.",
        "Try a draft window of 2048 to 4096 and measure, or a draft trained for long context.",
        severity="warning" if prompt >= _LONG_TOKENS else "note",
    )


@rule("context.target-window", "warning", "sliding_window",
      evidence="https://github.com/ml-explore/mlx-swift-lm/issues/424")  # fmt: skip
def target_window(case: Case) -> Fault | None:
    """The run outgrows the target's own window, where some caches can no longer be rolled back."""
    needed = _needed(case)
    if case.target is None or needed is None:
        return None
    shape = case.target.shape
    window = shape.sliding_window
    if window is None or window < 1 or needed <= window:
        return None
    always_slides = (case.target.model_type or "").startswith(_SLIDING_FAMILIES)
    types = shape.layer_types
    if "sliding_attention" not in types if types is not None else not always_slides:
        return None
    if case.engine not in (None, "mlx", "transformers"):
        return None
    return Fault(
        f"{needed} tokens outgrow the target's window of {window}: a rotating cache cannot be "
        "rolled back after that.",
        "transformers: call activate_past_recording() before the window fills; MLX: use full "
        "caches for these layers.",
        severity="note" if case.engine is None else "warning",
    )
