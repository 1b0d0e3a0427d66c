"""How many tokens a cycle yields, tau(B), from whatever is known. Knows probabilities; no seconds.

tau counts the bonus token. Position k is the k-th draft after the anchor, counted from 1, and its
probability is unconditional: the share of cycles in which drafts 1..k were all accepted.

The model for tau at other block sizes: draft k is accepted, given that all before it were, with
probability min(1, a * 0.99**(k-1)). The one unknown, a, is solved from tau at one block size. 0.99
was chosen on the paper's Table 8 (a draft trained at 16 run at 8: tau 6.33 -> 5.09, 5.29 -> 4.44,
3.50 -> 3.18, reproduced within 5 %) and ten transfers from public sweeps (presets/sweeps/): 3.8 %
root mean square, 7.3 % at worst; a plain geometric law is off by up to 13 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisor.schema import Rung

POSITION_DECAY = 0.99
TRANSFER_ERROR = 0.075  # worst relative error of the model over the transfers named above
MAX_BLOCK_SIZE = 64


@dataclass(frozen=True, slots=True)
class Tau:
    """tau at one block size, with an interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class TauCurve:
    """tau by block size and where it came from. A block size that is absent is unknown."""

    by_block: dict[int, Tau]
    source: Rung
    basis: str

    def at(self, block_size: int) -> Tau | None:
        """Return tau at this block size, or ``None`` where the evidence does not reach."""
        return self.by_block.get(block_size)


def tau_at(positions: Sequence[float], block_size: int) -> float:
    """tau(B) = 1 + p1 + ... + p(B-1); ``positions`` must hold at least B - 1 entries."""
    if block_size - 1 > len(positions):
        raise ValueError(f"block size {block_size} needs {block_size - 1} acceptance rates")
    return 1 + sum(positions[: block_size - 1])


def modelled_positions(first: float, num_drafts: int) -> tuple[float, ...]:
    """Unconditional acceptance of drafts 1..num_drafts under the model of this module."""
    reached, positions = 1.0, []
    for k in range(num_drafts):
        reached *= min(1.0, first * POSITION_DECAY**k)
        positions.append(reached)
    return tuple(positions)


def fit_first_acceptance(tau: float, block_size: int) -> float:
    """Solve the model for a, so that tau(``block_size``) is ``tau``. Needs 1 <= tau <= B."""
    if not 1 <= tau <= block_size:
        raise ValueError(f"tau must lie between 1 and the block size {block_size}, got {tau:g}")
    low, high = 0.0, POSITION_DECAY ** (1 - block_size)
    for _ in range(60):
        middle = (low + high) / 2
        reached = tau_at(modelled_positions(middle, block_size - 1), block_size)
        low, high = (middle, high) if reached < tau else (low, middle)
    return (low + high) / 2


def from_blocks(by_block: Mapping[int, Tau], *, source: Rung, basis: str) -> TauCurve:
    """Take tau as it was at each block size. Better than positions: a block run short of its
    trained size accepts less than the first positions of the whole one say."""
    return TauCurve({1: Tau(1.0, 1.0, 1.0), **by_block}, source, basis)


def from_positions(positions: Sequence[float], *, source: Rung, basis: str) -> TauCurve:
    """Sum measured acceptance; nothing is known beyond its last position."""
    by_block = {}
    for block_size in range(1, len(positions) + 2):
        tau = tau_at(positions, block_size)
        by_block[block_size] = Tau(tau, tau, tau)
    return TauCurve(by_block, source, basis)


def from_one_tau(tau: float, block_size: int, *, source: Rung, basis: str) -> TauCurve:
    """Carry tau from one block size to the others through the model."""
    return from_band(tau, tau, tau, block_size, source=source, basis=basis)


def from_band(
    value: float, low: float, high: float, block_size: int, *, source: Rung, basis: str
) -> TauCurve:
    """Carry a published band to other block sizes; the interval grows by the model's error there.

    Raises ``ValueError`` for a tau that no cycle of this block size can reach.
    """
    firsts = [fit_first_acceptance(tau, block_size) for tau in (value, low, high)]
    curves = [modelled_positions(first, MAX_BLOCK_SIZE - 1) for first in firsts]
    by_block = {1: Tau(1.0, 1.0, 1.0)}
    for block in range(2, MAX_BLOCK_SIZE + 1):
        middle, bottom, top = (tau_at(curve, block) for curve in curves)
        slack = 0.0 if block == block_size else TRANSFER_ERROR
        by_block[block] = Tau(
            middle, max(1.0, bottom * (1 - slack)), min(float(block), top * (1 + slack))
        )
    return TauCurve(by_block, source, basis)
