"""What swaps places between devices: orders of sessions, never figures of two machines."""

from __future__ import annotations

from typing import Any

import pytest
from run_fixture import HOST, Run, model

from ngraphbench.analysis.devices import Crossing, crossings
from ngraphbench.profiles import PROFILES

Times = dict[str, tuple[float, float]]
"""Time per call of models A and B, by compiler."""


def fleet(one: Times, other: Times, *, noise: float = 0.004, **changes: Any) -> Run:
    """Return a run of both models on ``orin`` and on ``pi``, each in a session of its own."""
    run = Run(PROFILES["default"], noise=noise)
    for device, times in (("orin", one), ("pi", other)):
        session = run.session(device, **(changes if device == "pi" else {}))
        for label, both in times.items():
            for name, ms in zip("AB", both, strict=True):
                run.cell(session, model(name), label, 8, ms=ms, device=device)
    return run.summarise()


def found(run: Run, kind: str, shared: str) -> Crossing:
    (one,) = [c for c in crossings(*run.parts) if (c.kind, c.shared) == (kind, shared)]
    return one


FASTER_A = {"eager": (20.0, 30.0), "openvino": (10.0, 15.0)}


@pytest.mark.parametrize(
    ("openvino", "verdict"),
    [((50.0, 40.0), "reversed"), ((40.0, 50.0), "kept"), ((50.0, 50.0), "tie")],
)
def test_models_under_one_compiler(openvino: tuple[float, float], verdict: str) -> None:
    run = fleet(FASTER_A, {"eager": (90.0, 95.0), "openvino": openvino})
    crossing = found(run, "models", "openvino")
    assert crossing.verdict == verdict
    assert crossing.devices == ("orin/cpu", "pi/cpu")
    assert crossing.ratios[0].low < 1.5 < crossing.ratios[0].high
    assert crossing.ratios[1].low < openvino[1] / openvino[0] < crossing.ratios[1].high


def test_compilers_of_one_model_swap_places_and_lead_the_list() -> None:
    run = fleet(FASTER_A, {"eager": (80.0, 90.0), "openvino": (160.0, 45.0)})
    assert found(run, "compilers", "A").verdict == "reversed"
    assert found(run, "compilers", "B").verdict == "kept"
    assert "eager and openvino swap places between devices for A at batch 8" in (
        found(run, "compilers", "A").sentence
    )
    verdicts = [crossing.verdict for crossing in crossings(*run.parts)]
    assert verdicts[0] == "reversed"
    assert verdicts == sorted(verdicts, key=["reversed", "kept", "tie", "unresolved"].index)


def test_noise_and_a_failed_control_leave_it_unresolved() -> None:
    noisy = fleet(FASTER_A, {"eager": (90.0, 95.0), "openvino": (40.0, 40.6)}, noise=0.08)
    assert found(noisy, "models", "openvino").reason == "interval"
    flags = [{"flag": "untrusted", "detail": ""}]
    run = fleet(FASTER_A, {"eager": (90.0, 80.0), "openvino": (50.0, 40.0)}, flags=flags)
    assert found(run, "models", "openvino").reason == "untrusted"


def test_a_power_mode_is_said() -> None:
    host = {**HOST, "power_mode": "15W"}
    run = fleet(FASTER_A, {"eager": (90.0, 80.0), "openvino": (50.0, 40.0)}, host=host)
    assert "on pi/cpu (15W)" in found(run, "models", "openvino").sentence


def test_one_device_has_nothing_to_cross() -> None:
    run = Run()
    session = run.session()
    for name in "AB":
        run.cell(session, model(name), "eager", 8, ms=10.0)
    assert crossings(*run.summarise().parts) == []
