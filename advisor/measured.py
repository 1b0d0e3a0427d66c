"""What was measured: the files a user brings, or this machine's own store.

Knows where measurements lie and turns them into the advisor's values. Measures nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from advisor.evidence_files import EvidenceError, read_costs, read_tau_per_position
from advisor.schema import Costs, Task
from advisor.situation import Tuned, TunedPoint
from dflash.device import machine_id
from dflash.measurements import Calibration, TunedBlock, TuneResult, latest_for, measurements_dir


@dataclass(frozen=True, slots=True)
class Measured:
    """Costs, acceptance by position and tuning, as far as there are any."""

    costs: Costs | None = None
    tau_per_position: tuple[float, ...] | None = None
    tau_by_block: dict[int, float] | None = None
    num_tau_prompts: int | None = None  # behind ``tau_by_block``
    tuned: Tuned | None = None


def from_files(costs: str | None, tau_per_position: str | None) -> Measured:
    """Read the files given. Raises ``EvidenceError``, also when no block size is in both."""
    known = read_costs(Path(costs)) if costs else None
    positions = read_tau_per_position(Path(tau_per_position)) if tau_per_position else None
    if known and positions:
        _check_overlap(known, positions)
    return Measured(known, positions)


def from_store(
    *,
    pair_id: str | None,
    target_id: str | None,
    draft_id: str | None,
    task: Task | None,
    prompt_tokens: int | None,
) -> Measured:
    """Read the newest calibration and tuning of this pair on this machine, if there are any."""
    if not any(measurements_dir().glob("*.json")):
        return Measured()  # asking the machine who it is takes time; only when it may matter
    here = machine_id()
    calibration = latest_for(
        Calibration, here, pair_id=pair_id, target_id=target_id, draft_id=draft_id
    )
    tuning = latest_for(TuneResult, here, pair_id=pair_id, target_id=target_id, draft_id=draft_id)
    if tuning is not None and task is not None and tuning.task not in (None, task):
        tuning = None
    positions = calibration.tau_per_position if calibration else None
    if tuning is not None and tuning.tau_per_position is not None:
        positions = tuning.tau_per_position
    return Measured(
        _calibrated(calibration, prompt_tokens) if calibration else None,
        positions,
        dict(calibration.tau_by_block) if calibration and calibration.tau_by_block else None,
        calibration.num_prompts if calibration else None,
        _tuned(tuning) if tuning else None,
    )


def _check_overlap(costs: Costs, positions: tuple[float, ...]) -> None:
    covered = sorted(b for b in costs.draft_s.keys() & costs.verify_s.keys() if b > 1)
    reach = len(positions) + 1
    if not any(block <= reach for block in covered):
        raise EvidenceError(
            f"the costs cover block sizes {covered} and the acceptance reaches {reach}, so none "
            "above 1 is covered by both."
        )


def _calibrated(calibration: Calibration, prompt_tokens: int | None) -> Costs:
    step, about = calibration.nearest(prompt_tokens), calibration.provenance
    basis = f"calibrated on {about.machine}, {about.date[:10]}, at {step.context_tokens} tokens"
    return Costs(step.ar_step_s, dict(step.draft_s), dict(step.verify_s), "measured", basis)


def _tuned(result: TuneResult) -> Tuned:
    about = result.provenance
    judged = f"judged on {result.num_judging_prompts} prompts of its own"
    return Tuned(
        tuple(_point(block) for block in result.tuned),
        _point(result.judged),
        f"tuned on {about.machine}, {about.date[:10]}; {judged}",
        result.prompt_tokens,
    )


def _point(block: TunedBlock) -> TunedPoint:
    gain, window = block.decode_speedup, block.sliding_window_size
    return TunedPoint(block.block_size, gain.median, gain.low, gain.high, gain.n, block.tau, window)
