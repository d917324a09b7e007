"""Programs of ``torch.export`` for compilers that take graphs: read, and counted in FLOPs."""

from __future__ import annotations

import importlib
import json
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ngraphbench.compilers.checks import cause
from ngraphbench.errors import CompileFailed, Unsupported
from ngraphbench.types import Json
from ngraphbench.workload import Workload

__all__ = ["EXPORTED_NOTE", "delegated", "graph_flops", "load_exported", "shared", "written_by"]

EXPORTED_NOTE = "the graph is the one torch.export made of the module, not the module itself"


def load_exported(workload: Workload) -> Any:
    """Return the workload's ``torch.export.ExportedProgram``, with its weights, on the CPU.

    Raises Unsupported (``model-format``) where it was written by another version of torch
    than this one and this one cannot read it, CompileFailed for other faults.
    """
    torch = importlib.import_module("torch")
    path = workload.pt2_path
    try:
        return torch.export.load(str(path))
    except Exception as error:
        writer, here = written_by(path), str(torch.__version__)
        if writer and writer.partition("+")[0] != here.partition("+")[0]:
            raise Unsupported(
                f"torch {here} cannot read the graph that torch {writer} exported: {cause(error)}",
                reason="model-format",
                hint=f"Use the same torch in both environments: {writer} or {here}.",
            ) from error
        raise CompileFailed(
            f"The exported graph cannot be read: {cause(error)}", reason="load-model"
        ) from error


def written_by(path: Path) -> str:
    """Return the version of torch that wrote a ``.pt2``; empty where the file does not tell."""
    with suppress(OSError, ValueError, KeyError, zipfile.BadZipFile), zipfile.ZipFile(path) as file:
        for name in file.namelist():
            if name.endswith("models/model.json"):
                return str(json.loads(file.read(name))["torch_version"])
    return ""


def graph_flops(nodes: Iterable[Any]) -> int:
    """Return the FLOPs of the products and convolutions among nodes of an exported graph.

    Two for each multiply-add, as ``torch.utils.flop_counter`` counts; operators that it does
    not know, such as additions, count nothing.
    """
    return sum(_flops(node) for node in nodes if node.op == "call_function")


def delegated(*, taken: Iterable[Any], left: Iterable[Any], name: str) -> Json:
    """Return the coverage of a delegate from the nodes of exported graphs, taken and left."""
    ours, theirs = _computing(taken), _computing(left)
    return shared(
        flops=(graph_flops(ours), graph_flops(theirs)),
        nodes=(len(ours), len(theirs)),
        fallback_operators=[_operator(node) for node in theirs],
        name=name,
    )


def shared(
    *, flops: tuple[int, int], nodes: tuple[int, int], fallback_operators: Iterable[str], name: str
) -> Json:
    """Return the coverage of a delegate: what it took, and what was left to plain kernels.

    ``flops`` and ``nodes`` are pairs of both. The share is of FLOPs, of nodes in a graph
    without any, None in an empty graph.
    """
    unit, shares = ("flops", flops) if sum(flops) else ("nodes", nodes)
    notes = [EXPORTED_NOTE]
    if not nodes[0]:
        notes.append(f"{name} took no operator: all ran in plain kernels")
    return {
        "share": shares[0] / sum(shares) if sum(shares) else None,
        "unit": unit,
        "parts": {name: nodes[0], "fallback": nodes[1]},
        "fallback_operators": sorted(set(fallback_operators)),
        "notes": notes,
    }


def _computing(nodes: Iterable[Any]) -> list[Any]:
    return [node for node in nodes if node.op == "call_function" and _packet(node) is not None]


def _packet(node: Any) -> Any:
    """Return the operator's overload packet, of an edge operator that of the one it stands for."""
    target = getattr(node.target, "_op", None)
    target = target if hasattr(target, "overloadpacket") else node.target
    return getattr(target, "overloadpacket", None)


def _operator(node: Any) -> str:
    return str(_packet(node)).replace("_ops.", "")


def _flops(node: Any) -> int:
    torch = importlib.import_module("torch")
    counter = importlib.import_module("torch.utils.flop_counter")
    packet = _packet(node)
    values = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    if packet is torch.ops.aten.linear:
        return 2 * int(node.meta["val"].numel()) * int(values[0][1].shape[-1])
    known = counter.flop_registry.get(packet)
    if known is None:
        return 0
    return int(known(*values[0], **values[1], out_val=node.meta["val"]))
