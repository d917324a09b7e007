"""Small models, each written three ways: numpy in float64, ONNX nodes, and a torch ``forward``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngraphbench.types import Array, Arrays, TensorSpec

__all__ = ["SAMPLES", "Sample"]

WIDTH = 512


@dataclass(frozen=True, slots=True)
class Sample:
    """A model: ``specs`` have ``batch`` as the symbolic first dim.

    ``nodes`` lists ONNX nodes as (op, inputs, outputs, attributes); ``forward`` is the body
    of a torch method in which weights are attributes of ``self``.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: Callable[[np.random.Generator], Arrays]
    evaluate: Callable[[Arrays, Arrays], Arrays]
    nodes: tuple[tuple[str, list[str], list[str], dict[str, Any]], ...]
    forward: str


def _draw(rng: np.random.Generator, *shape: int, fan_in: int) -> Array:
    # Gain 2 keeps the scale through a ReLU.
    drawn: Array = rng.standard_normal(shape) * np.sqrt(2.0 / fan_in)
    return drawn.astype(np.float32)


def _mlp_weights(rng: np.random.Generator) -> Arrays:
    return {
        "w1": _draw(rng, 8, 16, fan_in=8),
        "b1": _draw(rng, 16, fan_in=16),
        "w2": _draw(rng, 16, 4, fan_in=16),
        "b2": _draw(rng, 4, fan_in=4),
    }


def _mlp(w: Arrays, x: Arrays) -> Arrays:
    hidden = np.maximum(x["x"] @ w["w1"] + w["b1"], 0)
    return {"output": hidden @ w["w2"] + w["b2"]}


def _conv_weights(rng: np.random.Generator) -> Arrays:
    return {"w": _draw(rng, 4, 3, 3, 3, fan_in=27), "b": _draw(rng, 4, fan_in=4)}


def _conv(w: Arrays, x: Arrays) -> Arrays:
    padded = np.pad(x["image"], ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    result = np.einsum("bchwij,ocij->bohw", windows, w["w"]) + w["b"][:, None, None]
    return {"output": np.maximum(result, 0)}


def _tokens(w: Arrays, x: Arrays) -> Arrays:
    return {"output": w["table"][x["ids"].astype(np.int64)] @ w["w"]}


def _pair(w: Arrays, x: Arrays) -> Arrays:
    return {"output.sum": x["left"] + x["right"], "output.scaled": x["right"] * w["scale"]}


def _wide_weights(rng: np.random.Generator) -> Arrays:
    return {f"w{i}": _draw(rng, WIDTH, WIDTH, fan_in=WIDTH) for i in range(4)}


def _wide(w: Arrays, x: Arrays) -> Arrays:
    value = x["x"]
    for i in range(4):
        value = np.maximum(value @ w[f"w{i}"], 0)
    return {"output": value}


def _wide_nodes() -> tuple[tuple[str, list[str], list[str], dict[str, Any]], ...]:
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = []
    value = "x"
    for i in range(4):
        nodes.append(("MatMul", [value, f"w{i}"], [f"m{i}"], {}))
        value = "output" if i == 3 else f"r{i}"
        nodes.append(("Relu", [f"m{i}"], [value], {}))
    return tuple(nodes)


def _spec(name: str, *shape: int, dtype: str = "float32", generator: str = "normal") -> TensorSpec:
    return TensorSpec(name, dtype, ("batch", *shape), generator)


_ALL = (
    Sample(
        name="mlp",
        inputs=(_spec("x", 8),),
        outputs=(_spec("output", 4),),
        weights=_mlp_weights,
        evaluate=_mlp,
        nodes=(
            ("Gemm", ["x", "w1", "b1"], ["h"], {}),
            ("Relu", ["h"], ["r"], {}),
            ("Gemm", ["r", "w2", "b2"], ["output"], {}),
        ),
        forward=(
            "def forward(self, x):\n"
            "    return torch.relu(x @ self.w1 + self.b1) @ self.w2 + self.b2\n"
        ),
    ),
    Sample(
        name="conv",
        inputs=(_spec("image", 3, 8, 8),),
        outputs=(_spec("output", 4, 8, 8),),
        weights=_conv_weights,
        evaluate=_conv,
        nodes=(
            ("Conv", ["image", "w", "b"], ["c"], {"pads": [1, 1, 1, 1]}),
            ("Relu", ["c"], ["output"], {}),
        ),
        forward=(
            "def forward(self, image):\n"
            "    conv = torch.nn.functional.conv2d(image, self.w, self.b, padding=1)\n"
            "    return torch.relu(conv)\n"
        ),
    ),
    Sample(
        name="tokens",
        inputs=(_spec("ids", 6, dtype="int64", generator="int:0:10"),),
        outputs=(_spec("output", 6, 4),),
        weights=lambda rng: {
            "table": _draw(rng, 10, 8, fan_in=8),
            "w": _draw(rng, 8, 4, fan_in=8),
        },
        evaluate=_tokens,
        nodes=(
            ("Gather", ["table", "ids"], ["e"], {}),
            ("MatMul", ["e", "w"], ["output"], {}),
        ),
        forward="def forward(self, ids):\n    return self.table[ids] @ self.w\n",
    ),
    Sample(
        name="pair",
        inputs=(_spec("left", 5), _spec("right", 5)),
        outputs=(_spec("output.sum", 5), _spec("output.scaled", 5)),
        weights=lambda rng: {"scale": _draw(rng, 5, fan_in=1)},
        evaluate=_pair,
        nodes=(
            ("Add", ["left", "right"], ["output.sum"], {}),
            ("Mul", ["right", "scale"], ["output.scaled"], {}),
        ),
        forward=(
            "def forward(self, left, right):\n"
            "    return {'sum': left + right, 'none': None, 'scaled': right * self.scale}\n"
        ),
    ),
    Sample(
        name="wide",
        inputs=(_spec("x", WIDTH),),
        outputs=(_spec("output", WIDTH),),
        weights=_wide_weights,
        evaluate=_wide,
        nodes=_wide_nodes(),
        forward=(
            "def forward(self, x):\n"
            "    for w in (self.w0, self.w1, self.w2, self.w3):\n"
            "        x = torch.relu(x @ w)\n"
            "    return x\n"
        ),
    ),
    Sample(
        name="fake",
        inputs=(_spec("x", 4),),
        outputs=(_spec("y", 4),),
        weights=lambda rng: {"two": np.full(1, 2, np.float32), "one": np.ones(1, np.float32)},
        evaluate=lambda w, x: {"y": x["x"] * w["two"] + w["one"]},
        nodes=(("Mul", ["x", "two"], ["d"], {}), ("Add", ["d", "one"], ["y"], {})),
        forward="def forward(self, x):\n    return {'y': x * self.two + self.one}\n",
    ),
)

SAMPLES = {sample.name: sample for sample in _ALL}
"""The models by name."""
