"""tau(B) from positions is a sum; from one tau it is a model that must reproduce the paper."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor import acceptance


def test_tau_of_positions_is_one_plus_their_sum_and_unknown_beyond_them():
    curve = acceptance.from_positions([0.8, 0.5, 0.1], source="measured", basis="")
    assert [curve.at(b).value for b in (1, 2, 3, 4)] == pytest.approx([1, 1.8, 2.3, 2.4])
    assert curve.at(5) is None


@settings(deadline=None)
@given(block=st.integers(2, 64), share=st.floats(0, 1))
def test_the_model_returns_the_tau_it_was_given(block, share):
    tau = 1 + share * (block - 1)
    first = acceptance.fit_first_acceptance(tau, block)
    positions = acceptance.modelled_positions(first, block - 1)
    assert acceptance.tau_at(positions, block) == pytest.approx(tau, abs=1e-6)
    assert list(positions) == sorted(positions, reverse=True)


@pytest.mark.parametrize(("at_16", "at_8"), [(6.33, 5.09), (5.29, 4.44), (3.50, 3.18)])
def test_the_paper_s_transfer_from_block_16_to_8_is_reproduced(at_16, at_8):
    curve = acceptance.from_one_tau(at_16, 16, source="measured", basis="")
    assert curve.at(8).value == pytest.approx(at_8, rel=0.05)
    assert curve.at(8).low <= at_8 <= curve.at(8).high


def test_a_band_keeps_its_interval_where_it_was_measured_and_widens_elsewhere():
    curve = acceptance.from_band(4.0, 3.0, 5.0, 16, source="published", basis="")
    here, there = curve.at(16), curve.at(8)
    assert (here.low, here.value, here.high) == pytest.approx((3, 4, 5))
    assert there.low < there.value < there.high


def test_an_impossible_tau_is_refused():
    with pytest.raises(ValueError, match="between 1 and the block size 4, got 5"):
        acceptance.fit_first_acceptance(5, 4)
