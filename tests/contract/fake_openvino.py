"""A fake of OpenVINO's GPU and NPU: the CPU computes, and tells what those would of themselves.

They take the properties that its documentation lists for each device, and refuse all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ngraphbench.types import Json

HINT = "INFERENCE_PRECISION_HINT"
CAPABILITIES = {
    "GPU": ["FP32", "BIN", "FP16", "INT8", "GPU_HW_MATMUL", "EXPORT_IMPORT"],
    "NPU": ["FP16", "INT8", "EXPORT_IMPORT"],
}
TAKES = {
    "GPU": {
        *(HINT, "PERFORMANCE_HINT", "NUM_STREAMS", "CACHE_DIR", "DYNAMIC_QUANTIZATION_GROUP_SIZE"),
    },
    "NPU": {HINT, "PERFORMANCE_HINT", "CACHE_DIR"},
}
CORE: dict[int, set[str]] = {1: {"ALLOW_AUTO_BATCHING"}, 2: set()}
"""What the core takes itself, by the number of devices; HETERO would not hand it on."""
TELLS = {"GPU": (HINT, "NUM_STREAMS"), "NPU": (HINT,)}
RUNS_ON: dict[str, Any] = {"GPU": ["GPU.0"], "NPU": "NPU"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What is there and how it behaves; ``asked`` holds each compile's target and properties.

    ``leaves``: types of operations that the accelerators do not take. ``computes``: the type
    they compute in, whatever was asked. ``admits``: whether they say so themselves.
    ``goes_to``: the device that runs a model in their place.
    """

    there: Sequence[str] = ("GPU",)
    leaves: Sequence[str] = ()
    computes: str = ""
    admits: bool = True
    goes_to: str = ""
    asked: list[tuple[str, Json]] = field(default_factory=list)


def install(monkeypatch: pytest.MonkeyPatch, **behaviour: Any) -> Machine:
    """Put the fake in place of ``openvino.Core``; return the machine, which keeps what is asked."""
    openvino = pytest.importorskip("openvino")
    machine, real = Machine(**behaviour), openvino.Core
    monkeypatch.setattr(openvino, "Core", lambda: Core(machine, real()))
    return machine


class Core:
    def __init__(self, machine: Machine, real: Any) -> None:
        self._machine = machine
        self._real = real

    @property
    def available_devices(self) -> list[str]:
        return ["CPU", *self._machine.there]

    def read_model(self, path: str) -> Any:
        return self._real.read_model(path)

    def get_property(self, name: str, key: str) -> Any:
        kind = name.partition(".")[0]
        if kind == "CPU":
            return self._real.get_property(name, key)
        if not any(one.startswith(kind) for one in self._machine.there):
            raise RuntimeError(
                "Exception from core.cpp:1:\nCannot load library"
                ' "/there/libplugin.so": libOpenCL.so.1: cannot open shared object file'
            )
        known: Json = {
            "AVAILABLE_DEVICES": {kind: [*self._machine.there]},
            "OPTIMIZATION_CAPABILITIES": CAPABILITIES,
            "SUPPORTED_PROPERTIES": {
                one: {*keys, "FULL_DEVICE_NAME"} for one, keys in TAKES.items()
            },
            "FULL_DEVICE_NAME": {"GPU": "A GPU (fake)", "NPU": "An NPU (fake)"},
        }
        return known[key][kind]

    def query_model(self, model: Any, target: str, properties: Json) -> dict[str, str]:
        first, last = target.removeprefix("HETERO:").split(",")
        left = self._machine.leaves
        return {
            op.get_friendly_name(): last if op.get_type_name() in left else _full(first)
            for op in model.get_ops()
        }

    def compile_model(self, model: Any, target: str, properties: Json) -> Any:
        places = target.removeprefix("HETERO:").split(",")
        kind = places[0].partition(".")[0]
        if kind == "CPU":
            return self._real.compile_model(model, target, properties)
        self._machine.asked.append((target, properties))
        own = properties["DEVICE_PROPERTIES"][places[0]] if len(places) > 1 else properties
        if unknown := set(own) - TAKES[kind] - CORE[len(places)]:
            raise RuntimeError(f"Unsupported property: {unknown}")
        for op in model.get_ops() if len(places) == 1 else ():
            if op.get_type_name() in self._machine.leaves:
                words = f"Operation: x of type {op.get_type_name()}(opset1) is not supported"
                raise RuntimeError(f"Exception from ops.cpp:1:\n{words}")
        alone = {HINT: "f32", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": 1}
        compiled = self._real.compile_model(model, "CPU", alone)
        return Compiled(self._machine, compiled, places=places, properties=properties)


def _full(name: str) -> str:
    """Return the name a device has for itself: a GPU has its number in it."""
    return "GPU.0" if name == "GPU" else name


class Compiled:
    def __init__(
        self, machine: Machine, real: Any, *, places: Sequence[str], properties: Json
    ) -> None:
        self._machine = machine
        self._real = real
        self._places = places
        self._kind = places[0].partition(".")[0]
        self._each = properties.get("DEVICE_PROPERTIES") or {places[0]: properties}
        self._type = machine.computes or self._each[places[0]].get(HINT, "f16")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_infer_request(self) -> Any:
        return Request(self._real.create_infer_request(), rounds=self._type != "f32")

    def get_property(self, name: str) -> Any:
        if name == "EXECUTION_DEVICES":
            alone = RUNS_ON[self._kind] if len(self._places) == 1 else [*map(_full, self._places)]
            return self._machine.goes_to or alone
        if len(self._places) > 1:
            # HETERO knows no more itself.
            told = {_full(one): self._told(one, self._each[one]) for one in self._places}
            return {"DEVICE_PROPERTIES": told}[name]
        told = self._told(self._places[0], self._each[self._places[0]])
        return dict.fromkeys(told, "RO") if name == "SUPPORTED_PROPERTIES" else told[name]

    def _told(self, place: str, properties: Json) -> Json:
        import openvino

        asked = properties.get(HINT, "f16")
        accelerated = place == self._places[0]
        executed = self._type if accelerated and self._machine.admits else asked
        told = {HINT: getattr(openvino.Type, executed), "NUM_STREAMS": 1}
        return {key: told[key] for key in TELLS[self._kind]}

    def get_runtime_model(self) -> Any:
        if self._kind == "NPU":
            # A stand-in of inputs and outputs.
            ports = [*self._real.inputs, *self._real.outputs]
            return SimpleNamespace(get_ops=lambda: [SimpleNamespace(get_rt_info=dict)] * len(ports))
        layers = [dict(op.get_rt_info().items()) for op in self._real.get_runtime_model().get_ops()]
        for layer in layers:
            layer["runtimePrecision"] = self._type
        nodes = [SimpleNamespace(get_rt_info=lambda layer=layer: layer) for layer in layers]
        return SimpleNamespace(get_ops=lambda: nodes)


class Request:
    """A request of the CPU's whose outputs are as exact as the device's numbers."""

    def __init__(self, real: Any, *, rounds: bool) -> None:
        self._real = real
        self._rounds = rounds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def get_tensor(self, port: Any) -> Any:
        import openvino

        found = self._real.get_tensor(port)
        if not self._rounds:
            return found
        return openvino.Tensor(found.data.astype(np.float16).astype(found.data.dtype))
