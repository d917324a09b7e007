"""Writes the ONNX cases: ``python -m tests.cases.onnx_cases OUT [--big]``.

Next to the graphs of ``onnx_graphs`` and ``onnx_oddities`` come files that are wrong as files:
external data in good and bad places, truncated and empty ones. ``OUT/cases.json`` says for
each case its ``file``, ``valid``, ``feed`` and ``expect``, the right behaviour.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from onnx import ModelProto, TensorProto

from tests.cases import onnx_graphs, onnx_oddities
from tests.cases.onnx_building import GRAPHS, constant, fed, model, node, normal, value

__all__ = ["external_model", "external_tensor", "write_cases"]

# Importing a module of graphs adds its cases to GRAPHS.
_MODULES = (onnx_graphs, onnx_oddities)

BIG_ROWS = 150_000_000


def write_cases(out: Path, *, big: bool = False) -> dict[str, dict[str, Any]]:
    """Write every case under ``out`` and return them by name, with absolute ``file`` paths.

    ``big`` adds a model with 2.4 GB of external data, sparse on disk.
    """
    out.mkdir(parents=True, exist_ok=True)
    cases: dict[str, dict[str, Any]] = {}
    for graph in GRAPHS:
        path = out / f"{graph.name}.onnx"
        path.write_bytes(graph.build().SerializeToString())
        cases[graph.name] = _entry(path, graph.valid, graph.feed, graph.expect)
    for write in (_external, _corrupt, *((_big,) if big else ())):
        write(out, cases)
    text = {name: {**case, "file": str(Path(case["file"]).relative_to(out))}
            for name, case in cases.items()}  # fmt: skip
    (out / "cases.json").write_text(json.dumps(text, indent=1, ensure_ascii=False))
    return cases


def _entry(path: Path, valid: bool | None, feed: dict[str, Any], expect: str) -> dict[str, Any]:
    return {"file": str(path), "valid": valid, "feed": feed, "expect": expect}


def _external(out: Path, cases: dict[str, dict[str, Any]]) -> None:
    """Write models with their weights in another file: beside them, elsewhere, nowhere."""
    weights = normal(8, 4).tobytes()
    (out / "secret_outside.bin").write_bytes(weights)
    odd = "w weights \u00e9.bin"
    outside = str(out.absolute() / "secret_outside.bin")
    for name, folder, location, valid, expect in (
        ("external_ok", "external_ok", "w.bin", True, "Load by path, not by bytes."),
        ("external_odd_dir", "dir with space \u6a21\u578b", odd, True, "Any name works."),
        ("external_traversal", "external_traversal", "../secret_outside.bin", False, "Refuse."),
        ("external_absolute", "external_absolute", outside, False, "Refuse."),
        ("external_missing", "external_missing", "nowhere.bin", False, "Name the data file."),
    ):
        path = out / folder / f"{name}.onnx"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(external_model(location).SerializeToString())
        if valid:
            (path.parent / location).write_bytes(weights)
        cases[name] = _entry(path, valid, {"x": fed(["B", 8])}, expect)


def external_model(location: str) -> ModelProto:
    """Return a model whose 128 bytes of weights lie in another file."""
    tensor = external_tensor("w", [8, 4], location)
    made = model([node("MatMul", ["x", "w"], ["y"])], [value("x", shape=["N", 8])],
                 [value("y", shape=["N", 4])])  # fmt: skip
    made.graph.initializer.append(tensor)
    return made


def external_tensor(name: str, dims: list[int], location: str) -> TensorProto:
    """Return a tensor of floats that lies in another file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (
        ("location", location),
        ("offset", "0"),
        ("length", str(4 * dims[0] * dims[1])),
    ):
        tensor.external_data.add(key=key, value=text)
    return tensor


def _corrupt(out: Path, cases: dict[str, dict[str, Any]]) -> None:
    whole = model([node("MatMul", ["x", "w"], ["y"])], [value("x", shape=["N", 64])],
                  [value("y", shape=["N", 64])], [constant("w", normal(64, 64))])  # fmt: skip
    bare = onnx_oddities.trivially_fast()
    bare.ClearField("graph")
    for name, data, expect in (
        ("corrupt_truncated", whole.SerializeToString()[:5000], "Not a valid file: one message."),
        ("corrupt_empty", b"", "Empty file: one message (an empty protobuf parses)."),
        ("corrupt_text", b"<!DOCTYPE html><title>404</title>", "Not a model: one message."),
        ("corrupt_no_graph", bare.SerializeToString(), "No graph inside: one message."),
        ("lfs_pointer", b"version https://git-lfs.github.com/spec/v1\noid", "Say git lfs pull."),
    ):
        path = out / f"{name}.onnx"
        path.write_bytes(data)
        cases[name] = _entry(path, False, {"x": fed(["B", 1])}, expect)


def _big(out: Path, cases: dict[str, dict[str, Any]]) -> None:
    path = out / "external_over_2gb" / "external_over_2gb.onnx"
    path.parent.mkdir(exist_ok=True)
    ids, y = value("ids", TensorProto.INT64, ["N"]), value("y", shape=["N", 4])
    made = model([node("Gather", ["E", "ids"], ["y"])], [ids], [y])
    made.graph.initializer.append(external_tensor("E", [BIG_ROWS, 4], "E.bin"))
    path.write_bytes(made.SerializeToString())
    with (path.parent / "E.bin").open("wb") as file:
        file.truncate(BIG_ROWS * 16)
    cases["external_over_2gb"] = _entry(
        path, True, {"ids": fed(["B"], "int:0:1000", "int64")}, "Never serialise it whole."
    )


def main(arguments: list[str]) -> None:
    places = [text for text in arguments if not text.startswith("-")]
    if len(places) != 1:
        raise SystemExit("usage: python -m tests.cases.onnx_cases OUT [--big]")
    print(len(write_cases(Path(places[0]), big="--big" in arguments)), "cases")


if __name__ == "__main__":
    main(sys.argv[1:])
