"""Labelled sets and metrics: what fits, and what is said of what does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ngraphbench.errors import SpecError, Unsupported
from ngraphbench.models.labelled import check_labelled, read_labelled
from ngraphbench.models.metrics import decoded, score
from ngraphbench.models.values import to_bfloat16
from ngraphbench.types import Array, TensorSpec

IMAGE = TensorSpec("image", "float32", (4, 3), "normal")
SCALE = TensorSpec("scale", "float32", (), "normal")
SCORES = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]], np.float32)


def saved(path: Path, **arrays: Array) -> Path:
    np.savez(path / "xy.npz", **arrays)
    return path / "xy.npz"


def test_inputs_by_name_and_the_only_one_as_x(tmp_path: Path) -> None:
    image, y = np.ones((7, 3), np.float64), np.arange(7)
    for key in ("image", "x"):
        path = saved(tmp_path, **{key: image}, y=y)
        check_labelled(path, "top1", inputs=["image"])
        found = read_labelled(path, [IMAGE], axes={"image": 0})
        assert found.inputs["image"].shape == (7, 3)
        assert found.inputs["image"].dtype == np.float32
        assert np.array_equal(found.labels, y)


def test_inputs_without_items_are_as_they_are(tmp_path: Path) -> None:
    path = saved(tmp_path, image=np.ones((2, 3)), scale=np.float32(2), labels=np.arange(2))
    found = read_labelled(path, [IMAGE, SCALE], axes={"image": 0, "scale": None})
    assert found.inputs["scale"].shape == ()


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"image": np.ones((2, 3))}, "has no array for labels, 'y'; it has: image"),
        ({"y": np.ones(2)}, "has no array for input 'image'"),
        ({"image": np.ones((2, 3)), "y": np.ones(3)}, "holds 2 items under 'image' and 3 labels"),
        ({"image": np.ones((0, 3)), "y": np.ones(0)}, "holds no labels"),
        ({"image": np.ones((2, 4)), "y": np.ones(2)}, "is 2x4; the model takes itemsx3"),
        ({"image": np.ones((2, 3), complex), "y": np.ones(2)}, "is complex128; the model takes"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, arrays: dict[str, Array], words: str) -> None:
    path = saved(tmp_path, **arrays)
    with pytest.raises((SpecError, Unsupported)) as caught:
        check_labelled(path, "top1", inputs=["image"])
        read_labelled(path, [IMAGE], axes={"image": 0})
    assert words in str(caught.value)
    assert "xy.npz" in str(caught.value)
    assert caught.value.reason in ("eval", "input")


def test_top1_counts_the_largest_score() -> None:
    assert score({"y": SCORES}, np.array([1, 0, 0]), "top1", folder=Path()) == pytest.approx(2 / 3)
    one_hot = np.eye(2)[[1, 0, 1]]
    assert score({"y": SCORES}, one_hot, "top1", folder=Path()) == 1.0
    pooled = {"pooled": np.zeros(3, np.float32), "logits": SCORES}
    assert score(pooled, np.array([1, 0, 1]), "top1", folder=Path()) == 1.0


def test_top1_of_bfloat16_is_that_of_its_numbers() -> None:
    bits = to_bfloat16(np.array([[-2.0, 1.0]]))
    numbers = decoded({"y": bits}, {"y": "bfloat16"})
    assert score(numbers, np.array([1]), "top1", folder=Path()) == 1.0


def test_a_function_of_the_users_is_found_beside_the_experiment(tmp_path: Path) -> None:
    (tmp_path / "my_own_metrics.py").write_text(
        "def share(outputs, labels):\n    return (outputs['y'][:, 0] > labels).mean()\n"
    )
    labels = np.array([0.0, 0.9, 0.0])
    for metric in ("my_own_metrics:share", "my_own_metrics.py:share"):
        assert score({"y": SCORES}, labels, metric, folder=tmp_path) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("bad_metrics.py:fails", "failed: ZeroDivisionError"),
        ("bad_metrics.py:nothing", "has no function 'nothing'"),
        ("bad_metrics.py:endless", "gave nan"),
        ("bad_metrics.py:text", "failed: ValueError"),
        ("no_such_module_at_all:f", "cannot be imported"),
        ("top1", "needs an output of scores by class"),
    ],
)
def test_a_metric_that_fails_is_the_users_to_mend(tmp_path: Path, metric: str, words: str) -> None:
    (tmp_path / "bad_metrics.py").write_text(
        "def fails(outputs, labels): return 1 / 0\n"
        "def endless(outputs, labels): return float('nan')\n"
        "def text(outputs, labels): return 'good'\n"
    )
    with pytest.raises(SpecError) as caught:
        score({"y": np.zeros(3)}, np.arange(3), metric, folder=tmp_path)
    assert words in str(caught.value)
    assert caught.value.reason == "metric"


def test_a_metric_must_have_a_known_form(tmp_path: Path) -> None:
    path = saved(tmp_path, x=np.ones(2), y=np.ones(2))
    with pytest.raises(SpecError, match="'top5' is not a metric"):
        check_labelled(path, "top5", inputs=None)
