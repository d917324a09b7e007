"""Many workloads under one compiler in one process: ``one_process.py OUT TARGET ROOT...``.

An Inductor that starts anew for each module takes a quarter of a minute each; here torch is
imported once and its header compiled once. ``OUT`` gets what each workload came to, by model.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from in_this_process import InThisProcess

from ngraphbench.case import Case, CompilerRef, Limits, ModelRef
from ngraphbench.plugin import load_compiler, resolve_options
from ngraphbench.session.export import load_references
from ngraphbench.session.resident import Resident, Stopped
from ngraphbench.session.state import CaseState
from ngraphbench.types import Device, Json

BATCH = 2


def outcome(root: Path, target: str, scratch: Path) -> tuple[str, Json]:
    """Return the model's label, and status, reason, message and verification of its cell."""
    model = ModelRef.from_json(json.loads((root / "workload.json").read_text())["model"])
    plugin = load_compiler(target)
    compiler = CompilerRef(plugin.name, target, resolve_options(plugin, {}))
    case = Case(model=model, compiler=compiler, device=Device(threads=1), batch=BATCH)
    state = CaseState()
    references = load_references(root, BATCH)
    resident = Resident(case, state, Limits(), InThisProcess, root, scratch, references)
    try:
        resident.prepare()
        resident.check_after()
        state.status = "ok"
    except Stopped as stopped:
        state.fail(stopped.error, stopped.stage)
    told = {"status": state.status, "reason": state.reason, "message": state.message}
    return model.label, told | {"verification": state.verification}


def main(out: Path, target: str, roots: list[Path]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        found = dict(outcome(root, target, Path(scratch)) for root in roots)
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], [Path(text) for text in sys.argv[3:]])
