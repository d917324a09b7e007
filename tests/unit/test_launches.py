"""What a host has shown of its launches: folded, kept, and never trusted when broken."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from ngraphbench.profiles import PROFILES
from ngraphbench.session.launches import (
    DEGREES_MAX,
    ONCE,
    Learned,
    believed,
    fold,
    fold_twins,
    learn,
    learn_from_twins,
    learned,
    state_file,
)
from ngraphbench.stats import LAUNCH_PRIOR, Launch, launch_spread, t_quantile

SESSIONS = 1000
PROGRAMS, EPOCHS = 4, 3


def seen_in_a_session(sd: float, rng: np.random.Generator) -> Launch:
    table = sd * rng.standard_normal((PROGRAMS, EPOCHS))
    return launch_spread(table, Launch(sd=0.0, degrees=0.0))


def test_nothing_learned_is_the_start() -> None:
    assert Learned().launch() == LAUNCH_PRIOR


def test_quiet_sessions_move_the_belief_and_noisy_ones_replace_it() -> None:
    quiet = fold(Learned(), Launch(0.002, 6.0))
    assert 0.002 < quiet.sd < LAUNCH_PRIOR.sd
    assert quiet.degrees == DEGREES_MAX
    noisy = fold(quiet, Launch(0.03, 6.0))
    assert (noisy.sd, noisy.degrees) == (pytest.approx(0.03), 6.0)
    assert fold(quiet, Launch(0.0, 0.0)) == quiet


def test_old_sessions_fade() -> None:
    believed = fold(Learned(), Launch(0.03, 6.0))
    for _ in range(12):
        believed = fold(believed, Launch(0.003, 6.0))
    assert believed.sd < 0.006
    assert believed.sessions == 13


@pytest.mark.parametrize("sd", [0.003, 0.01, 0.02, 0.04])
@pytest.mark.parametrize("sessions", [1, 3, 10])
def test_a_single_launch_is_covered_after_learning(sd: float, sessions: int) -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(SESSIONS):
        believed = Learned()
        for _ in range(sessions):
            believed = fold(believed, seen_in_a_session(sd, rng))
        half = t_quantile(0.95, believed.degrees) * believed.sd * 2**0.5
        covered += abs(sd * (rng.standard_normal() - rng.standard_normal())) <= half
    assert covered / SESSIONS > 0.93


def test_a_quiet_host_claims_more_from_a_single_launch() -> None:
    rng = np.random.default_rng(7)
    believed = Learned()
    for _ in range(10):
        believed = fold(believed, seen_in_a_session(0.003, rng))
    at_start = t_quantile(0.9, LAUNCH_PRIOR.degrees) * LAUNCH_PRIOR.sd
    assert t_quantile(0.9, believed.degrees) * believed.sd < at_start / 2


def declared_different(sd: float, error: float, *, sessions: int) -> float:
    """Return how often a session of one launch tells equal programs apart, after such sessions."""
    rng, profile = np.random.default_rng(7), PROFILES["quick"]
    z, wrong = NormalDist().inv_cdf((1 + profile.confidence) / 2), 0

    def measured() -> float:
        launches = sd * (rng.standard_normal() - rng.standard_normal())
        return float(launches + error * rng.standard_normal())

    for _ in range(SESSIONS):
        known = ONCE
        for _ in range(sessions):
            known = fold_twins(known, measured(), error)
        term = t_quantile(profile.confidence, known.degrees) * known.sd * 2**0.5
        wrong += abs(measured()) > np.hypot(z * error, term)
    return wrong / SESSIONS


@pytest.mark.parametrize("error", [0.005, 0.02, 0.04])
@pytest.mark.parametrize("sd", [0.003, 0.01, 0.02, 0.04])
@pytest.mark.parametrize("sessions", [0, 1, 3, 10])
def test_sessions_of_one_launch_do_not_tell_equal_programs_apart(
    sd: float, error: float, sessions: int
) -> None:
    # Demanded is 0.10; four standard errors of 1000 draws are 0.04.
    assert declared_different(sd, error, sessions=sessions) <= 0.14


def test_sessions_of_one_launch_learn_of_a_host_that_differs_more_than_thought() -> None:
    assert declared_different(0.08, 0.02, sessions=0) > 0.2
    assert declared_different(0.08, 0.02, sessions=10) <= 0.14


def test_an_error_that_hides_the_launches_teaches_nothing() -> None:
    known = fold_twins(ONCE, 0.5, 100.0)
    assert (known.sd, known.degrees) == (pytest.approx(ONCE.sd), pytest.approx(ONCE.degrees))


def test_a_quiet_host_claims_more_after_sessions_of_one_launch() -> None:
    rng, known = np.random.default_rng(7), ONCE
    for _ in range(16):
        known = fold_twins(known, 0.003 * 2**0.5 * rng.standard_normal(), 0.005)
    assert known.sd < ONCE.sd / 2


def test_what_sessions_of_several_launches_have_shown_goes_first(tmp_path: Path) -> None:
    path = tmp_path / "launch.json"
    assert believed("artefact", launches=1, path=path) == ONCE
    learn_from_twins(0.1, 0.01, path=path)
    once = believed("artefact", launches=1, path=path)
    assert once == fold_twins(ONCE, 0.1, 0.01) and once.sd > ONCE.sd
    assert believed("artefact", launches=3, path=path) == Learned()
    assert believed("compiler", launches=1, path=path) == ONCE
    learn(Launch(0.002, 6.0), path=path)
    for launches in (1, 3):
        assert believed("artefact", launches=launches, path=path) == learned(path=path)
    assert learned(path=path, once=True) == once


def test_it_is_kept_by_claim(tmp_path: Path) -> None:
    path = tmp_path / "new" / "launch.json"
    learn(Launch(0.002, 6.0), path=path)
    learn(Launch(0.05, 6.0), "compiler", path=path)
    assert learned(path=path) == fold(Learned(), Launch(0.002, 6.0))
    assert learned("compiler", path=path).sd == pytest.approx(0.05)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        '{"artefact": 3}',
        '{"artefact": {"sd": -1, "degrees": 4, "sessions": 1}}',
        '{"artefact": {"sd": "x", "degrees": 4, "sessions": 1}}',
        '{"artefact": {"sd": 0.01, "degrees": 1e9, "sessions": 1}}',
        '{"artefact": {"sd": NaN, "degrees": 4, "sessions": 1}}',
        '{"artefact": {"other": 1}}',
    ],
)
def test_a_broken_file_is_the_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "launch.json"
    path.write_text(text)
    assert learned(path=path) == Learned()
    learn(Launch(0.002, 6.0), path=path)
    assert learned(path=path).sessions == 1
    learn_from_twins(0.1, 0.01, path=path)
    assert learned(path=path).sessions == learned(path=path, once=True).sessions == 1
    json.loads(path.read_text())


def test_a_folder_that_cannot_be_made_teaches_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "launch.json"
    learn(Launch(0.002, 6.0), path=path)
    assert learned(path=path) == Learned()


@pytest.mark.parametrize(
    ("variables", "start"),
    [
        ({"XDG_STATE_HOME": "/state", "HOME": "/home/user"}, "/state/ngraphbench/launch-"),
        ({"XDG_STATE_HOME": "state", "HOME": "/home/user"}, "/home/user/.local/state/ngraphbench/"),
        ({"HOME": "/home/user"}, "/home/user/.local/state/ngraphbench/launch-"),
        ({}, "None"),
    ],
)
def test_where_it_is_kept(variables: dict[str, str], start: str) -> None:
    assert str(state_file(variables)).startswith(start)
