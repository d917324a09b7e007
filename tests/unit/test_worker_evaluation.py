"""A labelled set goes through in batches of the case's size; padding never counts."""

from __future__ import annotations

import numpy as np
import pytest

from ngraphbench.errors import RunFailed
from ngraphbench.types import Arrays
from ngraphbench.worker.evaluation import count_items, predict

X = np.arange(10, dtype=np.float32).reshape(5, 2)


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 8])
def test_only_real_items_come_out_whatever_the_batch(batch: int) -> None:
    sizes = []

    def run(inputs: Arrays) -> Arrays:
        sizes.append(len(inputs["x"]))
        return {"y": inputs["x"] * inputs["k"]}

    found = predict(run, {"x": X, "k": np.float32(3)}, axes={"x": 0, "k": None}, batch=batch)
    assert np.array_equal(found["y"], X * 3)
    assert set(sizes) == {batch}


def test_items_may_stand_on_another_axis() -> None:
    found = predict(lambda i: {"y": i["x"]}, {"x": X.T}, axes={"x": 1}, batch=3)
    assert np.array_equal(found["y"], X)
    assert count_items({"x": X.T}, {"x": 1}) == 5


def test_outputs_may_reuse_one_buffer() -> None:
    buffer = np.zeros((2, 2), np.float32)

    def run(inputs: Arrays) -> Arrays:
        buffer[:] = inputs["x"]
        return {"y": buffer}

    assert np.array_equal(predict(run, {"x": X}, axes={"x": 0}, batch=2)["y"], X)


def test_outputs_without_items_are_left_out() -> None:
    def run(inputs: Arrays) -> Arrays:
        return {"y": inputs["x"], "loss": np.float32(1)}

    assert list(predict(run, {"x": X}, axes={"x": 0}, batch=2)) == ["y"]
    with pytest.raises(RunFailed, match="cannot be told apart"):
        predict(lambda inputs: {"loss": np.float32(1)}, {"x": X}, axes={"x": 0}, batch=2)
