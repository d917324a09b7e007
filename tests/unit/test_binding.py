"""A worker on its CPUs and its memory, bound before anything of a vendor is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import machines
import pytest

from ngraphbench.errors import Unavailable
from ngraphbench.types import Json
from ngraphbench.worker.binding import bind

HERE = min(os.sched_getaffinity(0))


def bound(nodes: Path | None, cpus: list[int]) -> Json:
    """What ``bind`` says in a process of its own, which it changes for good."""
    code = (
        "import json, sys; from pathlib import Path; from ngraphbench.worker.binding import bind;"
        "nodes, cpus = json.loads(sys.argv[1]);"
        "print(json.dumps(bind(cpus, **({'nodes': Path(nodes)} if nodes else {}))))"
    )
    arguments = json.dumps([str(nodes) if nodes else None, cpus])
    done = subprocess.run(
        [sys.executable, "-c", code, arguments], capture_output=True, text=True, check=True
    )
    answer: Json = json.loads(done.stdout)
    return answer


def nodes(root: Path, *lists: str) -> Path:
    machines.write(root, {f"node{number}/cpulist": text for number, text in enumerate(lists)})
    return root


def test_the_cpus_of_a_worker() -> None:
    assert bound(None, [HERE])["cpus"] == [HERE]


def test_no_set_leaves_everything() -> None:
    assert bind(()) == {"cpus": [], "memory": "not bound: no CPU set"}


def test_cpus_that_cannot_be_had() -> None:
    with pytest.raises(Unavailable, match="cannot be bound"):
        bind((100_000,))


def test_one_node_needs_no_binding(tmp_path: Path) -> None:
    assert "one NUMA node" in bound(nodes(tmp_path, "0-63"), [HERE])["memory"]


def test_a_set_over_two_nodes_is_not_bound(tmp_path: Path) -> None:
    others = sorted(os.sched_getaffinity(0) - {HERE})
    if not others:
        pytest.skip("A set of two CPUs needs two CPUs, and this process may use one.")
    other = others[0]
    made = nodes(tmp_path, str(HERE), str(other))
    assert "2 NUMA nodes" in bound(made, [HERE, other])["memory"]


def test_memory_of_the_node_beside_the_set(tmp_path: Path) -> None:
    said = bound(nodes(tmp_path / "here", f"{HERE}-63", "64-127"), [HERE])["memory"]
    # A container's filter may refuse the call, a kernel lack it, and its number be unknown on
    # this architecture: then that is said, and the fault is not with the nodes.
    refused = said.startswith("not bound: ") and "NUMA" not in said
    assert said == "bound to NUMA node 0" or refused
    none = bound(nodes(tmp_path / "none", "64-127", f"{HERE}-63"), [HERE])["memory"]
    real = len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
    if said == "bound to NUMA node 0" and real == 1:
        # This machine has no second node, and the kernel says so.
        assert none == "not bound: Invalid argument"


def test_a_worker_is_bound_before_its_compiler_is_imported(tmp_path: Path) -> None:
    plugin = """
import os
from ngraphbench.plugin import Compiler
from ngraphbench.types import Support
SEEN = sorted(os.sched_getaffinity(0))
class Late(Compiler):
    name, accepts = "late", ("onnx",)
    def probe(self, device):
        return Support(ok=True, version=",".join(map(str, SEEN)))
    def compile(self, workload, device, options):
        raise AssertionError("No program is wanted.")
"""
    (tmp_path / "late_plugin.py").write_text(plugin)
    code = (
        "import sys; from ngraphbench.worker.loop import Worker; w = Worker();"
        f"hello = w.hello({{'plugin': 'late_plugin:Late', 'device': {{'cpus': [{HERE}]}},"
        f" 'search_path': [{str(tmp_path)!r}]}});"
        "assert 'late_plugin' not in sys.modules;"
        "print(hello['binding']['cpus'], w.import_compiler({})['version'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"[{HERE}]", str(HERE)]
