"""The numerical verdict: what is right, wrong, and cannot be told."""

from __future__ import annotations

import numpy as np
import pytest

from ngraphbench.session.verify import Reference, Verification, check, merge
from ngraphbench.types import TensorSpec


def reference(values: np.ndarray, dtype: str = "float32", **more: object) -> Reference:
    spec = TensorSpec("y", dtype, tuple(values.shape))
    return Reference("eager-fp64", {"y": values}, (spec,), **more)


def judged(got: np.ndarray, expected: np.ndarray, dtype: str = "float32", **more) -> Verification:
    precision = more.pop("precision", "fp32")
    return check({"y": got}, reference(expected, dtype, **more), precision)


X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


def test_equal_outputs_are_ok():
    found = judged(X, X.astype(np.float64))
    assert (found.verdict, found.reason) == ("ok", "")
    assert found.rel_l2 == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("error", "verdict"), [(5e-5, "ok"), (5e-4, "wrong")])
def test_fp32_is_wrong_above_a_relative_l2_of_1e_4(error: float, verdict: str):
    assert judged(X * (1 + error), X).verdict == verdict


@pytest.mark.parametrize(
    ("precision", "limit"), [("fp32", 1e-4), ("tf32", 1e-2), ("fp16", 1e-2), ("bf16", 3e-2)]
)
def test_each_precision_has_its_limit(precision: str, limit: float):
    assert judged(X * (1 + 0.8 * limit), X, precision=precision).verdict == "ok"
    assert judged(X * (1 + 1.25 * limit), X, precision=precision).verdict == "wrong"


def test_the_models_own_error_widens_the_tolerance():
    assert judged(X * (1 + 5e-4), X, baseline_rel_l2=1e-4).verdict == "ok"
    assert judged(X * (1 + 5e-3), X, baseline_rel_l2=1e-4).verdict == "wrong"


@pytest.mark.parametrize(("dtype", "precision"), [("float16", "fp32"), ("float32", "fp16")])
def test_half_precision_has_its_own_tolerance(dtype: str, precision: str):
    values = X.astype(np.float16) if dtype == "float16" else X
    assert judged(values * np.float16(1.002), X, dtype, precision=precision).verdict == "ok"


def test_bfloat16_bits_are_numbers():
    bits = (X.view(np.uint32) >> 16).astype(np.uint16)
    assert judged(bits, X.astype(np.float64), "bfloat16").verdict == "ok"
    assert judged(np.zeros_like(bits), X.astype(np.float64), "bfloat16").verdict == "wrong"


def test_tiny_outputs_are_not_excused_by_an_absolute_tolerance():
    tiny = X * np.float32(1e-7)
    assert judged(np.zeros_like(tiny), tiny).verdict == "wrong"


def test_complex_outputs_are_compared_as_numbers():
    values = (X + 1j * X[::-1]).astype(np.complex64)
    exact = values.astype(np.complex128)
    assert judged(values, exact, "complex64").verdict == "ok"
    assert judged(values.conj(), exact, "complex64").reason == "values"
    assert judged(values.real, exact, "complex64").reason == "dtype"


def test_zeros_match_zeros_and_nothing_else():
    zeros = np.zeros((2, 2), np.float32)
    assert judged(zeros, zeros).verdict == "ok"
    assert judged(zeros + np.float32(1e-3), zeros).verdict == "wrong"


def test_nan_must_sit_in_the_same_places():
    holes = X.copy()
    holes[0, 0] = np.nan
    assert judged(holes, holes).verdict == "ok"
    assert judged(holes, X).reason == "nan"
    assert judged(X, holes).reason == "nan"


def test_infinities_keep_their_sign():
    up, down = X.copy(), X.copy()
    up[0, 0], down[0, 0] = np.inf, -np.inf
    assert judged(up, up).verdict == "ok"
    assert judged(down, up).reason == "nan"


def test_integers_are_exact():
    big = np.array([2**40 + 1, 5], dtype=np.int64)
    assert judged(big, big, "int64").verdict == "ok"
    narrowed = (big & 0xFFFFFFFF).astype(np.int64)
    assert judged(narrowed, big, "int64").reason == "values"


def test_an_integer_of_another_width_is_said():
    found = judged(np.array([1, 2], np.int32), np.array([1, 2], np.int64), "int64")
    assert found.verdict == "ok"
    assert "int32" in found.notes[0]


