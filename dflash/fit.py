"""Whether a draft belongs to a target, and what may be changed about it. Knows numbers only;
shared by torch and MLX."""

from __future__ import annotations

from collections.abc import Sequence

from dflash.errors import CheckpointError, PairError


def check_fit(
    *,
    wanted_layers: int | None,
    target_layers: int,
    draft_hidden: int,
    target_hidden: int,
    mask_token_id: int | None,
    embedding_rows: int,
) -> None:
    """Refuse a draft that cannot work with this target. Raises ``PairError`` naming both."""
    use_named = "Use the target named on the draft's model card."
    if wanted_layers is not None and wanted_layers != target_layers:
        raise PairError(
            f"this draft is for a {wanted_layers}-layer target; the one you chose has "
            f"{target_layers} layers.",
            use_named,
        )
    if draft_hidden != target_hidden:
        raise PairError(
            f"this draft has hidden size {draft_hidden} and the target {target_hidden}.", use_named
        )
    if mask_token_id is None or not 0 <= mask_token_id < embedding_rows:
        raise PairError(
            f"mask_token_id {mask_token_id} is outside the target's {embedding_rows} embedding "
            "rows.",
            "Use the id the draft was trained with.",
        )


def check_window(trained: Sequence[int | None], wanted: int) -> None:
    """Refuse a window for a draft that has its own: ``trained`` has one entry per layer, ``None``
    for full attention. Raises ``CheckpointError``."""
    own = next((window for window in trained if window is not None), None)
    if own is not None:
        raise CheckpointError(
            f"this draft was trained with a window of {own}; sliding_window_size={wanted} would "
            "replace it.",
            "Leave sliding_window_size out.",
        )
    if wanted < 1:
        raise CheckpointError(
            f"sliding_window_size is {wanted}; a window holds at least 1 token.",
            "Leave sliding_window_size out for full attention.",
        )
