"""OpenVINO's devices: which there are, what each is told, and what each made of a model.

Reached for from ``openvino`` alone. GPU and NPU: not yet run on hardware, written after
https://docs.openvino.ai/2026/openvino-workflow/running-inference/inference-devices-and-modes.html
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ngraphbench.compilers.checks import cause
from ngraphbench.compilers.nncf_int8 import PRODUCTS
from ngraphbench.errors import Unavailable, Unsupported
from ngraphbench.types import INT8, VENDOR_DEFAULT, Device, Json, OptionValue

__all__ = [
    "CACHE_VARIABLE",
    "DEVICES",
    "PRECISIONS",
    "check_executed",
    "check_shapes",
    "device_facts",
    "layer_types",
    "places_for",
    "planned_parts",
    "settings_for",
    "target_of",
]

CPU, GPU, NPU = "CPU", "GPU", "NPU"
DEVICES: Mapping[str, str] = {"cpu": CPU, "intel-gpu": GPU, "npu": NPU}
"""What OpenVINO calls the accelerators."""

HINT, NAME = "INFERENCE_PRECISION_HINT", "FULL_DEVICE_NAME"
CACHE_VARIABLE = "NGRAPHBENCH_OPENVINO_CACHE"
SETUP = "https://docs.openvino.ai/2026/get-started/install-openvino/configurations"
CURES = {
    GPU: "Install Intel's compute runtime and libOpenCL.so.1"
    f" ({SETUP}/configurations-intel-gpu.html); the user needs /dev/dri/renderD* (group render).",
    NPU: f"Install Intel's NPU driver ({SETUP}/configurations-intel-npu.html), on Linux 6.6 or"
    " newer; the user needs /dev/accel/accel* (group render).",
}

# Precision to the type of the hint, and what the device must then be capable of.
PRECISIONS = {"fp32": ("f32", "FP32"), "fp16": ("f16", "FP16"), "bf16": ("bf16", "BF16")}
PRECISIONS |= {INT8: ("f32", "INT8")}
NARROWER = {"f32": ("f16", "bf16"), "f16": ("bf16",), "bf16": ("f16",)}
"""Types in which nothing may be multiplied where another was asked for."""


def places_for(core: Any, device: Device, options: Mapping[str, OptionValue]) -> tuple[str, ...]:
    """Return OpenVINO's names of the devices that may run a model, the one asked for first.

    Raises Unavailable, with what to install, where OpenVINO finds no such device.
    """
    kind, number = DEVICES[device.accelerator], int(options.get("device_id", 0))
    if kind == CPU:
        # To ask what else is there would load the drivers of all that is.
        return (CPU,)
    name = f"{kind}.{number}" if number else kind
    there = [str(one) for one in core.available_devices]
    if not any(_is(one, name) for one in there):
        others = any(_is(one, kind) for one in there)
        raise Unavailable(
            f"OpenVINO finds no {name} here, but {', '.join(there)}.{_why(core, kind)}",
            reason="no-device",
            hint="Choose another device_id." if others else CURES.get(kind, ""),
        )
    return (name, CPU) if options.get("fallback", False) else (name,)


def target_of(places: Sequence[str]) -> str:
    """Return what a model is compiled for: the device alone, or HETERO, which shares it out."""
    return places[0] if len(places) == 1 else f"HETERO:{','.join(places)}"


def settings_for(
    core: Any,
    places: Sequence[str],
    *,
    precision: str,
    device: Device,
    options: Mapping[str, OptionValue],
) -> Json:
    """Return the properties to compile with. Raises Unsupported for what a device does not do."""
    if len(places) > 1 and options.get("hint") == "throughput":
        raise Unsupported(
            "OpenVINO cannot be kept from changing batches with both fallback and hint=throughput.",
            reason="option",
            hint="Leave out one of them.",
        )
    each = {
        name: _settings(core, name, precision=precision, device=device, options=options)
        for name in places
    }
    settings: Json = each[places[0]] if len(each) == 1 else {"DEVICE_PROPERTIES": each}
    if len(each) == 1 and _is(places[0], GPU):
        # Left alone, one told to aim at throughput collects requests into larger batches.
        settings["ALLOW_AUTO_BATCHING"] = False
    if options.get("cache", False):
        settings["CACHE_DIR"] = _cache_folder()
    return settings


def check_shapes(model: Any, places: Sequence[str]) -> None:
    """Return None unless a shape of the model is open on a device that takes none such."""
    if _is(places[0], NPU) and model.is_dynamic():
        raise Unsupported(
            "OpenVINO's NPU takes static shapes alone; some of this model's depend on its inputs.",
            reason="dynamic-shape",
            hint="Export it with fixed shapes, or measure it on the CPU or the GPU.",
        )


def planned_parts(core: Any, model: Any, places: Sequence[str], settings: Json) -> Json:
    """Return how many of the model's operations each device takes, by its own word.

    Empty where there is one device, which takes a model whole or refuses it.
    """
    if len(places) == 1:
        return {}
    taken = core.query_model(model, target_of(places), settings)
    left_out = ("Parameter", "Constant", "Result")
    counted = Counter(
        _place_of(str(taken.get(op.get_friendly_name(), "")), places)
        for op in model.get_ops()
        if op.get_type_name() not in left_out
    )
    return dict(sorted(counted.items()))


def check_executed(compiled: Any, places: Sequence[str], settings: Json) -> None:
    """Return None if the devices and the precision are those asked for, else raise Unsupported."""
    others = [one for one in _executed(compiled) if _place_of(one, places) not in places]
    if others:
        raise Unsupported(
            f"OpenVINO put the model on {', '.join(others)}, not on {', '.join(places)}.",
            reason="device",
        )
    asked = settings.get("DEVICE_PROPERTIES") or {places[0]: settings}
    wanted = {name: str(each.get(HINT, "")) for name, each in asked.items()}
    for name, told in _told(compiled, places).items():
        found = _text(told.get(HINT, ""))
        if found and wanted.get(name, "") not in ("", found):
            raise _other_precision(found, wanted[name], name)
    if places[0] == CPU:
        # It takes the hint at its word, and its layers take time to list.
        return
    products = {kind for layer, kind in layer_types(compiled) if layer in PRODUCTS}
    narrower = sorted(products.intersection(NARROWER.get(wanted[places[0]], ())))
    if narrower:
        raise _other_precision(", ".join(narrower), wanted[places[0]], places[0])


def device_facts(core: Any, compiled: Any, places: Sequence[str], parts: Json) -> Json:
    """Return what ran where and how, for the coverage."""
    told = _told(compiled, places).get(places[0], {})
    numbers = {"threads": "INFERENCE_NUM_THREADS", "streams": "NUM_STREAMS"}
    facts: Json = {
        # Alone, a device takes a model whole or refuses it.
        "share": parts.get(places[0], 0) / max(sum(parts.values()), 1) if parts else 1.0,
        "unit": "nodes",
        "devices": _executed(compiled),
        "precision_hint": _text(told.get(HINT, "")),
    }
    if parts:
        facts["parts"] = parts
    if places[0] != CPU and NAME in core.get_property(places[0], "SUPPORTED_PROPERTIES"):
        facts["device_name"] = str(core.get_property(places[0], NAME))
    return facts | {key: int(told[name]) for key, name in numbers.items() if name in told}


def layer_types(compiled: Any) -> list[tuple[str, str]]:
    """Return kind and executed precision of each layer, as far as the device tells."""
    infos = [node.get_rt_info() for node in compiled.get_runtime_model().get_ops()]
    return [(_value(info, "layerType"), _value(info, "runtimePrecision")) for info in infos]


def _settings(
    core: Any,
    name: str,
    *,
    precision: str,
    device: Device,
    options: Mapping[str, OptionValue],
) -> Json:
    settings: Json = {"PERFORMANCE_HINT": str(options.get("hint", "latency")).upper()}
    hint = _precision_hint(core, name, precision)
    streams = int(options.get("num_streams", 1))
    if not _is(name, NPU):
        # Left alone a CPU takes bf16 where it has it, and a GPU fp16.
        settings[HINT] = hint
        if not options.get("dynamic_quantization", False):
            # Left alone it rounds activations to int8 wherever weights are: 3 % off, not fp32.
            settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
        if streams:
            settings["NUM_STREAMS"] = streams
    elif HINT in core.get_property(name, "SUPPORTED_PROPERTIES"):
        # Older drivers do not have it, and all compute in fp16.
        settings[HINT] = hint
    if name == CPU and device.threads != VENDOR_DEFAULT:
        settings["INFERENCE_NUM_THREADS"] = device.threads
        settings["ENABLE_CPU_PINNING"] = False
        # With one thread per core only, it would use fewer threads than asked.
        settings["ENABLE_HYPER_THREADING"] = True
    return settings


def _precision_hint(core: Any, name: str, precision: str) -> str:
    hint, capability = PRECISIONS[precision]
    capabilities = core.get_property(name, "OPTIMIZATION_CAPABILITIES")
    if capability not in capabilities:
        raise Unsupported(
            f"OpenVINO would not run {precision} on this {name}; it can {', '.join(capabilities)}.",
            reason="precision",
            hint=f"Ask for another: --precision {' or '.join(_precisions_of(capabilities))}.",
        )
    # What a quantised model leaves in floats runs in those that the device has.
    return "f16" if precision == INT8 and "FP32" not in capabilities else hint


def _precisions_of(capabilities: Iterable[str]) -> list[str]:
    return [name for name, (_, needed) in PRECISIONS.items() if needed in capabilities]


def _cache_folder() -> str:
    folder = os.environ.get(CACHE_VARIABLE, "")
    if not folder:
        raise Unsupported(
            "OpenVINO has no folder to cache models in.",
            reason="cache",
            hint=f"Set {CACHE_VARIABLE} to a folder.",
        )
    return folder


def _is(found: str, name: str) -> bool:
    """Return whether a device is the one named: ``GPU`` is any ``GPU.0``."""
    return found == name or found.startswith(f"{name}.")


def _place_of(found: str, places: Sequence[str]) -> str:
    """Return which of the places a device is, itself if it is none of them."""
    return next((name for name in places if _is(found, name)), found)


def _why(core: Any, kind: str) -> str:
    """Return the vendor's own words where it cannot look for such devices."""
    try:
        core.get_property(kind, "AVAILABLE_DEVICES")
    except Exception as error:
        last = cause(error, lines=20).splitlines()[-1]
        return f" {last.rpartition('/')[2]}"
    return ""


