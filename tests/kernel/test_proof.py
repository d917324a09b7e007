"""The kernel against known truth: a fast subset of what ``make bench-kernel`` does in full.

Demands: the 95 % interval covers the truth in at least 93 % of cases in every scenario and
with a launch spread up to 2 %; equal programs are declared different in at most 5 %; a wrong
winner at 3 % in at most 1 %, at 10 % in at most 0.1 %; bias at most 0.1 %; programs that are
not steady are flagged in at least 95 %, steady ones in at most 5 % of sessions. A test
rejects only what a binomial test gives p < 0.001.
"""

from __future__ import annotations

import pytest
from scenarios import DRIFTS
from sessions import CONDITIONS, FAULTS, Scenario, Tally, broken_demands, tally, too_often

pytestmark = pytest.mark.slow

SESSIONS = 20
SEEN = 0.95
"""Share of unsteady programs that must be flagged, where the machine is quiet."""

DEMANDED = [
    scenario
    for scenario in FAULTS
    if scenario.drift == "quiet" and scenario.name in ("step of 5 %", "modes 5 % apart")
]


def spelled(name: str, found: Tally) -> str:
    return (
        f"{name}: coverage {found.coverage():.3f},"
        f" A/A declared {found.share(found.wrong, 'aa'):.3f},"
        f" wrong at 3 % {found.share(found.wrong, 'b3'):.3f},"
        f" right at 3 % {found.share(found.right, 'b3'):.2f},"
        f" flagged {found.alarms / found.sessions:.2f}"
    )


@pytest.mark.parametrize("launch_sd", [0.0, 0.01, 0.02])
@pytest.mark.parametrize("drift", sorted(DRIFTS))
def test_truth_is_covered_and_no_steady_program_is_blamed(drift: str, launch_sd: float):
    found = tally(Scenario(drift, drift, launch_sd), sessions=SESSIONS)
    print(spelled(f"{drift:>8} launch sd {launch_sd:.0%}", found))
    assert broken_demands(found, launch_sd) == []
    assert not too_often(found.alarms, SESSIONS, 0.05)


@pytest.mark.parametrize("scenario", CONDITIONS, ids=lambda scenario: scenario.name)
def test_truth_is_covered_under_awkward_conditions(scenario: Scenario):
    found = tally(scenario, sessions=SESSIONS)
    print(spelled(scenario.name, found))
    assert broken_demands(found, scenario.launch_sd) == []


@pytest.mark.parametrize("scenario", DEMANDED, ids=lambda scenario: scenario.name)
def test_a_program_that_is_not_steady_is_flagged(scenario: Scenario):
    found = tally(scenario, sessions=SESSIONS)
    seen = found.flags.get((scenario.blamed, scenario.flag), 0)
    print(f"{scenario.name}: flagged {seen} of {SESSIONS}, all flags {found.flags}")
    assert not too_often(SESSIONS - seen, SESSIONS, 1 - SEEN)
