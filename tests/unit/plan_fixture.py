"""Plans of compilers that compile nothing, for models that are written in a moment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from ngraphbench.case import Session
from ngraphbench.errors import SpecError
from ngraphbench.plan import Plan, make_plan
from ngraphbench.plugin import PRESET, Compiler, Program
from ngraphbench.spec import build_experiment
from ngraphbench.types import Device, Json, Option, OptionValue, Support
from ngraphbench.workload import Workload


class Fake(Compiler):
    name = "fake"
    accepts = ("onnx",)

    def probe(self, device: Device) -> Support:
        return Support(True)

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> Program:
        raise AssertionError("A plan compiles nothing.")


class Eager(Fake):
    name = "eager"
    accepts = ("torch",)
    packages = ("torch",)


class Runtime(Fake):
    name = "onnxruntime"
    packages = ("onnxruntime-gpu", "onnxruntime")
    options: ClassVar[tuple[Option, ...]] = (
        Option("level", "str", "all", "level", choices=("none", "all")),
    )


class Tuner(Fake):
    name = "tuner"
    packages = ("Tuner_Core",)
    options: ClassVar[tuple[Option, ...]] = (
        PRESET,
        Option("streams", "int", 1, "streams", minimum=1, presets={"recommended": 2}),
        Option("fast", "bool", False, "fast"),
    )


COMPILERS = {
    "broken": "no_such_module:X",
    "eager": "plan_fixture:Eager",
    "onnxruntime": "plan_fixture:Runtime",
    "tuner": "plan_fixture:Tuner",
}
FACTS: Json = {
    "local": {
        "threads": 2,
        "host": "abc",
        "packages": {"torch": "2.14.1+cpu", "onnxruntime": "1.32.0", "tuner-core": "3"},
    },
    "pi": {"threads": 4, "host": "def", "packages": {}, "cpus": [0, 1]},
}


def write_models(folder: Path) -> Path:
    """Return ``folder`` with two ONNX files and two torch factories in it."""
    for name, value in (("a", 1.0), ("b", 2.0)):
        weight = onnx.numpy_helper.from_array(np.array([value], np.float32), "w")
        graph = helper.make_graph(
            [helper.make_node("Mul", ["x", "w"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])],
            [weight],
        )
        onnx.save(helper.make_model(graph), folder / f"{name}.onnx")
    (folder / "nets.py").write_text("def one(): ...\ndef two(): ...\n")
    return folder


def plan_of(base: Path, models: list[Any], compilers: list[Any], **more: Any) -> Plan:
    data = {"name": "t", "models": models, "compilers": compilers, "batch_sizes": [1], **more}
    return make_plan(build_experiment(data), base=base, compilers=COMPILERS, facts=FACTS)


def labels(session: Session) -> list[str]:
    return [case.label for case in session.cases]


def refused(base: Path, *args: Any, **more: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        plan_of(base, *args, **more)
    return caught.value