def _executed(compiled: Any) -> list[str]:
    found = compiled.get_property("EXECUTION_DEVICES")
    return [found] if isinstance(found, str) else [str(one) for one in found]


def _told(compiled: Any, places: Sequence[str]) -> dict[str, Json]:
    """Return what each device says of its part, by its name, as far as it knows."""
    if len(places) > 1:
        each = compiled.get_property("DEVICE_PROPERTIES")
        return {_place_of(str(name), places): dict(told) for name, told in each.items()}
    names = (HINT, "INFERENCE_NUM_THREADS", "NUM_STREAMS")
    known = compiled.get_property("SUPPORTED_PROPERTIES")
    return {places[0]: {name: compiled.get_property(name) for name in names if name in known}}


def _other_precision(found: str, wanted: str, name: str) -> Unsupported:
    return Unsupported(
        f"OpenVINO's {name} computes in {found}, where {wanted} was asked for.",
        reason="precision",
        hint="A number in another precision would not be comparable; ask for that one.",
    )


def _value(info: Any, key: str) -> str:
    """Return a fact about a layer, empty where its device does not tell it."""
    return str(getattr(info[key], "value", info[key])) if key in info else ""


def _text(found: Any) -> str:
    return found.get_type_name() if hasattr(found, "get_type_name") else str(found)
