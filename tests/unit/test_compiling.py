"""Compiles for their cost alone: how many, and when they end."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from ngraphbench.errors import CompileFailed
from ngraphbench.session.compiling import compile_cold_again
from ngraphbench.session.resident import Resident, Stopped
from ngraphbench.session.state import CaseState


class Again:
    """A resident that compiles in a second, or fails."""

    def __init__(self, folder: Path, *, fails: bool = False) -> None:
        self.state, self.scratch, self.fails = CaseState(), folder, fails
        self.ended = False
        folder.mkdir()

    def compile_only(self) -> None:
        if self.fails:
            raise Stopped("compile", CompileFailed("no", reason="x"))
        self.state.add_cold_compile(1.0)

    def close(self) -> None: ...

    def kill(self) -> None:
        self.ended = True


@pytest.mark.parametrize(
    ("compile_s", "budget_s", "fails", "interrupted", "samples"),
    [
        (2.0, 60.0, False, False, [2.0, 1.0, 1.0]),
        (31.0, 600.0, False, False, [31.0]),
        (20.0, 15.0, False, False, [20.0]),
        (10.0, 12.0, False, False, [10.0, 1.0, 1.0]),
        (2.0, 60.0, True, False, [2.0]),
        (2.0, 60.0, False, True, [2.0]),
    ],
)
def test_three_while_they_are_short(
    tmp_path: Path,
    compile_s: float,
    budget_s: float,
    fails: bool,
    interrupted: bool,
    samples: list[float],
) -> None:
    state = CaseState()
    state.costs["import_s"] = 0.5
    state.add_cold_compile(compile_s)
    made: list[Again] = []

    def make(number: int) -> Resident:
        made.append(Again(tmp_path / str(number), fails=fails))
        return cast(Any, made[-1])

    compile_cold_again(make, state, budget_s=budget_s, interrupted=lambda: interrupted)
    assert state.costs["compile_cold_samples_s"] == samples
    assert all(again.ended and not again.scratch.exists() for again in made)


def test_what_must_tune_again_is_compiled_once(tmp_path: Path) -> None:
    state = CaseState()
    state.costs |= {"import_s": 0.5, "tuning_s": 300.0}
    state.add_cold_compile(2.0)
    compile_cold_again(
        lambda number: cast(Any, Again(tmp_path / str(number))),
        state,
        budget_s=600.0,
        interrupted=lambda: False,
    )
    assert state.costs["compile_cold_samples_s"] == [2.0]
