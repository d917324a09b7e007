"""Every compiler in its own environment: made, put to its suite, and measured side by side.

    python benchmarks/compilers.py [--only iree,xla] [--skip-suites] [--write]

One row a compiler: what its environment weighs and took to make, whether the conformance suite
passes inside it, and for each network how long it compiles and how many times as fast as eager
it is, in both of its presets, all of one interleaved session per network. Read it so: a speed-up
holds for this machine, these versions and batch 1; "-" was not measured, and the word beside it
says why. ``--write`` puts the table into docs/compilers.md. Environments stay (``ngb env list``),
and are made anew only where they are not whole. All of them take 21 GB, and the tuning of TVM
eight minutes per network.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from ngraphbench import api
from ngraphbench.environments.managed import Environment, provided
from ngraphbench.errors import NGraphBenchError
from ngraphbench.locks import lock_names, request_for
from ngraphbench.plugin import Compiler, discover, load_compiler
from ngraphbench.records import FAILURES
from ngraphbench.testing.elsewhere import run_suite
from ngraphbench.types import Json

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "compilers.md"
MARKS = ("<!-- compilers: begin -->", "<!-- compilers: end -->")
MODELS = {"ResNet-18": "timm:resnet18", "DeiT-Tiny": "timm:deit_tiny_patch16_224"}
PRESETS = ("shipped", "recommended")
EXPECTED = {
    ("mnn", "DeiT-Tiny", "shipped"): "wrong: MNN takes every GELU for its tanh approximation",
}
"""Cells that are known not to end well, and why; one that does all the same is a fault here."""
BASELINE = "eager"


@dataclass(slots=True)
class Row:
    """What became of one compiler; ``cells`` are records by model and preset."""

    name: str
    lock: str
    environment: Environment | None = None
    problem: str = ""
    suite: str = "not run"
    cells: dict[tuple[str, str], Json] = field(default_factory=dict)


def plugins(only: Sequence[str]) -> dict[str, Compiler]:
    """Return the compilers that have a lock, by name; the baseline is always among them."""
    found = {name: load_compiler(target) for name, target in discover().items()}
    locked = {n: c for n, c in found.items() if (c.environment or n) in lock_names()}
    return {n: c for n, c in locked.items() if not only or n in only or n == BASELINE}


def provide(rows: dict[str, Row]) -> None:
    """Make the environments that are not there."""
    for row in rows.values():
        print(f"{row.name}: environment {row.lock}", flush=True)
        try:
            with provided(
                request_for(row.lock), observe=lambda text: print(f"  {text}", flush=True)
            ) as made:
                row.environment = made
        except NGraphBenchError as error:
            row.problem = str(error).splitlines()[0]
            print(f"  {error}")


def examine(rows: dict[str, Row]) -> None:
    """Run each lock's conformance suite inside its environment."""
    told: dict[str, str] = {}
    for row in rows.values():
        suite = ROOT / "tests" / "contract" / f"test_{row.lock}.py"
        if row.environment is None or not suite.exists():
            continue
        if row.lock not in told:
            print(f"{row.lock}: conformance suite", flush=True)
            told[row.lock] = suite_outcome(row.environment.python, suite)
        row.suite = told[row.lock]


def suite_outcome(python: Path, suite: Path) -> str:
    """Return how a suite went; one in which nearly all is skipped has not passed."""
    with tempfile.TemporaryDirectory(prefix="ngb-suite-") as folder:
        report = Path(folder) / "report.xml"
        run_suite(python, suite, arguments=["-q", "--no-header", f"--junitxml={report}"])
        whole = ElementTree.parse(report).getroot().find("testsuite")
    assert whole is not None
    count = {name: int(whole.get(name, 0)) for name in ("tests", "skipped", "failures", "errors")}
    bad = count["failures"] + count["errors"]
    passed = count["tests"] - count["skipped"] - bad
    if bad:
        return f"FAILS ({bad} of {count['tests']})"
    if passed < count["skipped"]:
        return "not available"
    return f"{passed} passed, {count['skipped']} skipped"


def measure(rows: dict[str, Row], compilers: dict[str, Compiler], *, out: Path) -> list[Json]:
    """Return the records of one experiment over all compilers and presets."""
    lines = [
        *("name: compilers", "models:", *(f"  - {text}" for text in MODELS.values())),
        *("batch_sizes: [1]", "environments: managed", "measure: {profile: quick}"),
        *("limits: {compile: 15min, cell: 20min}", "compilers:"),
    ]
    for row in rows.values():
        if row.environment is not None:
            lines += [f"  - {text}" for text in _candidates(row.name, compilers[row.name])]
    path = out / "experiment.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return api.run(path, out=out / "run").records()