@pytest.mark.parametrize(
    ("got", "dtype", "reason"),
    [
        (X[:4], "float32", "shape"),
        (np.zeros((0, 8), np.float32), "float32", "shape"),
        (X.astype(np.int64), "float32", "dtype"),
    ],
)
def test_shapes_and_kinds_must_agree(got: np.ndarray, dtype: str, reason: str):
    found = judged(got, X, dtype)
    assert (found.verdict, found.reason) == ("wrong", reason)


def test_a_missing_output_is_wrong():
    found = check({"z": X}, reference(X), "fp32")
    assert (found.verdict, found.reason) == ("wrong", "outputs")


def test_an_empty_comparison_is_not_a_pass():
    empty = np.zeros((0, 4), np.int64)
    assert judged(empty, empty, "int64").verdict == "unverifiable"


def test_a_reference_that_disagrees_with_itself_proves_nothing():
    assert judged(X * 2, X, deterministic=False).verdict == "unverifiable"
    assert judged(X[:4], X, deterministic=False).verdict == "wrong"


def test_a_constant_output_is_named():
    assert judged(X, X, constant=True).verdict == "constant"
    assert judged(X * 2, X, constant=True).verdict == "wrong"


def test_the_worst_check_decides():
    good, bad = judged(X, X), judged(X * 2, X)
    merged = merge({"a": good, "b": bad})
    assert (merged.verdict, merged.checks) == ("wrong", ("a", "b"))
    assert merge({"a": good, "after": bad}).reason == "drifted"


def test_figures_are_those_of_the_worst_input_set():
    near, off = judged(X * (1 + 1e-6), X), judged(X * (1 + 5e-5), X)
    merged = merge({"a": near, "b": off})
    assert merged.verdict == "ok"
    assert merged.smallest_rtol == off.smallest_rtol


def test_outputs_of_an_ill_conditioned_model_prove_little():
    more = {"ill_conditioned": True, "baseline_rel_l2": 0.3}
    assert judged(X * 1.2, X, **more).verdict == "ok"
    zeros = judged(np.zeros_like(X), X, **more)
    assert (zeros.verdict, zeros.reason) == ("unverifiable", "ill-conditioned")
    assert judged(X * 9, X, **more).verdict == "wrong"


def test_outputs_closer_than_the_tolerance_for_all_inputs_prove_nothing():
    assert judged(X, X, spread=1e-5).verdict == "constant"
    assert judged(X, X, spread=1e-3).verdict == "ok"
    assert judged(X.astype(np.float16), X, spread=1e-3, precision="fp16").verdict == "constant"


def test_a_model_that_changes_itself_is_called_stateful():
    found = judged(X * 2, X, deterministic=False, stateful="cache")
    assert (found.verdict, found.reason) == ("unverifiable", "stateful")
    assert "cache" in found.notes[-1]


def test_quantised_outputs_have_the_tolerance_of_int8():
    assert judged(X * 1.03, X).verdict == "wrong"
    assert judged(X * 1.03, X, quantised=True).verdict == "ok"
    assert judged(X * 1.2, X, quantised=True).verdict == "wrong"
    codes = np.arange(64, dtype=np.uint8) + 100
    assert judged(codes + 1, codes, "uint8", quantised=True).verdict == "ok"
    assert judged(codes + 1, codes, "uint8").verdict == "wrong"
    # Labels stay exact.
    labels = np.arange(4)
    assert judged(labels + 1, labels, "int64", quantised=True).verdict == "wrong"


def test_fewer_bits_than_asked_for_are_wrong_and_more_are_said():
    assert judged(X.astype(np.float16), X).reason == "dtype"
    found = judged(X.astype(np.float64), X)
    assert (found.verdict, found.notes) == ("ok", ("y: float64, not float32",))


def test_where_nothing_is_finite_nothing_is_compared():
    found = judged(np.full_like(X, np.nan), np.full_like(X, np.nan))
    assert (found.verdict, found.reason) == ("unverifiable", "not-finite")


def test_notes_of_the_reference_go_with_the_verdict():
    assert judged(X, X, notes=("rows-depend-on-batch: so",)).notes == ("rows-depend-on-batch: so",)
