"""Sampled answers on both sides against the target's exact distribution. Knows statistics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product

import torch
from transformers import PreTrainedModel

from dflash.drafts import open_draft
from dflash.generate import decode
from dflash.model import DFlashDraftModel
from dflash.schema import Cycle, Prefilled, SamplingParams
from dflash.targets import open_target
from dflash.verify import filtered_probabilities
from scripts.parity_cases import PROMPTS, Case
from scripts.peer import Peer

BLOCK_SIZE, NUM_TOKENS = 3, 3
MIN_EXPECTED = 5  # per cell of a chi-square test
MIN_P = 0.001
SETTINGS = (
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=1.5, top_k=4, top_p=0.9),
)
Draw = tuple[tuple[int, ...], int]  # the first tokens, and what the first cycle kept


@dataclass(frozen=True, slots=True)
class SampledRow:
    """One pair at one setting. ``p_kept`` is None where the two rules differ by design."""

    case: Case
    setting: SamplingParams
    num_draws: int
    p_ours: float
    p_theirs: float
    kept_ours: float  # tokens of the first cycle, mean
    kept_theirs: float
    p_kept: float | None

    @property
    def passed(self) -> bool:
        """No tested probability is tiny."""
        tested = (self.p_ours, self.p_theirs, 1.0 if self.p_kept is None else self.p_kept)
        return min(tested) > MIN_P

    def line(self) -> str:
        """A row of the table."""
        s = self.setting
        cells = [
            self.case.target,
            self.case.name,
            f"T {s.temperature:g}, top-k {s.top_k or 'off'}, top-p {s.top_p:g}",
            str(self.num_draws),
            f"{self.p_ours:.3f}",
            f"{self.p_theirs:.3f}",
            f"{self.kept_ours:.2f} / {self.kept_theirs:.2f}",
            "by design" if self.p_kept is None else f"{self.p_kept:.3f}",
        ]
        return f"| {' | '.join(cells)} |"


def compare_draws(
    target: PreTrainedModel, draft: DFlashDraftModel, case: Case, peer: Peer, num_draws: int
) -> list[SampledRow]:
    """One row per setting, on the shortest prompt."""
    ids = list(PROMPTS[0])
    rows = []
    for setting in SETTINGS:
        exact = exact_distribution(target, ids, setting)
        ours = _our_draws(target, draft, ids, setting, num_draws)
        theirs = _their_draws(peer, ids, setting, num_draws)
        kept = [[k for _, k in draws] for draws in (ours, theirs)]
        rows.append(
            SampledRow(
                case,
                setting,
                num_draws,
                goodness_of_fit(Counter(t for t, _ in ours), exact),
                goodness_of_fit(Counter(t for t, _ in theirs), exact),
                sum(kept[0]) / num_draws,
                sum(kept[1]) / num_draws,
                same_distribution(Counter(kept[0]), Counter(kept[1])) if case.is_v2 else None,
            )
        )
    return rows


def _our_draws(
    target: PreTrainedModel,
    draft: DFlashDraftModel,
    ids: list[int],
    setting: SamplingParams,
    num_draws: int,
) -> list[Draw]:
    lanes = open_target(target, draft.target_layer_ids), open_draft(draft, target)
    draws = []
    for seed in range(num_draws):
        sampling = SamplingParams(
            setting.temperature, setting.top_p, setting.top_k, seed, BLOCK_SIZE + 1
        )
        events = list(
            decode(
                *lanes, ids, sampling=sampling, block_size=BLOCK_SIZE, stop_ids=frozenset(),
                context_length=512,
            )
        )  # fmt: skip
        assert isinstance(events[0], Prefilled)
        cycles = [e for e in events if isinstance(e, Cycle)]
        tokens = [events[0].token_id] + [i for c in cycles for i in c.emitted_ids]
        draws.append((tuple(tokens[:NUM_TOKENS]), len(cycles[0].emitted_ids)))
    return draws


def _their_draws(peer: Peer, ids: list[int], setting: SamplingParams, num_draws: int) -> list[Draw]:
    job = {
        "ids": ids,
        "max_new_tokens": BLOCK_SIZE + 1,
        "stop_ids": None,
        "block_size": BLOCK_SIZE,
        "seed": 0,
        "num_draws": num_draws,
        "sampling": {
            "temperature": setting.temperature, "top_p": setting.top_p, "top_k": setting.top_k,
        },
    }  # fmt: skip
    return [(tuple(t[:NUM_TOKENS]), kept[0]) for t, kept in peer.ask(job)]


@torch.inference_mode()
def exact_distribution(
    target: PreTrainedModel, ids: list[int], setting: SamplingParams
) -> dict[tuple[int, ...], float]:
    """The probability of every sequence of NUM_TOKENS tokens, those of 0 left out."""
    found: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(NUM_TOKENS):
        prefixes = list(found)
        batch = torch.tensor([[*ids, *prefix] for prefix in prefixes])
        chunks = [target(part).logits[:, -1] for part in batch.split(512)]
        rows = filtered_probabilities(torch.cat(chunks), setting).double()
        # Rarer than one in a million draws: together with the rest either way.
        kept = (rows * torch.tensor([[found[p]] for p in prefixes]) > 1e-6).nonzero().tolist()
        found = {(*prefixes[i], v): found[prefixes[i]] * float(rows[i, v]) for i, v in kept}
    return found


def goodness_of_fit(seen: Counter, exact: dict[tuple[int, ...], float]) -> float:
    """The p-value of Pearson's chi-square test; cells with few expected draws become one."""
    total = sum(seen.values())
    cells = [key for key, p in exact.items() if p * total >= MIN_EXPECTED]
    expected = [exact[key] * total for key in cells]
    observed = [float(seen[key]) for key in cells]
    rest = total - sum(expected)
    if rest >= MIN_EXPECTED:
        expected.append(rest)
        observed.append(total - sum(observed))
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    return _upper_tail(statistic, len(expected) - 1)


def same_distribution(a: Counter, b: Counter) -> float:
    """The p-value that two histograms come from one distribution."""
    totals = sum(a.values()), sum(b.values())
    keys = sorted(set(a) | set(b))
    statistic = 0.0
    for (counts, total), key in product(zip((a, b), totals, strict=True), keys):
        expected = total * (a[key] + b[key]) / sum(totals)
        statistic += (counts[key] - expected) ** 2 / expected
    return _upper_tail(statistic, len(keys) - 1)


def _upper_tail(statistic: float, degrees: int) -> float:
    if degrees < 1:
        return 1.0
    half = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))
