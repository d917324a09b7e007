"""A host that has learned its launch spread: intervals hold the truth, quiet ones are narrower."""

from __future__ import annotations

import pytest
from learning import SHORT, SINGLE, outcome
from test_proof import too_often

HOSTS = 8

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("profile", [SHORT, SINGLE], ids=["three launches", "single launch"])
@pytest.mark.parametrize("launch_sd", [0.003, 0.01, 0.02, 0.04])
def test_truth_is_covered_after_learning(launch_sd: float, profile) -> None:
    for sessions in (1, 3):
        found = outcome(sessions, launch_sd=launch_sd, profile=profile, hosts=HOSTS)
        print(
            f"{sessions} sessions, launch sd {launch_sd:.1%}: coverage {found.coverage:.3f},"
            f" half-width {found.half_width:.2%}"
        )
        # The intervals of one session share their baseline, so a host counts as one case.
        missed = round((1 - found.coverage) * HOSTS)
        assert not too_often(missed, HOSTS, 0.07)


def test_a_quiet_host_claims_more_from_a_single_launch() -> None:
    at_start = outcome(0, launch_sd=0.003, profile=SINGLE, hosts=4)
    learned = outcome(3, launch_sd=0.003, profile=SINGLE, hosts=4)
    assert learned.half_width < 0.7 * at_start.half_width
