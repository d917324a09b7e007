"""The solo phase of a launch, over residents that only pretend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ngraphbench.case import Case, CompilerRef, Limits, Method, ModelRef, Session
from ngraphbench.environments.energy import EnergyMeter
from ngraphbench.errors import NGraphBenchError, RunFailed, WorkerFailed
from ngraphbench.profiles import PROFILES
from ngraphbench.session.solo import measure_blocks
from ngraphbench.session.state import CaseState
from ngraphbench.store.samples import block_file, drop_unfinished_epochs, read_samples
from ngraphbench.types import Device
from ngraphbench.worker.blocks import BlockRequest

MODEL = ModelRef("m.onnx", "m", "onnx", "c")


class Pretended:
    """A resident whose block ``fails_at`` (from 0) raises ``error``; ``log`` is shared."""

    def __init__(self, name: str, log: list[str], **more: Any) -> None:
        self.case = Case(MODEL, CompilerRef(name, f"m:{name}"), Device(), 1, label=name)
        self.state = CaseState()
        self.log = log
        self.running = False
        self.blocks = 0
        self.left_s = more.get("left_s", 60.0)
        self.error: NGraphBenchError | None = more.get("error")
        self.fails_at = more.get("fails_at", 0)
        self.stubborn = more.get("stubborn", False)

    def resume(self) -> None:
        self.running = True

    def suspend(self) -> None:
        if self.stubborn and self.blocks:
            raise WorkerFailed("It did not stop.", status="failed", reason="suspend")
        self.running = False

    def kill(self) -> None:
        self.running = False
        self.log.append(f"kill {self.case.label}")

    def seal_usage(self) -> None: ...

    def block(self, request: BlockRequest) -> tuple[Any, Any]:
        assert self.running
        self.log.append(self.case.label)
        self.blocks += 1
        if self.error is not None and self.blocks == self.fails_at + 1:
            raise self.error
        ns = np.arange(3, dtype=np.int64) * 1000
        rows = {"due_ns": ns, "start_ns": ns + 1, "end_ns": ns + 500, "calls": np.ones(3, int)}
        reply = {"requests": 3, "stopped": "", "note": "", "window_ns": 2500, "cpu_ns": 9}
        return reply, rows


def session_of(residents: list[Pretended], **changes: Any) -> Session:
    method = Method(tails_s=1.0, in_flight=(1, 2), **changes)
    cases = tuple(resident.case for resident in residents)
    return Session(cases, "a", PROFILES["quick"], Limits(), method=method)


def run(folder: Path, residents: list[Pretended], *, epoch: int = 0, **more: Any) -> None:
    keyed: Any = {resident.case.case_id: resident for resident in residents}
    session = more.pop("session", None) or session_of(residents)
    measure_blocks(keyed, session=session, epoch=epoch, folder=folder, **more)


def outcomes(resident: Pretended) -> list[tuple[str, str]]:
    return [(block["status"], block["reason"]) for block in resident.state.blocks]


def test_each_block_is_run_over_all_in_a_random_order(tmp_path: Path) -> None:
    orders = set()
    for epoch in range(6):
        log: list[str] = []
        residents = [Pretended(name, log) for name in "abc"]
        run(tmp_path, residents, epoch=epoch)
        assert [sorted(log[i : i + 3]) for i in (0, 3, 6)] == [list("abc")] * 3
        assert not any(resident.running for resident in residents)
        orders |= {tuple(log[i : i + 3]) for i in (0, 3, 6)}
    assert len(orders) > 3


def test_rows_are_those_of_finished_launches(tmp_path: Path) -> None:
    resident = Pretended("a", [])
    path = tmp_path / block_file(resident.case.case_id)
    for epoch in (0, 1):
        run(tmp_path, [resident], epoch=epoch)
    rows = read_samples(path)
    assert rows["kind"].tolist() == (["tails"] * 3 + ["concurrent"] * 6) * 2
    assert rows["in_flight"].tolist() == ([0] * 3 + [1] * 3 + [2] * 3) * 2
    assert rows["index"].tolist() == [0, 1, 2] * 6
    assert rows["end_ns"].tolist()[:3] == [500, 1500, 2500]
    drop_unfinished_epochs(path, 1)
    assert set(read_samples(path)["epoch"].tolist()) == {0}


@pytest.mark.parametrize(
    ("error", "status", "later", "killed"),
    [
        (RunFailed("no", reason="run"), "failed", ("ok", ""), False),
        (
            WorkerFailed("gone", status="crashed", reason="exit:3"),
            "crashed",
            ("skipped", "gone"),
            True,
        ),
        (
            WorkerFailed("late", status="timeout", reason="deadline"),
            "timeout",
            ("skipped", "gone"),
            True,
        ),
        (WorkerFailed("wrong", status="wrong", reason="values"), "wrong", ("ok", ""), False),
    ],
)
def test_what_goes_wrong_in_a_block_stays_there(
    tmp_path: Path, error: NGraphBenchError, status: str, later: tuple[str, str], killed: bool
) -> None:
    log: list[str] = []
    bad, good = Pretended("bad", log, error=error, fails_at=1), Pretended("good", log)
    run(tmp_path, [bad, good])
    assert outcomes(bad) == [("ok", ""), (status, error.reason), later]
    assert outcomes(good) == [("ok", "")] * 3
    assert ("kill bad" in log) == killed
    assert bad.state.live and good.state.live
    assert bad.state.blocks[1]["message"] == error.message


def test_one_that_does_not_stop_is_ended(tmp_path: Path) -> None:
    log: list[str] = []
    bad = Pretended("bad", log, stubborn=True)
    run(tmp_path, [bad])
    assert outcomes(bad) == [("crashed", "suspend"), *[("skipped", "gone")] * 2]
    assert log == ["bad", "kill bad"]


def test_an_interrupt_leaves_the_rest_out(tmp_path: Path) -> None:
    log: list[str] = []
    residents = [Pretended(name, log) for name in "ab"]
    run(tmp_path, residents, interrupted=lambda: len(log) >= 3)
    found = sorted(outcome for resident in residents for outcome in outcomes(resident))
    assert found == [("ok", "")] * 3 + [("skipped", "interrupted")] * 3


def test_a_cell_without_time_is_skipped_alone(tmp_path: Path) -> None:
    log: list[str] = []
    late, good = Pretended("late", log, left_s=-1.0), Pretended("good", log)
    run(tmp_path, [late, good])
    assert outcomes(late) == [("skipped", "cell-deadline")] * 3
    assert outcomes(good) == [("ok", "")] * 3


def test_progress_names_each_block(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    run(tmp_path, [Pretended("a", [])], observe=lambda *event: told.append(event))
    assert told == [
        ("tails: m b=1 a", 0, 3),
        ("1 in flight: m b=1 a", 1, 3),
        ("2 in flight: m b=1 a", 2, 3),
    ]


def test_energy_counters_are_read_around_each_block(tmp_path: Path) -> None:
    log: list[str] = []

    class Counter:
        name, step_s = "package-0", 0.001

        def start(self) -> None:
            log.append("start")

        def stop(self, seconds: float) -> float | None:
            log.append("stop")
            return 3.0

    meter = EnergyMeter((Counter(),))
    failed = WorkerFailed("gone", status="crashed", reason="exit:3")
    resident = Pretended("a", log, error=failed, fails_at=1)
    run(tmp_path, [resident], energy=lambda device: meter)
    assert log == ["start", "a", "stop", "start", "a", "stop", "kill a"]
    told = [block["energy"] for block in resident.state.blocks]
    assert told[0]["joules"] == {"package-0": 3.0} and told[1:] == [None, None]