def _candidates(name: str, compiler: Compiler) -> Iterator[str]:
    if "preset" not in {option.name for option in compiler.options}:
        yield name
        return
    for preset in PRESETS:
        yield f"{{{name}: {{preset: {preset}}}}}"


def place(rows: dict[str, Row], records: Sequence[Json]) -> None:
    """Give each record to its row; a compiler without presets has one for both."""
    titles = {text: title for title, text in MODELS.items()}
    for record in records:
        case = record["case"]
        name = case["compiler"]["name"]
        model = titles.get(case["model"]["source"])
        if name not in rows or model is None:
            continue
        preset = case["compiler"]["options"].get("preset")
        for key in PRESETS if preset is None else (preset,):
            rows[name].cells[model, key] = record


def table(rows: dict[str, Row]) -> str:
    """Return the rows as a Markdown table."""
    heads = ["compiler", "version", "environment", "suite"]
    for model in MODELS:
        heads += [f"{model}: compile, s", f"{model}: speed-up as shipped", "recommended"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *(_line(row) for row in rows.values())])


def _line(row: Row) -> str:
    version = next(
        (v for r in row.cells.values() if (v := r["environment"].get("compiler_version"))), "-"
    )
    made = row.problem or "-"
    if row.environment is not None:
        about = row.environment.about
        made = f"{about['size_bytes'] / 1e6:.0f} MB, {about['seconds']:.0f} s ({row.lock})"
    columns = [row.name, version, made, row.suite]
    for model in MODELS:
        cells = [row.cells.get((model, preset)) for preset in PRESETS]
        columns += [_compile(cells[1]), *map(_speed, cells)]
    return "| " + " | ".join(columns) + " |"


def _compile(record: Json | None) -> str:
    seconds = (record or {}).get("costs", {}).get("compile_cold_s")
    return "-" if seconds is None else f"{seconds:.1f}"


def _speed(record: Json | None) -> str:
    if record is None:
        return "- (not run)"
    summary = record["summary"]
    if summary is None:
        return f"- ({record['status']}: {record['reason']})"
    paired = summary["vs_baseline"]
    if paired is None:
        return "baseline"
    flags = {flag["flag"] for flag in record["flags"]} & {"partly-compiled"}
    said = "".join(f", {flag}" for flag in sorted(flags))
    said += "" if record["status"] == "ok" else f", {record['status']}"
    return f"{paired['estimate']:.2f} ({paired['low']:.2f}-{paired['high']:.2f}){said}"


def faults_of(rows: dict[str, Row]) -> Iterator[str]:
    """Yield what did not end as it must: a suite that fails, a cell that is wrong or died."""
    for row in rows.values():
        if row.suite.startswith("FAILS"):
            yield f"{row.name}: the conformance suite {row.suite}"
        for (model, preset), record in row.cells.items():
            expected = EXPECTED.get((row.name, model, preset), "")
            bad = record["status"] if record["status"] in FAILURES else ""
            if bad != expected.partition(":")[0]:
                yield f"{row.name}, {model}, {preset}: {record['status']} {record['message'][:200]}"


def write_page(text: str) -> None:
    """Put the table between its marks, or at the end of the page."""
    page = PAGE.read_text(encoding="utf-8")
    begin, end = MARKS
    block = f"{begin}\n{text}\n{end}"
    if begin in page:
        page = page[: page.index(begin)] + block + page[page.index(end) + len(end) :]
    else:
        page = f"{page.rstrip()}\n\n{block}\n"
    PAGE.write_text(page, encoding="utf-8")


def main() -> int:
    """Return 1 when a suite fails, or a cell is wrong or crashed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="compilers, with commas")
    parser.add_argument("--skip-suites", action="store_true")
    parser.add_argument("--write", action="store_true", help="put the table into docs")
    parser.add_argument("--out", type=Path, help="keep the run here")
    given = parser.parse_args()
    compilers = plugins([name for name in given.only.split(",") if name])
    rows = {name: Row(name, one.environment or name) for name, one in compilers.items()}
    provide(rows)
    if not given.skip_suites:
        examine(rows)
    with tempfile.TemporaryDirectory(prefix="ngb-compilers-") as folder:
        out = given.out or Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        place(rows, measure(rows, compilers, out=out))
    print(f"\n{table(rows)}\n")
    faults = list(faults_of(rows))
    print(json.dumps({"compilers": len(rows), "faults": faults}))
    if given.write:
        write_page(table(rows))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
