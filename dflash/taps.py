"""Which target layers a draft reads. Knows layer counts only.

Every id here is a layer *output*, counted from 0 (the published convention): id L is the
transformers ``hidden_states[L + 1]``. vLLM, speculators and GGUF files store L + 1.
"""

from __future__ import annotations

from dflash.errors import TapsError


def build_target_layer_ids(num_target_layers: int, num_taps: int) -> list[int]:
    """Spread taps uniformly from layer 1 to the third-to-last layer (paper section 1.9).

    The second argument is the number of *taps*; published drafts may have more taps than draft
    layers, so this rule is only for a draft yet to be trained. Raises ``TapsError``, which is a
    ``ValueError``, when the target is too shallow for that many different layers.
    """
    if num_taps < 1:
        raise TapsError(f"at least one tapped layer is needed, got {num_taps}")
    if num_taps == 1:
        return [num_target_layers // 2]
    span = num_target_layers - 4
    ids = [round(1 + i * span / (num_taps - 1)) for i in range(num_taps)]
    if len(set(ids)) != num_taps or ids != sorted(ids) or ids[0] < 0:
        raise TapsError(
            f"a {num_target_layers}-layer target cannot give {num_taps} different layers "
            f"between 1 and {num_target_layers - 3}; ask for fewer"
        )
    return ids
