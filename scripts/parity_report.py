"""What the parity check found, case by case, and its table. Knows results; runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dflash.schema import Cycle
from scripts.parity_cases import Case
from scripts.parity_sampled import SampledRow

Ours = tuple[list[int], list[Cycle]]


@dataclass(slots=True)
class CaseRow:
    """One case at one block size, over all prompts. Counts of what is equal."""

    case: Case
    block_size: int
    not_loaded: tuple[str, ...]  # tensors that a loader missed or did not expect
    num_prompts: int = 0
    ours_lossless: int = 0  # our answer is the target's own
    paths_equal: int = 0  # our fast and plain path: the same cycles
    theirs_lossless: int = 0
    answers_equal: int = 0
    num_cycles: int = 0  # compared: while both sides' blocks are equally wide
    drafts_equal: int = 0
    kept_equal: int = 0
    ours_tokens: int = 0  # kept in those cycles
    theirs_tokens: int = 0

    def add(self, reference: list[int], fast: Ours, plain: Ours, theirs: dict[str, Any]) -> None:
        """Count one prompt."""
        self.num_prompts += 1
        self.ours_lossless += fast[0] == plain[0] == reference
        self.paths_equal += [(c.draft_ids, c.num_accepted) for c in fast[1]] == [
            (c.draft_ids, c.num_accepted) for c in plain[1]
        ]
        self.theirs_lossless += theirs["output_ids"] == reference
        self.answers_equal += theirs["output_ids"] == fast[0]
        blocks, kept = theirs["blocks"], theirs["tokens_per_cycle"]
        for cycle, block, num_kept in zip(fast[1], blocks, kept, strict=False):
            if len(block) != len(cycle.draft_ids) + 1:
                break  # near the length limit the official loop drafts one slot more
            self.num_cycles += 1
            self.drafts_equal += list(cycle.draft_ids) == block[1:]
            self.kept_equal += len(cycle.emitted_ids) == num_kept
            self.ours_tokens += len(cycle.emitted_ids)
            self.theirs_tokens += num_kept


def verdict(row: CaseRow) -> str:
    """``equal``, ``explained`` or ``DIFFERENT``. An explanation never covers an answer of ours
    that is not the target's own, nor a tensor that did not load."""
    if row.not_loaded or row.ours_lossless < row.num_prompts or row.paths_equal < row.num_prompts:
        return "DIFFERENT"
    is_equal = (
        row.answers_equal == row.num_prompts
        and row.drafts_equal == row.kept_equal == row.num_cycles > 0
    )
    if is_equal:
        return "equal"
    return "explained" if row.case.why else "DIFFERENT"


def markdown(rows: Sequence[CaseRow], sampled: Sequence[SampledRow], about: dict[str, str]) -> str:
    """The whole report."""
    found = [verdict(r) for r in rows]
    reasons = list(dict.fromkeys(r.case.why for r, v in zip(rows, found, strict=True)
                                 if v == "explained"))  # fmt: skip
    lines = [
        "# Parity with the official package",
        "",
        "Made by `python scripts/parity_official.py --write docs/parity.md`. The official package "
        "(PyPI `dflash` 0.1.0) runs unchanged, apart from its CUDA-only clock, in an environment "
        "of its own. Both sides read the same small checkpoints from disk: random targets of the "
        "real classes, drafts fitted for seconds so that blocks are partly accepted, fp32 on a "
        "CPU.",
        "",
        *(f"- {name} {version}" for name, version in about.items()),
        "",
        "## Temperature 0",
        "",
        "Three prompts (4, 23 and 41 tokens; windows are 8), 40 new tokens. *Answers*: equal to "
        "the official ones. *Drafts*, *kept*: cycles whose drafted block, and whose number of "
        "tokens kept, are equal. Cycles are compared until the length limit narrows the blocks: "
        "there the official loop drafts one slot more than can be emitted. *Own*: answers equal "
        "to the target's own `generate`, ours and theirs. Both our CPU path and our module path "
        "are run and must agree; every tensor must load on both sides, also after the official "
        "package has saved it again.",
        "",
        "| target | draft | block | answers | drafts | kept | tau ours / official "
        "| own: ours, official | verdict |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_line(r, v, reasons) for r, v in zip(rows, found, strict=True)),
        "",
        *(f"[{i + 1}] {why}." for i, why in enumerate(reasons)),
        "",
        f"{found.count('equal')} rows equal, {found.count('explained')} explained, "
        f"{found.count('DIFFERENT')} unexplained.",
        "",
        *_sampled(sampled),
    ]
    return "\n".join(lines) + "\n"


def _line(row: CaseRow, found: str, reasons: list[str]) -> str:
    n, c = row.num_prompts, row.num_cycles
    note = f" [{reasons.index(row.case.why) + 1}]" if found == "explained" else ""
    if row.not_loaded:
        note = f": not loaded: {', '.join(row.not_loaded[:2])}"
    taus = [f"{t / c:.2f}" if c else "-" for t in (row.ours_tokens, row.theirs_tokens)]
    cells = [
        row.case.target,
        row.case.name,
        str(row.block_size),
        f"{row.answers_equal}/{n}",
        f"{row.drafts_equal}/{c}",
        f"{row.kept_equal}/{c}",
        " / ".join(taus),
        f"{row.ours_lossless}/{n}, {row.theirs_lossless}/{n}",
        found + note,
    ]
    return f"| {' | '.join(cells)} |"


def _sampled(rows: Sequence[SampledRow]) -> list[str]:
    if not rows:
        return []
    return [
        "## Above temperature 0",
        "",
        "The first three tokens of many sampled answers, blocks of 3, against the target's own "
        "distribution over all triples, computed exactly (chi-square; rare triples together). "
        "Both sides filter the target's logits by top-k, then top-p, then renormalise. A DFlash 2 "
        "draft is drawn from its selector's probabilities at the run's temperature, unfiltered on "
        "both sides, and judged by rejection sampling; the numbers of drafts kept in the first "
        "cycle are then compared too (chi-square of two samples). For a first-generation draft "
        "the official loop draws every slot from the draft's own filtered distribution and judges "
        "by rejection; ours proposes the argmax and keeps it when the target draws the same "
        "token. Both are exact; only how much is kept differs, and it is shown, not tested.",
        "",
        "| target | draft | sampling | n | p ours | p official | kept ours / official | p kept |",
        "|---|---|---|---|---|---|---|---|",
        *(r.line() for r in rows),
        "",
        f"{sum(r.passed for r in rows)} of {len(rows)} pass (every tested p above 0.001).",
    ]
