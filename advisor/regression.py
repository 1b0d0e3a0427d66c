"""The advisor against published results: the block it would choose, the speedup it would predict.

Three tables. *Choice*: given acceptance at one block size and the machine's cost slope, which
block, and how much is lost against the best published one (regret). *Training*: the same for draft
depth and taps of a draft yet to be trained. *Speedup*: given the published tau and a hardware
preset, the modelled speedup beside the published one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from advisor import cost
from advisor.catalog import load_hardware
from advisor.known import draft_from_facts, known_pairs, target_from_facts
from advisor.recommend import recommend
from advisor.schema import Costs, DraftSpec, ModelShape, TargetSpec, Workload
from advisor.situation import Situation
from advisor.sweeps import Ablation, Sweep, SweepCell, load_ablations, load_sweeps
from dflash.presets import PairPreset, PublishedRow, PublishedTable, preset_ids

# The paper's tables do not say how long prompts and answers were; its limits are 2048 new tokens.
PAPER_PROMPT_TOKENS, PAPER_OUTPUT_TOKENS = 500, 1000


@dataclass(frozen=True, slots=True)
class Choice:
    """One sweep cell: the advisor's block, the best published one, and the share lost."""

    sweep: Sweep
    cell: SweepCell
    chosen: int
    best: int
    predicted: float  # at the chosen block, in the sweep's unit

    @property
    def published(self) -> float:
        """What was published at the chosen block."""
        return self.cell.published[self.chosen]

    @property
    def regret(self) -> float:
        """1 - published speed at the chosen block / best published speed."""
        return 1 - self.published / self.cell.published[self.best]


@dataclass(frozen=True, slots=True)
class TrainingChoice:
    """One task of an ablation: the value the advisor recommends and the share lost by it."""

    ablation: Ablation
    task: str
    chosen: int

    @property
    def best(self) -> int:
        """The value with the highest published speedup, the smaller one on a tie."""
        speeds = self.ablation.speedups[self.task]
        return max(speeds, key=lambda value: (speeds[value], -value))

    @property
    def regret(self) -> float:
        """1 - published speedup at the recommended value / best published speedup."""
        speeds = self.ablation.speedups[self.task]
        return 1 - speeds[self.chosen] / speeds[self.best]


@dataclass(frozen=True, slots=True)
class SpeedupCell:
    """One published speedup and the modelled one for the same tau."""

    pair_id: str
    where: str
    hardware: str
    benchmark: str
    concurrency: int
    tau: float
    published: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.published - 1


def choices() -> tuple[Choice, ...]:
    """Let the advisor choose a block for every published sweep."""
    return tuple(_choice(sweep, cell) for sweep in load_sweeps() for cell in sweep.cells)


def training_choices() -> tuple[TrainingChoice, ...]:
    """Let the advisor plan a draft for a target as deep as the paper's and look its values up."""
    target = TargetSpec(shape=ModelShape(num_layers=36))
    answer = recommend(Situation(mode="train", target=target))
    assert answer.training is not None
    chosen = {
        "draft_layers": answer.training["draft_layers"]["value"],
        "num_taps": len(answer.knobs["target_layer_ids"].value),
    }
    return tuple(
        TrainingChoice(ablation, task, chosen[ablation.knob])
        for ablation in load_ablations()
        for task in ablation.speedups
    )


def speedups() -> tuple[SpeedupCell, ...]:
    """Model every published speedup whose machine is in the catalogue and whose tau is known."""
    machines = set(preset_ids("hardware"))
    cells = [
        _speedup(pair, table, row)
        for pair in known_pairs()
        for table in pair.published
        if table.hardware in machines and table.quantization is None
        for row in table.rows
        if row.tau is not None and row.speedup is not None
    ]
    return tuple(cell for cell in cells if cell is not None)


def root_mean_square(errors: list[float]) -> float:
    """Of relative errors, taken on a logarithmic scale so that x2 and x0.5 weigh the same."""
    return math.sqrt(sum(math.log1p(error) ** 2 for error in errors) / len(errors))


def _choice(sweep: Sweep, cell: SweepCell) -> Choice:
    blocks = sorted(cell.published)
    verify_s = {block: sweep.cycle_at(block) for block in blocks}
    # Where plain decoding is not published, a step slow enough that some block always wins.
    step = sweep.step or max(verify_s.values())
    answer = recommend(
        Situation(
            draft=DraftSpec(dialect="z-lab", block_size=sweep.trained_block_size),
            costs=Costs(step, dict.fromkeys(blocks, 0.0), verify_s),
            tau=cell.given_tau,
            tau_block_size=cell.given_block_size,
        )
    )
    chosen = answer.knobs["block_size"].value
    speedup = answer.estimate["speedup"].value
    assert speedup is not None
    predicted = speedup if sweep.unit == "x" else speedup / step
    best = max(blocks, key=lambda block: cell.published[block])
    return Choice(sweep, cell, chosen, best, predicted)


def _speedup(pair: PairPreset, table: PublishedTable, row: PublishedRow) -> SpeedupCell | None:
    draft, target = draft_from_facts(pair), target_from_facts(pair)
    block = table.block_size or draft.block_size
    assert table.hardware is not None and row.tau is not None and row.speedup is not None
    if block is None:
        return None
    workload = Workload(
        prompt_tokens=row.context_tokens or PAPER_PROMPT_TOKENS,
        output_tokens=PAPER_OUTPUT_TOKENS,
        concurrency=row.concurrency,
    )
    costs = cost.modelled_costs(
        target.shape,
        draft.shape,
        load_hardware(table.hardware).hardware(),
        workload,
        block_sizes=[block],
        num_taps=len(draft.target_layer_ids or ()) or 5,
    )
    if costs is None:
        return None
    return SpeedupCell(
        pair.id, table.where, table.hardware, row.benchmark, row.concurrency, row.tau,
        row.speedup, cost.speedup(costs, row.tau, block),
    )  # fmt: skip
