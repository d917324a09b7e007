"""Races on a virtual clock: who leaves, who stays, when it is over."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from virtual import Machine, VirtualCandidate

from ngraphbench.case import Case, CompilerRef, Limits, Method, ModelRef, Session
from ngraphbench.errors import CompileFailed
from ngraphbench.profiles import PROFILES
from ngraphbench.session.entrants import DROPPED, beat, race_of, reinstate
from ngraphbench.session.kernel import EpochResult, columns, measure_epoch
from ngraphbench.session.racing import FEWEST_RIVALS, SLOW_PACE, Drop, Race, levels, looks
from ngraphbench.session.state import CaseState, SessionState
from ngraphbench.session.telling import drop_event, standing
from ngraphbench.stats import RACE_SHARE
from ngraphbench.types import Device

MS = 1_000_000
DEFAULT = PROFILES["default"]
TIMES = {"a": 1.0, "b": 1.3, "c": 2.0, "base": 1.6}


def run(
    times: Mapping[str, float], *, noise: float = 0.01, **changes: object
) -> tuple[EpochResult, Race, list[Drop], dict[str, VirtualCandidate]]:
    """Race one launch; return how it went, the race, who was beaten, and the candidates."""
    machine = Machine(np.random.default_rng(0))
    candidates = {
        key: VirtualCandidate(machine, 5 * MS * time, noise=noise) for key, time in times.items()
    }
    drops: list[Drop] = []
    profile = changes.pop("profile", DEFAULT)
    race = Race(**{"groups": (tuple(times),), "profile": profile, "leave": drops.append, **changes})
    result = measure_epoch(
        candidates,
        profile=profile,
        epoch=0,
        clock=machine.clock,
        seed=0,
        call_ns={key: candidate.call_ns for key, candidate in candidates.items()},
        pairs=[],
        race=race,
    )
    return result, race, drops, candidates


@pytest.mark.parametrize("name", PROFILES)
def test_looks_are_geometric_and_hold_the_least_rounds(name: str) -> None:
    profile = PROFILES[name]
    series = looks(profile)
    assert profile.rounds_min in series
    assert series[-1] <= profile.rounds_max
    assert all(1 < b / a <= 2 for a, b in itertools.pairwise(series))


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("rivals", [1, 3, 8])
def test_no_more_than_its_share_of_the_error_is_spent(name: str, rivals: int) -> None:
    profile = PROFILES[name]
    at = [levels(profile, look=look, rivals=rivals) for look in range(len(looks(profile)))]
    allowed = RACE_SHARE * (1 - profile.confidence)
    noise = sum(1 - level.within for level in at) * rivals * profile.epochs
    launches = (1 - at[0].launch) * rivals * profile.epochs
    assert noise < launches <= allowed * (1 + 1e-9)
    assert launches == pytest.approx(allowed * rivals / max(FEWEST_RIVALS, rivals))


def test_who_is_surely_slower_leaves_with_its_rows_and_the_fastest_wins() -> None:
    result, race, drops, candidates = run(TIMES)
    assert result.ended == "decided"
    assert race.contenders == ["a"]
    assert {drop.key: drop.by for drop in drops} == {"b": "a", "c": "a", "base": "a"}
    for drop in drops:
        assert 1.0 < drop.factor < TIMES[drop.key]
        assert len(result.rows[drop.key]) == drop.rounds
        assert candidates[drop.key].slots == drop.rounds


def test_a_beaten_baseline_stays_at_the_slow_pace_in_the_rounds_of_its_control() -> None:
    times = {"a": 1.0, "b": 1.0, "base": 1.6, "twin": 1.6}
    race_of_three = (("a", "b", "base"),)
    result, _, drops, _ = run(
        times,
        groups=race_of_three,
        kept=frozenset({"base"}),
        controls=frozenset({"twin"}),
    )
    assert [drop.key for drop in drops] == ["base"]
    assert len(result.rows["a"]) == len(result.rows["b"]) == result.rounds > drops[0].rounds
    later = [row.round for row in result.rows["base"] if row.round >= drops[0].rounds]
    assert later == [n for n in range(drops[0].rounds, result.rounds) if n % SLOW_PACE == 0]
    twin = [row.round for row in result.rows["twin"]]
    assert twin == list(range(0, result.rounds, SLOW_PACE))


def test_equals_are_not_told_apart_and_more_rounds_of_one_launch_are_not_spent() -> None:
    result, _, drops, _ = run({"a": 1.0, "b": 1.0, "c": 1.0})
    assert not drops
    assert result.ended == "precise"
    assert DEFAULT.rounds_min <= result.rounds < 60


def test_equals_that_are_proved_to_tie_decide_a_race() -> None:
    result, race, drops, _ = run({"a": 1.0, "b": 1.0}, profile=replace(DEFAULT, tie=0.2))
    assert (result.ended, drops, len(race.contenders)) == ("decided", [], 2)


def test_the_budget_of_who_leaves_is_not_spent() -> None:
    small = replace(DEFAULT, budget_ns=3 * 1200 * MS, tie=1e-6)
    noisy = {"a": 1.0, "b": 1.0, "c": 3.0, "d": 3.0}
    result, _, drops, candidates = run(noisy, noise=0.06, profile=small)
    assert result.ended == "budget"
    assert {drop.key for drop in drops} == {"c", "d"}
    clock_ns = candidates["a"].machine.clock.now_ns()
    assert clock_ns < 0.8 * 4 * 1200 * MS


def test_every_group_has_a_race_of_its_own() -> None:
    times = {"a1": 1.0, "b1": 1.5, "a8": 8.0, "b8": 8.0}
    result, race, drops, _ = run(times, groups=(("a1", "b1"), ("a8", "b8")))
    assert [(drop.key, drop.by) for drop in drops] == [("b1", "a1")]
    assert race.contenders == ["a1", "a8", "b8"]
    assert result.ended == "precise"
    # Whose race is decided has nothing left to prove.
    assert len(result.rows["a1"]) < len(result.rows["a8"])


def test_a_later_launch_goes_on_where_the_last_one_ended() -> None:
    first, _, drops, _ = run({"a": 1.0, "b": 1.0, "c": 1.5})
    past = {key: columns(rows) for key, rows in first.rows.items()}
    later = run(
        {"a": 1.0, "b": 1.0}, past=past, out={drop.key for drop in drops}, groups=(("a", "b", "c"),)
    )
    assert later[1].contenders == ["a", "b"]
    assert later[0].rounds >= DEFAULT.rounds_min


# -- what becomes of it in a session


def cases(*names: str, batch: int = 1) -> tuple[Case, ...]:
    model = ModelRef("m.onnx", "m.onnx", "onnx", "content")
    return tuple(
        Case(model, CompilerRef(name, "m:X"), Device(), batch, label=name) for name in names
    )


def raced(*names: str, best: bool = True) -> tuple[Session, SessionState, dict[str, str]]:
    entered = cases(*names)
    session = Session(entered, names[0], DEFAULT, Limits(), method=Method(best=best))
    state = SessionState(cases={case.case_id: CaseState() for case in entered})
    return session, state, {case.label: case.case_id for case in entered}


def test_only_a_session_for_the_best_is_a_race(tmp_path) -> None:
    session, state, ids = raced("base", "x", best=False)
    running = list(ids.values())
    assert race_of(session, state, running=running, samples=tmp_path, leave=print) is None
    assert standing(session, None) == {}


def test_a_race_holds_who_is_running_and_who_was_beaten(tmp_path) -> None:
    session, state, ids = raced("base", "x", "y", "z")
    state.cases[ids["base"]].beaten_by = ids["x"]
    running = [ids["base"], ids["x"], ids["y"], "sentinel"]
    race = race_of(session, state, running=running, samples=tmp_path, leave=print)
    assert race is not None
    assert race.groups == ((ids["base"], ids["x"], ids["y"]),)
    assert race.kept == {ids["base"]}
    assert race.controls == {"sentinel"}
    assert standing(session, race) == {"racing": ["x", "y"], "starters": 4}


def test_who_is_only_partly_compiled_beats_nobody(tmp_path) -> None:
    session, state, ids = raced("base", "x", "y")
    state.cases[ids["x"]].coverage = {"share": 0.5, "unit": "flops"}
    race = race_of(session, state, running=list(ids.values()), samples=tmp_path, leave=print)
    assert race is not None
    assert race.groups == ((ids["base"], ids["y"]),)
    assert race.controls == {ids["x"]}


def test_who_is_beaten_is_flagged_and_a_baseline_is_not() -> None:
    session, state, ids = raced("base", "x", "y")
    slow = Drop(ids["y"], ids["x"], 12, 1.083)
    assert beat(session, state, slow)
    assert state.cases[ids["y"]].flags == [
        {
            "flag": DROPPED,
            "detail": "surely slower than x after 12 rounds: at least 1.08 times",
        }
    ]
    assert not beat(session, state, Drop(ids["base"], ids["x"], 12, 1.5))
    assert state.cases[ids["base"]].flags == []
    told = drop_event(session, slow, leaves=True)
    assert (told["event"], told["text"]) == (
        "dropped",
        "y: surely slower than x, at least 1.08 times",
    )


def test_who_was_beaten_by_a_program_that_failed_races_on() -> None:
    session, state, ids = raced("base", "x", "y", "z")
    for slow, fast in (("y", "x"), ("z", "y")):
        beat(session, state, Drop(ids[slow], ids[fast], 12, 1.2))
        state.cases[ids[slow]].status = "ok"
    assert not reinstate(state)
    state.cases[ids["x"]].fail(CompileFailed("no"), "measure")
    assert reinstate(state)
    back, still = state.cases[ids["y"]], state.cases[ids["z"]]
    assert (back.live, back.beaten_by, back.flags) == (True, "", [])
    assert still.beaten_by == ids["y"]
    assert not still.live
    assert not reinstate(state)
