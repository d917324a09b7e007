"""What Dynamo took into graphs, of which Inductor then compiles all."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["captured_share", "counted_flops", "dynamo_counts", "recompile_limit"]


def dynamo_counts() -> dict[str, int]:
    """Return how many graphs, graph breaks and recompile limits this process has seen."""
    counters = importlib.import_module("torch._dynamo.utils").counters
    return {
        "graphs": int(counters["stats"]["unique_graphs"]),
        "breaks": int(sum(counters["graph_break"].values())),
        "limits": sum(
            int(count)
            for why, count in counters["unimplemented"].items()
            if "recompile limit" in str(why).lower()
        ),
    }


def recompile_limit() -> int:
    """Return how many versions of one function Dynamo compiles before it leaves it to eager."""
    return int(importlib.import_module("torch._dynamo.config").recompile_limit)


def captured_share(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float | None:
    """Return the share of the module's FLOPs that Dynamo has in its graphs, 0 to 1.

    None where torch counts none. Matrix products and convolutions are counted, by
    ``torch.utils.flop_counter``. Forgets what was compiled: the next call compiles anew.
    """
    import torch

    # The counter hooks into autograd's modules, which inference mode has no part in.
    with torch.inference_mode(False), torch.no_grad():
        own = [_plain(value) for value in args]
        named = {name: _plain(value) for name, value in kwargs.items()}
        total = _flops(module, own, named)
        explained = importlib.import_module("torch._dynamo").explain(module)(*own, **named)
        captured = sum(_flops_of_graph(graph) for graph in explained.graphs)
    return min(1.0, captured / total) if total else None


def _plain(value: Any) -> Any:
    import torch

    return value.clone() if isinstance(value, torch.Tensor) else value


def counted_flops(call: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Return the FLOPs of products and convolutions that torch itself runs in a call."""
    import torch

    with torch.inference_mode(False), torch.no_grad():
        named = {name: _plain(value) for name, value in kwargs.items()}
        return _flops(call, [_plain(value) for value in args], named)


def _flops(call: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        call(*args, **kwargs)
    return int(counter.get_total_flops())


def _flops_of_graph(graph: Any) -> int:
    holders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    values = [node.meta["example_value"] for node in holders]
    with importlib.import_module("torch._guards").detect_fake_mode(values):
        return _flops(graph, values, {})
