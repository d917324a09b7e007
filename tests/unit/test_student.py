"""Our Student quantile against SciPy's."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from scipy.special import stdtrit

from ngraphbench.student import t_quantile

CONFIDENCES = (0.0, 0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.995, 0.9995)


@pytest.mark.parametrize("degrees", [0.5, 1, 1.5, 2, 3, 4, 5.7, 11, 17.3, 35, 100, 401, 1000])
def test_it_is_scipys(degrees: float) -> None:
    for confidence in CONFIDENCES:
        # SciPy is given (1 + confidence) / 2, which has lost digits of a small tail.
        lost = 4e-16 / (1.0 - confidence)
        expected = float(stdtrit(degrees, (1.0 + confidence) / 2.0))
        assert t_quantile(confidence, degrees) == pytest.approx(expected, rel=1e-12 + lost)


@pytest.mark.parametrize("degrees", [1e4, 1e5, 1e6])
def test_it_is_nearly_scipys_with_very_many_degrees(degrees: float) -> None:
    for confidence in CONFIDENCES:
        expected = float(stdtrit(degrees, (1.0 + confidence) / 2.0))
        assert t_quantile(confidence, degrees) == pytest.approx(expected, rel=1e-8)


def test_far_tails_have_the_known_forms_of_one_and_two_degrees() -> None:
    for tail in (1e-3, 1e-6, 1e-9):
        beyond = 1.0 - (1.0 - tail)
        cauchy = 1.0 / math.tan(math.pi * beyond / 2.0)
        assert t_quantile(1.0 - tail, 1.0) == pytest.approx(cauchy, rel=1e-9)
        two = (1.0 - beyond) * math.sqrt(2.0 / (beyond * (2.0 - beyond)))
        assert t_quantile(1.0 - tail, 2.0) == pytest.approx(two, rel=1e-9)


def test_what_has_no_quantile_is_infinite_or_nan() -> None:
    assert t_quantile(1.0, 4.0) == math.inf
    assert math.isnan(t_quantile(0.9, 0.0))
    assert math.isnan(t_quantile(1.1, 4.0))


def test_intervals_are_formed_without_importing_scipy() -> None:
    code = (
        "import sys, numpy; from ngraphbench.summary import location;"
        "location([numpy.arange(9.0)], 0.95); location([numpy.arange(3.0)], 0.95);"
        "sys.exit('scipy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
