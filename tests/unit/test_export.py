"""Workloads are made once, and anew for another seed."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from ngraphbench.case import Case, CompilerRef, Limits, ModelRef
from ngraphbench.errors import WorkerFailed
from ngraphbench.session.export import export_workloads
from ngraphbench.session.state import CaseState
from ngraphbench.types import Device, Json

FORMS_ASKED: list[object] = []


class FakeExporter:
    """A worker that writes batch folders and remembers with which seeds."""

    peak_rss_bytes = 0
    origin: ClassVar[dict] = {}
    log_truncated = False
    leftovers = ""

    def __init__(self, seeds: list[int], *, fails: bool, denormals: str = "") -> None:
        self.seeds = seeds
        self.denormals = denormals
        self.fails = fails
        self.root = Path()

    def request(self, op: str, *, deadline_s: float, **fields: object) -> Json:
        if op == "open":
            self.root = Path(str(fields["root"]))
            return {"weights": "file", "seconds": 1.0}
        if self.fails:
            raise WorkerFailed("gone", status="crashed", reason="signal:SIGKILL")
        (self.root / f"b{fields['batch']}").mkdir(exist_ok=True)
        self.seeds.append(int(str(fields["seed"])))
        FORMS_ASKED.append(fields["forms"])
        return {"denormals": self.denormals, "seconds": 2.0}

    def suspend(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...

    def kill(self) -> None: ...


@pytest.fixture
def seeds() -> list[int]:
    return []


def export(
    folder: Path,
    seeds: list[int],
    seed: int,
    *,
    fails: bool = False,
    denormals: str = "",
    target: str = "m:X",
) -> CaseState:
    state = CaseState()
    case = Case(ModelRef("m", "m", "onnx", "c"), CompilerRef("x", target), Device(), 2)
    export_workloads(
        [(case, state)],
        folder=folder,
        limits=Limits(),
        seed=seed,
        spawn=lambda key: FakeExporter(seeds, fails=fails, denormals=denormals),
        observe=lambda text, done, total: None,
    )
    return state


def test_a_workload_is_made_once_per_seed(tmp_path: Path, seeds: list[int]) -> None:
    for seed in (0, 0, 1, 1):
        state = export(tmp_path, seeds, seed)
        assert (state.status, state.weights, state.costs["export_s"]) == ("", "file", 3.0)
    assert seeds == [0, 1]


def test_denormal_weights_are_flagged_on_every_cell(tmp_path: Path, seeds: list[int]) -> None:
    found = "2 of 9 weights are denormal numbers"
    for _ in range(2):
        # The second time it is read from what the first one left.
        state = export(tmp_path, seeds, 0, denormals=found)
        assert state.flags == [{"flag": "denormals", "detail": found}]
    assert seeds == [0]
    assert export(tmp_path / "other", seeds, 0).flags == []


def test_a_broken_export_is_not_taken_for_the_one_before(tmp_path: Path, seeds: list[int]) -> None:
    export(tmp_path, seeds, 0)
    assert export(tmp_path, seeds, 1, fails=True).status == "crashed"
    export(tmp_path, seeds, 0)
    assert seeds == [0, 0]


def test_an_exported_program_is_written_only_where_a_compiler_takes_it(
    tmp_path: Path, seeds: list[int]
) -> None:
    FORMS_ASKED.clear()
    plain, portable = "ngraphbench.compilers.fake:FakeCompiler", "plugins_for_worker:Portable"
    for target in (plain, portable, plain, portable):
        assert export(tmp_path, seeds, 0, target=target).status == ""
    # Once made, it serves those who want it and those who do not.
    assert FORMS_ASKED == [[], ["pt2"]]
    export(tmp_path, seeds, 1, target=plain)
    assert FORMS_ASKED == [[], ["pt2"], []]
