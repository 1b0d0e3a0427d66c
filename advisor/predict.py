"""Predicted speed at every block size, from the best costs and acceptance at hand.

Knows how evidence combines; knows no knob and no verdict. Only a tuning run's speedup is measured:
one that was computed is ``modelled``, however well its costs and its tau are known, and its basis
says what they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from advisor import acceptance, cost
from advisor.schema import Costs, Rung
from advisor.situation import Published, Situation

DEFAULT_BLOCK_SIZE = 16  # what a tau without a block size is taken to be measured at
MAX_MODELLED_BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Prediction:
    """One block size. ``low`` and ``high`` bound the speedup; tau and speedup may be unknown."""

    block_size: int
    tau: acceptance.Tau | None
    break_even_tau: float | None
    speedup: float | None
    low: float | None
    high: float | None
    tpot_s: float | None
    source: Rung
    basis: str
    n: int | None = None  # paired runs behind a measured speedup


@dataclass(frozen=True, slots=True)
class Outlook:
    """All predictions for a situation, ascending by block size; empty when no cost is known."""

    rows: tuple[Prediction, ...]
    costs: Costs | None
    curve: acceptance.TauCurve | None
    beyond_trained: tuple[int, ...] = ()  # covered by the files, above the draft's own block
    judged: int | None = None  # a tuning run's winner: chosen on other prompts than its row shows

    def at(self, block_size: int | None) -> Prediction | None:
        """The prediction for this block size, if there is one."""
        return next((row for row in self.rows if row.block_size == block_size), None)

    @property
    def best(self) -> Prediction | None:
        """The fastest row, the smaller block on a tie; ``None`` when no speedup is known.

        A tuning run has chosen already: its losers' rows are of the prompts they lost on.
        """
        if self.judged is not None:
            return self.at(self.judged)
        known = [row for row in self.rows if row.speedup is not None]
        return max(known, key=lambda row: (row.speedup or 0.0, -row.block_size), default=None)


def outlook(situation: Situation) -> Outlook:
    """Predict every candidate block size from tuning, else from costs and acceptance."""
    curve = tau_curve(situation)
    ceiling = situation.trained_block_size
    costs = situation.costs or _modelled(situation, ceiling)
    if situation.tuned is not None:
        rows = _tuned_rows(situation, costs)
        return Outlook(rows, costs, curve, judged=situation.tuned.best.block_size)
    if costs is None:
        return Outlook((), None, curve)
    blocks = cost.covered_block_sizes(costs)
    if curve is not None:
        blocks = [b for b in blocks if curve.at(b) is not None]
    above = tuple(b for b in blocks if ceiling is not None and b > ceiling)
    rows = tuple(_predicted(costs, curve, b) for b in blocks if b not in above)
    return Outlook(rows, costs, curve, above)


def tau_curve(situation: Situation) -> acceptance.TauCurve | None:
    """The best acceptance at hand: per block size, else per position, else one tau, else the
    published band."""
    if situation.tau_by_block is not None:
        taus = {b: acceptance.Tau(tau, tau, tau) for b, tau in situation.tau_by_block.items()}
        prompts = situation.num_tau_prompts
        over = f", median of {prompts} prompts" if prompts else ""
        basis = f"acceptance measured at each block size{over}"
        return acceptance.from_blocks(taus, source="measured", basis=basis)
    if situation.tau_per_position is not None:
        return acceptance.from_positions(
            situation.tau_per_position, source="measured", basis="measured acceptance by position"
        )
    if situation.tau is not None:
        block = tau_block_size(situation)
        return acceptance.from_one_tau(
            situation.tau, block, source="measured",
            basis=f"tau {situation.tau:g} at block size {block}, carried to others by a model",
        )  # fmt: skip
    if situation.published is None or situation.mode == "train":
        return None
    return _published_curve(situation.published)


def _published_curve(published: Published) -> acceptance.TauCurve | None:
    """The published sweep's own tau at each block size, else the band carried by the model."""
    taus = {
        s.block_size: acceptance.Tau(s.tau, s.tau_low or s.tau, s.tau_high or s.tau)
        for s in published.speeds
        if s.tau is not None
    }
    if len(taus) > 1:
        basis = f"published tau at each block size ({published.speeds_basis})"
        return acceptance.from_blocks(taus, source="published", basis=basis)
    band = published.tau_band
    if band is None:
        return None
    return acceptance.from_band(
        band.value, band.low, band.high, band.block_size, source="published", basis=band.basis
    )


def tau_block_size(situation: Situation) -> int:
    """The block size a bare --tau belongs to: as given, the trained one, the largest with costs."""
    if situation.tau_block_size is not None:
        return situation.tau_block_size
    if situation.trained_block_size:
        return situation.trained_block_size
    if situation.costs is not None:
        return max(cost.covered_block_sizes(situation.costs), default=DEFAULT_BLOCK_SIZE)
    return DEFAULT_BLOCK_SIZE


def _modelled(situation: Situation, ceiling: int | None) -> Costs | None:
    if situation.hardware is None:
        return None
    draft = situation.draft if situation.mode == "serve" else None
    top = ceiling or MAX_MODELLED_BLOCK_SIZE
    return cost.modelled_costs(
        situation.target_shape,
        draft.shape if draft else None,
        situation.hardware,
        situation.workload,
        block_sizes=range(2, min(top, acceptance.MAX_BLOCK_SIZE) + 1),
        num_taps=len(draft.target_layer_ids) if draft and draft.target_layer_ids else 5,
    )


def _predicted(costs: Costs, curve: acceptance.TauCurve | None, block: int) -> Prediction:
    tau = curve.at(block) if curve else None
    needed = cost.break_even_tau(costs, block)
    if curve is None or tau is None:
        return Prediction(
            block, None, needed, None, None, None, None, "modelled",
            f"{costs.basis}; acceptance unknown",
        )  # fmt: skip
    gained = cost.speedup(costs, tau.value, block)
    slack = cost.MODEL_ERROR if costs.source == "modelled" else cost.FORMULA_ERROR
    return Prediction(
        block_size=block,
        tau=tau,
        break_even_tau=needed,
        speedup=gained,
        low=cost.speedup(costs, tau.low, block) / (1 + slack),
        high=cost.speedup(costs, tau.high, block) * (1 + slack),
        tpot_s=(costs.draft_s[block] + costs.verify_s[block]) / tau.value,
        source="modelled",
        basis=f"{curve.basis}; {costs.basis}",
    )


def _tuned_rows(situation: Situation, costs: Costs | None) -> tuple[Prediction, ...]:
    tuned = situation.tuned
    assert tuned is not None
    points = {p.block_size: p for p in tuned.points if p.sliding_window_size is None}
    points[tuned.best.block_size] = tuned.best
    covered = cost.covered_block_sizes(costs) if costs else []
    rows = []
    for block, point in sorted(points.items()):
        if block < 2:
            continue
        needed = cost.break_even_tau(costs, block) if costs and block in covered else None
        tau = acceptance.Tau(point.tau, point.tau, point.tau) if point.tau else None
        ar_step_s = costs.ar_step_s if costs and costs.source == "measured" else None
        rows.append(
            Prediction(
                block, tau, needed, point.speedup, point.low, point.high,
                ar_step_s / point.speedup if ar_step_s else None,
                "measured", tuned.basis, point.n,
            )
        )  # fmt: skip
    return tuple(rows)
