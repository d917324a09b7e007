from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_fixture import Run, full_run, model

from ngraphbench.analysis import reversal
from ngraphbench.analysis.reversal import Reversal, reversals, reversals_of, unpaired_count
from ngraphbench.analysis.tables import Evidence
from ngraphbench.analysis.verdict import headline, verdicts
from ngraphbench.profiles import PROFILES

LABELS = ("eager", "onnxruntime", "openvino")


def pair(eager: tuple[float, float], compiled: tuple[float, float], *, noise: float = 0.004) -> Run:
    """Return a run of models A and B with these times per call under both."""
    run = Run(PROFILES["default"], noise=noise)
    session = run.session()
    for name, base, under in zip("AB", eager, compiled, strict=True):
        run.cell(session, model(name), "eager", 8, ms=base)
        run.cell(session, model(name), "openvino", 8, ms=under)
    return run.summarise()


def only(run: Run) -> Reversal:
    (reversal,) = reversals(*run.parts)
    return reversal


@pytest.mark.parametrize(
    ("eager", "compiled", "verdict"),
    [
        ((127.0, 114.0), (40.0, 60.0), "reversed"),
        ((127.0, 114.0), (60.0, 40.0), "kept"),
        ((127.0, 114.0), (60.0, 60.0), "tie"),
    ],
)
def test_orders(eager: tuple[float, float], compiled: tuple[float, float], verdict: str) -> None:
    assert only(pair(eager, compiled)).verdict == verdict


def test_noise_leaves_an_order_unresolved() -> None:
    reversal = only(pair((127.0, 90.0), (60.0, 60.6), noise=0.08))
    assert (reversal.verdict, reversal.reason) == ("unresolved", "interval")


def test_ratios_are_throughput_of_a_over_b() -> None:
    reversal = only(pair((127.0, 114.0), (40.0, 60.0)))
    assert (reversal.model_a, reversal.model_b) == ("A", "B")
    assert reversal.under_baseline is not None
    assert reversal.under_compiler is not None
    assert reversal.under_baseline.low < 114 / 127 < reversal.under_baseline.high
    assert reversal.under_compiler.low < 60 / 40 < reversal.under_compiler.high
    assert "A and B swap places under openvino at batch 8" in reversal.sentence


def test_across_sessions_it_is_unresolved() -> None:
    run = Run()
    for name in "AB":
        session = run.session(name)
        run.cell(session, model(name), "eager", 8, ms=10.0)
        run.cell(session, model(name), "openvino", 8, ms=5.0)
    reversal = only(run.summarise())
    assert (reversal.verdict, reversal.reason) == ("unresolved", "unpaired")
    assert reversal.under_compiler is None


def test_other_shapes_are_no_pair() -> None:
    run = Run()
    for size in (32, 64):
        session = run.session(str(size))
        for name in "AB":
            for text, ms in (("eager", 10.0), ("openvino", 5.0)):
                cell = run.cell(session, model(name), text, 8, ms=ms)
                cell["case"]["shapes"] = {"x": ["batch", size]}
    found = reversals(*run.summarise().parts)
    assert len(found) == 2
    assert all(reversal.reason != "unpaired" for reversal in found)


def test_an_untrusted_session_gives_no_order() -> None:
    run = pair((127.0, 114.0), (40.0, 60.0))
    run.sessions[0]["sentinel"]["excludes_one"] = True
    assert only(run).reason == "untrusted"
    assert "failed the A/A control" in only(run).sentence


@pytest.mark.parametrize("status", ["wrong", "failed", "unverifiable", "unstable"])
def test_only_ok_cells_are_ordered(status: str) -> None:
    run = pair((127.0, 114.0), (40.0, 60.0))
    run.records[1]["status"] = status
    assert reversals(*run.parts) == []


def test_what_is_only_partly_compiled_is_not_ordered() -> None:
    run = pair((127.0, 114.0), (40.0, 60.0))
    run.records[1]["flags"] = [{"flag": "partly-compiled", "detail": "60% ran outside"}]
    assert reversals(*run.parts) == []


def test_one_model_has_no_order() -> None:
    run = Run()
    session = run.session()
    for batch in (1, 8):
        run.cell(session, model("A"), "eager", batch, ms=10.0)
        run.cell(session, model("A"), "openvino", batch, ms=5.0)
    assert reversals(*run.summarise().parts) == []


def test_two_baselines_are_no_evidence_of_a_reversal() -> None:
    run = Run()
    session = run.session()
    times = {"A": (127.0, 40.0), "B": (114.0, 60.0)}
    for name, kind, base in (
        ("A", "timm", "eager"),
        ("B", "onnx", "onnxruntime:level=none"),
    ):
        run.cell(session, model(name, kind), base, 8, ms=times[name][0])
        run.cell(session, model(name, kind), "openvino", 8, ms=times[name][1])
    reversal = only(run.summarise())
    assert (reversal.verdict, reversal.reason) == ("unresolved", "baselines")
    assert reversal.baseline == "eager / onnxruntime:level=none"
    parts = run.parts
    assert "swap places" not in headline(verdicts(*parts), reversals(*parts))


def test_the_strongest_reversal_comes_first() -> None:
    found = reversals(*full_run().parts)
    assert [order.verdict for order in found] == ["reversed"] * 4
    assert found == sorted(found, key=lambda order: -order.strength)


@settings(max_examples=10, deadline=None)
@given(
    cells=st.sets(
        st.tuples(st.sampled_from("ABC"), st.sampled_from("xyz"), st.sampled_from(LABELS)),
        max_size=14,
    )
)
def test_orders_of_two_sessions_are_counted_as_they_are_listed(
    cells: set[tuple[str, str, str]],
) -> None:
    run = Run(PROFILES["quick"], rounds=6)
    sessions = {name: run.session(name) for name in "xyz"}
    for name, session, label in sorted(cells):
        run.cell(sessions[session], model(name), label, 8, ms=10.0)
    evidence = Evidence(*run.summarise().parts)
    listed = reversals_of(evidence)
    apart = [order for order in listed if not order.session_id]
    assert unpaired_count(evidence) == len(apart)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reversal, "MOST_UNPAIRED", len(apart) - 1)
        kept = reversals_of(evidence)
    assert kept == [order for order in listed if order.session_id]
