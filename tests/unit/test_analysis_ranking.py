from __future__ import annotations

import math

import pytest
from curve_fixture import evidence
from hypothesis import given, settings
from hypothesis import strategies as st
from run_fixture import Run, full_run, model
from scipy.stats import kendalltau

from ngraphbench.analysis.contrasts import Contrast, contrast
from ngraphbench.analysis.ranking import (
    Settle,
    beats,
    changes,
    flips,
    origin,
    probability,
    rankings,
    settle,
    settling,
    tau_b,
)
from ngraphbench.analysis.reversal import Reversal, reversals
from ngraphbench.analysis.verdict import verdicts
from ngraphbench.profiles import PROFILES


def sign(a: int, b: int) -> int:
    return (a > b) - (a < b)


@settings(deadline=None)
@given(ranks=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=9))
def test_tau_b_is_scipys_where_ties_are_transitive(ranks: list[tuple[int, int]]) -> None:
    pairs = [(sign(a[0], b[0]), sign(a[1], b[1])) for i, a in enumerate(ranks) for b in ranks[:i]]
    found = tau_b(pairs)
    expected = kendalltau([a for a, _ in ranks], [b for _, b in ranks], variant="b").statistic
    if math.isnan(expected):
        assert found is None
    else:
        assert found == pytest.approx(expected)


def models(times: dict[str, dict[str, float]], *, batch: int = 8, noise: float = 0.004) -> Run:
    """Return a run of models, ms per call by model and candidate."""
    run = Run(PROFILES["default"], noise=noise)
    session = run.session()
    for name, by_label in times.items():
        for label, ms in by_label.items():
            run.cell(session, model(name), label, batch, ms=ms)
    return run.summarise()


def orders(run: Run) -> list[Reversal]:
    return reversals(*run.parts)


def test_ranking_of_models() -> None:
    run = models(
        {
            "A": {"eager": 10.0, "openvino": 5.0},
            "B": {"eager": 20.0, "openvino": 4.0},
            "C": {"eager": 40.0, "openvino": 9.0},
        }
    )
    (found,) = rankings(orders(run))
    assert (found.models, found.pairs, found.reversed_beyond) == (3, 3, 1)
    assert found.tau_b == pytest.approx(1 / 3)


def test_a_reversal_by_a_hair_does_not_count() -> None:
    run = models(
        {"A": {"eager": 10.0, "openvino": 5.0}, "B": {"eager": 10.4, "openvino": 4.0}}, noise=0.001
    )
    (order,) = orders(run)
    assert order.verdict == "reversed"
    assert rankings([order])[0].reversed_beyond == 0


def test_flip_of_a_verdict_over_batch_sizes() -> None:
    run = Run(PROFILES["default"])
    session = run.session()
    times = {1: (5.0, 8.0), 4: (9.0, 9.02), 8: (20.0, 15.0)}
    for batch, (a, b) in times.items():
        for name, mine, base in (("A", a, 10.0 * batch), ("B", b, 15.0 * batch)):
            run.cell(session, model(name), "eager", batch, ms=base)
            run.cell(session, model(name), "openvino", batch, ms=mine)
    (flip,) = flips(orders(run.summarise()))
    assert (flip.before_batch, flip.after_batch) == (1, 8)
    assert (flip.before, flip.after) == ("kept", "reversed")


CONTROL = "onnxruntime:level=none"


@pytest.mark.parametrize(
    ("control", "cause"),
    [((9.0, 14.0), "compiler"), ((12.0, 8.0), "export or runtime"), ((9.0, 9.0), "unresolved")],
)
def test_the_control_parts_compiler_from_export(control: tuple[float, float], cause: str) -> None:
    run = models(
        {
            "A": {"eager": 10.0, "openvino": 9.0, CONTROL: control[0]},
            "B": {"eager": 15.0, "openvino": 6.0, CONTROL: control[1]},
        }
    )
    (order,) = (one for one in orders(run) if one.compiler == "openvino")
    found = origin(evidence(run), order)
    assert found is not None
    assert found.cause == cause


