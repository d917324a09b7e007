"""Estimators against closed forms, tables and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraphbench import stats

samples = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30)


def test_hodges_lehmann_shrugs_off_one_wild_value():
    assert stats.hodges_lehmann([1.0, 1.0, 1.0, 1.0, 1e9]) == 1.0


def test_hodges_lehmann_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="no values"):
        stats.hodges_lehmann([])


@given(samples, st.floats(-1e3, 1e3))
def test_hodges_lehmann_moves_with_its_data(values: list[float], shift: float):
    moved = stats.hodges_lehmann(np.array(values) + shift)
    assert moved == pytest.approx(stats.hodges_lehmann(values) + shift, abs=1e-3)


@given(samples)
def test_the_interval_holds_the_estimate(values: list[float]):
    low, high = stats.signed_rank_interval(values, 0.9)
    assert low - 1e-6 <= stats.hodges_lehmann(values) <= high + 1e-6


def test_six_values_give_their_range_at_95_percent():
    """The exact test cannot reject at 5 % unless all six lie on one side."""
    values = [3.0, 1.0, 2.0, 6.0, 5.0, 4.0]
    assert stats.signed_rank_interval(values, 0.95) == (1.0, 6.0)


def test_too_few_values_fall_back_to_student():
    low, high = stats.signed_rank_interval([1.0, 2.0, 3.0], 0.95)
    assert (low + high) / 2 == pytest.approx(2.0)
    assert high - low == pytest.approx(2 * 4.302653 / math.sqrt(3), rel=1e-5)


def test_one_value_says_nothing():
    assert stats.signed_rank_interval([1.0], 0.95) == (-math.inf, math.inf)


@pytest.mark.parametrize("count", [12, 30, 250])
def test_the_interval_covers_the_centre_of_heavy_tails(count: int):
    rng = np.random.default_rng(count)
    repeats = 400
    hits = 0
    for _ in range(repeats):
        low, high = stats.signed_rank_interval(rng.standard_t(3, count), 0.95)
        hits += low <= 0.0 <= high
    # 0.95 - 3 standard errors of a proportion over 400.
    assert hits / repeats > 0.917


def test_t_quantile_agrees_with_tables():
    assert stats.t_quantile(0.95, 4) == pytest.approx(2.776445, rel=1e-6)


def test_launch_spread_takes_out_drift_and_speed():
    speed = np.array([[0.0], [1.0], [2.0]])
    drift = np.array([0.0, 0.3, -0.2])
    found = stats.launch_spread(speed + drift)
    prior = stats.LAUNCH_PRIOR
    assert found.degrees == prior.degrees + 4
    assert found.sd == pytest.approx(prior.sd * math.sqrt(prior.degrees / found.degrees))


def test_launch_spread_finds_what_launches_add():
    rng = np.random.default_rng(0)
    found = stats.launch_spread(0.02 * rng.standard_normal((40, 8)))
    assert found.sd == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize("table", [np.zeros((1, 3)), np.zeros((3, 1)), np.zeros((0,))])
def test_launch_spread_of_one_launch_is_the_prior(table: np.ndarray):
    assert stats.launch_spread(table) == stats.LAUNCH_PRIOR


def test_jackknife_matches_the_formula_for_means():
    top, bottom = np.array([10.0, 12.0, 11.0, 9.0]), np.full(4, 2.0)
    estimate, error = stats.jackknife_log_ratio(top, bottom)
    assert estimate == pytest.approx(math.log(42 / 8))
    expected = np.std(top, ddof=1) / math.sqrt(4) / top.mean()
    assert error == pytest.approx(expected, rel=0.02)


def test_holm_spends_most_on_the_first():
    assert [round(stats.holm(0.95, rank, 3), 4) for rank in range(3)] == [0.9833, 0.975, 0.95]


def test_a_host_noisier_than_believed_stands_on_its_own_degrees():
    table = 0.05 * np.random.default_rng(0).standard_normal((6, 3))
    found = stats.launch_spread(table)
    residual = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    assert found.degrees == 10
    assert found.sd == pytest.approx(math.sqrt(np.sum(residual**2) / 10))


def test_equal_programs_differ_no_oftener_than_said_where_launches_are_wild():
    rng = np.random.default_rng(1)
    differ, cases = 0, 2000
    for _ in range(cases):
        table = 0.03 * rng.standard_normal((6, 3))
        launch = stats.launch_spread(table)
        half = stats.t_quantile(0.95, launch.degrees) * launch.sd * math.sqrt(2 / 3)
        differ += abs(table[0].mean() - table[1].mean()) > half
    # Four standard errors of a share of 5 %; with the prior's degrees lent it is 5.7 %.
    assert differ / cases <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / cases)


def autoregressive(rng: np.random.Generator, keep: float, count: int = 40) -> np.ndarray:
    noise = rng.standard_normal(count)
    values = [noise[0]]
    for one in noise[1:]:
        values.append(keep * values[-1] + math.sqrt(1 - keep**2) * one)
    return np.array(values)


def test_neighbours_that_are_alike_widen_the_interval():
    rng = np.random.default_rng(2)
    alike = [autoregressive(rng, 0.7) for _ in range(3)]
    assert stats.serial_inflation(alike) == pytest.approx(math.sqrt(1.7 / 0.3), rel=0.35)
    assert stats.serial_inflation([rng.standard_normal(40) for _ in range(3)]) == 1.0
    assert stats.serial_inflation([alike[0][:19]]) == 1.0
    wild = [np.where(np.arange(40) == 7, 100.0, column) for column in alike]
    assert stats.serial_inflation(wild) > 1.5
    assert stats.serial_inflation([np.zeros(40)]) == 1.0


def test_widened_intervals_cover_where_plain_ones_do_not():
    rng = np.random.default_rng(3)
    plain, widened, cases = 0, 0, 200
    for _ in range(cases):
        columns = [autoregressive(rng, 0.6) for _ in range(3)]
        centres = [stats.hodges_lehmann(column) for column in columns]
        pairs = zip(columns, centres, strict=True)
        residual = np.concatenate([column - centre for column, centre in pairs])
        low, high = stats.signed_rank_interval(residual, 0.95)
        stray, wider = -float(np.mean(centres)), stats.serial_inflation(columns)
        plain += low <= stray <= high
        widened += wider * low <= stray <= wider * high
    assert plain / cases < 0.8
    assert widened / cases > 0.9


def test_launches_of_one_length_are_worked_out_as_each_by_itself():
    rng = np.random.default_rng(4)
    columns = [autoregressive(rng, 0.7, count=12) for _ in range(3)]
    (table,) = stats.tables(columns)
    alone = [stats.hodges_lehmann(column) for column in columns]
    assert stats.locations(table).tolist() == alone
    assert stats.medians(table).tolist() == [float(np.median(column)) for column in columns]
    assert stats.serial_inflation([table]) == pytest.approx(stats.serial_inflation(columns))
    assert stats.serial_inflation(columns) > 1.0


def test_launches_of_several_lengths_are_a_table_each():
    columns = [np.arange(4.0), np.arange(6.0)]
    assert [table.shape for table in stats.tables(columns)] == [(1, 4), (1, 6)]
