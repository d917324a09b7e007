"""Comparing runs from Python: run directories, or snapshots of them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ngraphbench.analysis.pairing import Pair, Side, paired_cells
from ngraphbench.analysis.regressions import THRESHOLD, RunComparison, compare_runs
from ngraphbench.analysis.tables import Cell, Evidence
from ngraphbench.errors import NGraphBenchError, SpecError, StoreError
from ngraphbench.locks import is_path, request_for
from ngraphbench.plugin import discover, load_compiler
from ngraphbench.store.rundir import RunDir, latest
from ngraphbench.store.samples import read_samples
from ngraphbench.store.snapshot import is_snapshot, read_snapshot, write_snapshot
from ngraphbench.types import Json

if TYPE_CHECKING:
    from ngraphbench.summary import Samples

__all__ = ["compare", "compare_sides", "open_side", "paired_commands", "save_snapshot"]


def compare(
    before: str | Path,
    after: str | Path,
    *,
    threshold: float = THRESHOLD,
    reference: str = "",
    force: bool = False,
) -> RunComparison:
    """Return what changed between two runs, each a run directory or a snapshot's file.

    ``threshold`` is the slow-down, as a share, beyond which a cell that is surely slower is a
    regression. ``reference`` names what every cell is set against; empty: its baseline.
    Raises SpecError where the runs are not alike, unless ``force``, or share no cell;
    StoreError where there is no run.
    """
    sides = open_side(before), open_side(after)
    return compare_sides(*sides, threshold=threshold, reference=reference, force=force)


def compare_sides(
    before: Side, after: Side, *, threshold: float, reference: str = "", force: bool = False
) -> RunComparison:
    """Return what ``compare`` does, of runs that are open."""
    if not (math.isfinite(threshold) and threshold >= 0.0):
        raise SpecError(
            f"A threshold of {threshold:g} means nothing.",
            key="--threshold",
            hint="Give a share such as 0.03 (on the command line, a percentage: 3).",
        )
    found = compare_runs(before, after, threshold=threshold, reference=reference)
    if not found.changes:
        raise SpecError(
            f"The runs share no cell. Before: {_some(found.gone)}. After: {_some(found.new)}.",
            reason="nothing-shared",
            hint="Measure the same models, batch sizes and compilers in both.",
        )
    if reference and all(change.reference != reference for change in found.changes):
        raise SpecError(
            f"No cell can be set against {reference!r} in both runs.",
            key="--reference",
            hint=f"There are {', '.join(dict.fromkeys(c.label for c in found.changes))}.",
        )
    if found.forbidding and not force:
        told = "\n".join(f"  {one.sentence}" for one in found.forbidding)
        raise SpecError(
            f"These runs are not alike:\n{told}\n",
            reason="unlike",
            hint="Measure again under the same conditions, or look all the same with --force.",
        )
    return found


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}" or "nothing"


def open_side(path: str | Path) -> Side:
    """Return a run to compare: of its folder, or of a snapshot's file.

    Raises StoreError where there is none.
    """
    place = Path(path)
    if is_snapshot(place):
        found = read_snapshot(place)
        return Side(Evidence(found.records, found.sessions, found.read), set(found.current))
    if not place.exists():
        raise StoreError(
            f"There is neither a run directory nor a stored run at {place}.",
            reason="no-run",
            hint="Give the folder that `ngb run` or `ngb bench` wrote (--out), or the file that"
            " `ngb compare --save FILE RUN` wrote.",
        )
    records, sessions, current = _stored(place)

    def read(relative: str) -> Samples:
        return read_samples(place / relative)

    return Side(Evidence(records, sessions, read), set(current))


def _stored(place: Path) -> tuple[list[Json], list[Json], list[tuple[str, str]]]:
    """Return the case records of a run directory, its session records, and which cells count."""
    records = RunDir.open(place).records()
    cases, sessions = ([r for r in records if r["kind"] == kind] for kind in ("case", "session"))
    return cases, sessions, [(r["session_id"], r["case_id"]) for r in latest(records)]


def save_snapshot(run: str | Path, path: str | Path) -> Path:
    """Write what comparing needs of a run directory as one file, and return its path.

    Raises StoreError where there is no run, or the file cannot be written.
    """
    place = Path(run)
    cases, sessions, current = _stored(place)
    if not current:
        raise StoreError(
            f"{place} holds no record yet.", reason="no-run", hint="Wait for its first cells."
        )
    return write_snapshot(
        Path(path), cases, sessions, lambda name: read_samples(place / name), current=current
    )


def paired_commands(before: Side, after: Side) -> list[str]:
    """Return commands that measure both versions of what was compared side by side.

    Only for compilers of which both versions can be had: those with an environment of their own
    in which a version can be pinned.
    """
    wanted: dict[tuple[str, str, str, str], list[int]] = {}
    for pair in paired_cells(before, after).pairs:
        for key in _both_versions(pair):
            batches = wanted.setdefault(key, [])
            batches += [batch for batch in [_batch(pair)] if batch not in batches]
    return [
        f"ngb bench {shlex.quote(model)} -c {shlex.quote(old)} -c {shlex.quote(new)}"
        f" -b {','.join(map(str, sorted(batches)))} --profile {profile}"
        for (model, old, new, profile), batches in wanted.items()
    ]


def _batch(pair: Pair) -> int:
    return int(pair.after.record["case"]["batch"])


def _both_versions(pair: Pair) -> Iterator[tuple[str, str, str, str]]:
    case = pair.after.record["case"]
    compiler = case["compiler"]
    try:
        plugin = load_compiler(discover().get(compiler["name"], compiler["target"]))
        main = next(iter(plugin.packages), "")
        old, new = (_version(cell, main) for cell in (pair.before, pair.after))
        if not main or not old or not new or old == new:
            return
        for version in (old, new):
            lock = plugin.environment or plugin.name
            request_for(lock, distributions=plugin.packages, version=version)
    except NGraphBenchError:
        return
    rest = pair.after.compiler.partition(":")[2]
    texts = [f"{compiler['name']}@{v}{f':{rest}' if rest else ''}" for v in (old, new)]
    yield case["model"]["source"], texts[0], texts[1], pair.after.record["profile"]


def _version(cell: Cell, distribution: str) -> str:
    pinned = str(cell.record["case"]["compiler"]["version"])
    if is_path(pinned):
        return ""
    packages = cell.record["environment"].get("packages", {})
    return pinned or str(packages.get(distribution, "")).partition("+")[0]