def test_the_torch_graph_has_no_such_control() -> None:
    run = models(
        {
            "A": {"eager": 10.0, "inductor": 9.0, CONTROL: 9.0},
            "B": {"eager": 15.0, "inductor": 6.0, CONTROL: 14.0},
        }
    )
    (order,) = (one for one in orders(run) if one.compiler == "inductor")
    found = origin(evidence(run), order)
    assert found is not None
    assert (order.verdict, found.cause) == ("reversed", "no control")


def test_without_a_control_there_is_no_cause() -> None:
    run = models({"A": {"eager": 10.0, "openvino": 9.0}, "B": {"eager": 15.0, "openvino": 6.0}})
    (order,) = orders(run)
    found = origin(evidence(run), order)
    assert found is not None
    assert found.cause == "no control"


def close(value: float, within: float, launch: float) -> Contrast:
    half = math.hypot(within, launch)
    return Contrast(
        value=value,
        low=value - half,
        high=value + half,
        within_low=value - within,
        within_high=value + within,
        launch_half=launch,
        confidence=0.95,
        rounds=36,
        epochs=3,
    )


def test_more_rounds_settle_noise_and_more_launches_settle_launches() -> None:
    assert settle(close(0.03, 0.06, 0.0), 0.02) == Settle(36 * 3 + 1, None)
    by_launches = settle(close(0.03, 0.01, 0.06), 0.02)
    assert by_launches.rounds is None
    assert by_launches.launches is not None
    assert by_launches.launches > 3


def test_what_settles_is_enough() -> None:
    """With as many rounds as it says the interval leaves a tie behind; with fewer, not."""
    found = settle(close(0.03, 0.05, 0.01), 0.02)
    assert found.rounds is not None

    def half(more: int) -> float:
        return math.hypot(0.05 * math.sqrt(36 / (36 + more)), 0.01)

    assert half(found.rounds) < 0.03 < half(found.rounds - 3)


def test_an_unresolved_order_says_what_would_settle_it() -> None:
    run = models(
        {"A": {"eager": 127.0, "openvino": 60.0}, "B": {"eager": 90.0, "openvino": 61.5}},
        noise=0.08,
    )
    (order,) = orders(run)
    assert order.verdict == "unresolved"
    found = settling(evidence(run), order)
    assert found is not None
    assert found.rounds or found.launches
    settled = models({"A": {"eager": 9.0, "openvino": 6.0}, "B": {"eager": 5.0, "openvino": 4.0}})
    assert settling(evidence(settled), orders(settled)[0]) is None


@settings(max_examples=8, deadline=None)
@given(a=st.floats(1.0, 100.0), b=st.floats(1.0, 100.0))
def test_probabilities_of_both_sides_add_up(a: float, b: float) -> None:
    run = models({"A": {"eager": a, "openvino": 1.0}, "B": {"eager": b, "openvino": 2.0}})
    (order,) = orders(run)
    found = beats(evidence(run), order, compiled=False)
    assert found is not None
    assert (found > 0.5) == (a < b) or math.isclose(a, b, rel_tol=0.01)
    first, second = run.records[0], run.records[2]
    cells = {cell.record["case_id"]: cell for cell in evidence(run).cells}
    pair = [cells[record["case_id"]] for record in (first, second)]
    forth = contrast(evidence(run), [(pair[1], 1.0), (pair[0], -1.0)])
    back = contrast(evidence(run), [(pair[0], 1.0), (pair[1], -1.0)])
    assert forth is not None
    assert back is not None
    assert probability(forth, 4.0) + probability(back, 4.0) == pytest.approx(1.0)


def test_the_best_compiler_changes_with_the_model() -> None:
    run = models(
        {
            "A": {"eager": 20.0, "openvino": 5.0, "onnxruntime": 9.0},
            "B": {"eager": 20.0, "openvino": 9.0, "onnxruntime": 5.0},
        }
    )
    (found,) = changes(verdicts(*run.parts))
    assert (found.axis, found.first, found.second) == ("model", "A", "B")
    assert (found.top_first, found.top_second) == (("openvino",), ("onnxruntime",))


def test_a_whole_run_is_ranked() -> None:
    run = full_run()
    found = {(one.compiler, one.batch): one for one in rankings(orders(run))}
    assert found["openvino", 8].reversed_beyond == 1
    assert found["openvino", 8].tau_b == pytest.approx(-1.0)
