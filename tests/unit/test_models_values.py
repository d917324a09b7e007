from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ngraphbench.errors import SpecError, Unsupported
from ngraphbench.models.inputs import default_generator
from ngraphbench.models.reference import (
    Exact,
    Outputs,
    Reference,
    make_reference,
    relative_error,
    same_values,
)
from ngraphbench.models.values import from_bfloat16, generate, load_user_inputs, to_bfloat16
from ngraphbench.types import DTYPES, Arrays, TensorSpec, storage_dtype


def spec(dtype: str = "float32", *shape: int | str, generator: str = "") -> TensorSpec:
    return TensorSpec("x", dtype, shape, generator or default_generator(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_can_be_made_and_is_not_all_zero(dtype: str) -> None:
    values = generate(spec(dtype, 3, 4), seed=0, which="a")
    assert values.dtype == storage_dtype(dtype)
    assert values.shape == (3, 4)
    assert values.any()


def test_values_depend_on_seed_set_and_name_alone() -> None:
    one = generate(spec("float32", 4), seed=0, which="a")
    assert np.array_equal(one, generate(spec("float32", 4), seed=0, which="a"))
    assert not np.array_equal(one, generate(spec("float32", 4), seed=1, which="a"))
    assert not np.array_equal(one, generate(spec("float32", 4), seed=0, which="b"))


def test_the_first_rows_are_the_same_at_every_batch_size() -> None:
    small = generate(spec("float32", 2, 5), seed=0, which="a")
    large = generate(spec("float32", 8, 5), seed=0, which="a")
    assert np.array_equal(small, large[:2])


def test_ranges_are_kept_and_high_is_excluded() -> None:
    ints = generate(spec("int64", 500, generator="int:3:5"), seed=0, which="a")
    assert set(ints.tolist()) == {3, 4}
    floats = generate(spec("float32", 500, generator="uniform:-1:2"), seed=0, which="a")
    assert -1 <= floats.min() < 0
    assert 1 < floats.max() <= 2
    assert (
        generate(spec("float32", 2, generator="const:1.5"), seed=0, which="a").tolist() == [1.5] * 2
    )


@pytest.mark.parametrize(
    "generator", ["normal:1", "int:5", "int:5:5", "uniform:a:b", "zipf", "normal"]
)
def test_a_generator_that_does_not_fit_is_refused(generator: str) -> None:
    with pytest.raises(Unsupported):
        generate(spec("int64", 2, generator=generator), seed=0, which="a")


def test_bfloat16_rounds_to_nearest_even_and_keeps_nan() -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, np.inf, np.nan, -0.0], np.float32)
    back = from_bfloat16(to_bfloat16(values))
    assert back[:4].tolist() == [1.0, 1.0, 1.015625, np.inf]
    assert np.isnan(back[4])
    assert np.signbit(back[5])


def saved(tmp_path: Path, **arrays: np.ndarray) -> Path:
    path = tmp_path / "given.npz"
    np.savez(path, **arrays)
    return path


def test_user_arrays_are_taken_by_name(tmp_path: Path) -> None:
    path = saved(tmp_path, x=np.ones((2, 3)), other=np.zeros(1))
    found = load_user_inputs(path, [spec("float32", "batch", 3)], 2)
    assert found["x"].dtype == np.float32
    assert found["x"].shape == (2, 3)


def test_user_arrays_that_do_not_fit_say_what_was_found(tmp_path: Path) -> None:
    path = saved(tmp_path, x=np.ones((2, 3)))
    with pytest.raises(Unsupported, match="2x3") as caught:
        load_user_inputs(path, [spec("float32", "batch", 3)], 8)
    assert caught.value.reason == "batch-fixed"
    with pytest.raises(Unsupported, match="2x3"):
        load_user_inputs(path, [spec("float32", "batch", 4)], 2)
    with pytest.raises(Unsupported, match="float64"):
        load_user_inputs(path, [spec("int64", "batch", 3)], 2)
    with pytest.raises(SpecError, match="it has: x"):
        load_user_inputs(path, [TensorSpec("y", "float32", (1,))], 1)
    path.write_bytes(b"no archive")
    with pytest.raises(SpecError, match="npz"):
        load_user_inputs(path, [], 1)


def outputs(*values: float, dtype: str = "float32") -> Outputs:
    return Outputs({"y": np.array(values, dtype=dtype)}, {"y": dtype})


def test_nan_must_sit_in_the_same_places() -> None:
    assert same_values(outputs(1, float("nan")), outputs(1, float("nan")))
    assert not same_values(outputs(1, float("nan")), outputs(float("nan"), 1))
    assert not same_values(outputs(float("inf")), outputs(-float("inf")))


def test_integers_must_be_equal() -> None:
    assert not same_values(
        outputs(1_000_000_000, dtype="int64"), outputs(1_000_000_001, dtype="int64")
    )


def test_the_relative_error_is_that_of_the_norm() -> None:
    assert relative_error(outputs(3, 4.05), outputs(3, 4)) == pytest.approx(0.01, rel=1e-3)
    assert relative_error(outputs(1e-9), outputs(0)) == float("inf")


def test_a_reference_that_differs_from_itself_is_not_deterministic() -> None:
    calls = iter(range(10))

    def run(inputs: Arrays) -> Outputs:
        return outputs(float(next(calls)))

    assert not make_reference("eager", run, a={}, b={}).deterministic


def test_fp64_values_are_used_where_they_are_near() -> None:
    def make(exact: float) -> Reference:
        return make_reference(
            "eager", lambda _: outputs(1.0), a={}, b={},
            exact=lambda **_: Exact("eager", lambda _: outputs(exact, dtype="float64")),
        )  # fmt: skip

    near, far = make(1.00001), make(2.0)
    assert (near.name, near.a["y"].dtype) == ("eager-fp64", "float64")
    assert near.own.dtypes["y"] == "float32"
    assert near.baseline_rel_l2 == pytest.approx(1e-5, rel=1e-3)
    # Nudged, it stays where it is: not rounding, but another meaning in fp64.
    assert (far.name, far.ill_conditioned) == ("eager", False)
    assert far.notes[0].startswith("fp64-disagrees")


def test_a_model_that_fails_in_fp64_keeps_its_own_outputs() -> None:
    def exact(**_: object) -> Exact:
        raise RuntimeError("expected Float but found Double")

    found = make_reference("eager", lambda _: outputs(1.0), a={}, b={}, exact=exact)
    assert found.name == "eager"
    assert "expected Float" in found.notes[0]
