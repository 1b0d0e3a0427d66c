"""The advisor's figures against published ones, held to the bar; the page in docs/ is current."""

from __future__ import annotations

import pytest

from advisor.acceptance import from_one_tau
from advisor.cli_regression import PAGE
from advisor.cost import MODEL_ERROR
from advisor.regression import choices, root_mean_square, speedups, training_choices
from advisor.regression_page import MAX_REGRET, page
from advisor.sweeps import load_sweeps


def test_regret_is_within_five_percent_in_nine_of_ten_cells():
    found = choices()
    assert len(found) >= 10
    assert sum(choice.regret <= MAX_REGRET for choice in found) >= 0.9 * len(found)


def test_training_choices_lose_at_most_five_percent():
    found = training_choices()
    assert {choice.ablation.knob for choice in found} == {"draft_layers", "num_taps"}
    assert max(choice.regret for choice in found) <= MAX_REGRET


def test_modelled_speedups_lie_within_the_interval_that_is_shown():
    errors = [cell.error for cell in speedups()]
    assert len(errors) > 50
    assert root_mean_square(errors) < 0.2
    inside = [1 / (1 + MODEL_ERROR) <= 1 + error <= 1 + MODEL_ERROR for error in errors]
    assert sum(inside) >= 0.9 * len(inside)


@pytest.mark.parametrize("sweep", load_sweeps(), ids=lambda sweep: sweep.id)
def test_carried_acceptance_is_within_a_tenth_of_the_published(sweep):
    for cell in sweep.cells:
        curve = from_one_tau(cell.given_tau, cell.given_block_size, source="measured", basis="")
        for block, tau in cell.published_tau.items():
            assert curve.at(block).value == pytest.approx(tau, rel=0.1)


def test_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m advisor regression --write"
