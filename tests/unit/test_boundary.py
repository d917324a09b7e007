"""Where memory ends is found by bisection, and told in the records of what ran out of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraphbench.case import Case, CompilerRef, Limits, ModelRef, Session
from ngraphbench.profiles import PROFILES
from ngraphbench.session.boundary import (
    CLOSE,
    TRIES,
    Boundary,
    Trials,
    find_boundary,
    tell_boundaries,
)
from ngraphbench.session.state import CaseState, SessionState
from ngraphbench.types import Device

MODEL = ModelRef(source="m.onnx", label="m", kind="onnx", content="c")


def case(batch: int, name: str = "fake") -> Case:
    ref = CompilerRef(name, "module:Class", {})
    return Case(model=MODEL, compiler=ref, device=Device(), batch=batch, label=name)


def session(*cases: Case) -> Session:
    return Session(
        cases=cases,
        baseline="fake",
        profile=PROFILES["quick"],
        limits=Limits(),
    )


@given(truth=st.integers(0, 5000), fits=st.integers(0, 40), exceeds=st.integers(2, 5000))
def test_bisection_brackets_the_truth(truth: int, fits: int, exceeds: int) -> None:
    fits, exceeds = min(fits, truth), max(exceeds, truth + 1, fits + 1)
    tried: list[int] = []

    def attempt(batch: int) -> bool:
        tried.append(batch)
        return batch <= truth

    found = find_boundary(fits, exceeds, attempt)
    assert fits <= found.fits <= truth < found.exceeds <= exceeds
    assert found.tried == len(tried) == len(set(tried)) <= TRIES
    assert all(fits < batch < exceeds for batch in tried)
    close = found.exceeds - found.fits == 1 or found.exceeds <= CLOSE * found.fits
    assert close or found.tried == TRIES


def test_another_failure_ends_the_search() -> None:
    answers = iter([True, None])
    assert find_boundary(1, 64, lambda batch: next(answers)) == Boundary(8, 64, 1)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Boundary(24, 28, 4), "Batch 24 fits, batch 28 does not."),
        (Boundary(0, 1, 3), "Batch 1 does not fit either."),
        (Boundary(0, 1), ""),
    ],
)
def test_what_is_said(found: Boundary, text: str) -> None:
    assert found.text() == text


class Counted(Trials):
    """Trials that know the answer."""

    def __init__(self, truth: int) -> None:
        super().__init__(export=lambda c, s: None, resident=lambda c, s: None)
        self.truth = truth
        self.tried: list[int] = []

    def fits(self, case: Case) -> bool | None:
        self.tried.append(case.batch)
        return case.batch <= self.truth


def told(statuses: dict[int, str], truth: int, **more: object) -> tuple[SessionState, list[int]]:
    cases = [case(batch) for batch in statuses]
    state = SessionState(
        cases={c.case_id: CaseState(status=statuses[c.batch], message="No memory.") for c in cases}
    )
    trials = Counted(truth)
    wishes = {"interrupted": lambda: False, "observe": lambda text: None, **more}
    assert tell_boundaries(session(*cases), state, trials, **wishes) == (not more)
    return state, trials.tried


def test_every_cell_that_ran_out_is_told_and_one_search_serves_all() -> None:
    state, tried = told({1: "ok", 8: "ok", 64: "oom", 512: "oom"}, truth=40)
    assert min(tried) > 8 and max(tried) < 64
    for batch in (64, 512):
        found = state.cases[case(batch).case_id]
        assert found.detail["largest_batch"] <= 40 < found.detail["smallest_batch_oom"] <= 64
        assert found.detail["batches_tried"] == len(tried)
        assert found.message.startswith("No memory. Batch ")
    assert state.cases[case(8).case_id].detail == {}


def test_an_interrupt_leaves_the_search_to_the_next_run() -> None:
    state, tried = told({1: "ok", 64: "oom"}, truth=40, interrupted=lambda: True)
    assert tried == []
    assert state.cases[case(64).case_id].detail == {}


def test_what_the_model_has_no_memory_for_is_not_tried_with_the_next_compiler() -> None:
    exported: list[Case] = []

    def export(wanted: Case, state: CaseState) -> None:
        exported.append(wanted)
        state.status = "oom"

    trials = Trials(export=export, resident=lambda c, s: None)
    assert trials.fits(case(32)) is False
    assert trials.fits(replace(case(32, "other"), label="other")) is False
    assert len(exported) == 1


@pytest.mark.parametrize(("peak_bytes", "fits"), [(2**30, True), (2**30 + 1, False)])
def test_a_try_that_took_too_much_unseen_does_not_fit(peak_bytes: int, fits: bool) -> None:
    def resident(case: Case, state: CaseState) -> Any:
        worker = SimpleNamespace(peak_rss_bytes=peak_bytes)
        calls = dict.fromkeys(("compile_only", "ask_beyond", "kill"), lambda *_, **__: None)
        limits = Limits(memory_bytes=2**30)
        return SimpleNamespace(state=state, worker=worker, limits=limits, **calls)

    trials = Trials(export=lambda case, state: None, resident=resident)
    assert trials.fits(case(8)) is fits
