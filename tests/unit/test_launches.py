"""What a host has shown of its launches: folded, kept, and never trusted when broken."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ngraphbench.session.launches import DEGREES_MAX, Learned, fold, learn, learned, state_file
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
