"""One command over several models, each record of which is as a record must be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from case_expectations import Expected
from command_line import ngb, records
from steady import as_steady

from ngraphbench import api
from ngraphbench.records import STATUSES
from ngraphbench.types import Json

__all__ = ["TORCH_CASES", "bench", "check_record"]

TORCH_CASES = Path(__file__).parents[1] / "cases" / "torch_cases.py"


def bench(
    models: Sequence[object], *, folder: Path, out: str, options: Sequence[str]
) -> Iterator[Json]:
    """Yield the records of one command, each of which is as a record must be."""
    common = ("--profile", "quick", "--memory", "2GiB", "--json", "-o", out)
    done = ngb("bench", *models, *options, *common, cwd=folder, short=True)
    found = records(done)
    assert done.returncode == api.Run.open(folder / out).exit_code(), done.stderr
    assert found and done.stderr.count("\n") <= 2, done.stderr
    for record in map(as_steady, found):
        assert record["status"] in STATUSES
        assert bool(record["message"]) == (record["status"] != "ok"), record["message"]
        assert record["status"] == "ok" or record["reason"]
        assert "Traceback" not in record["message"] and "src/" not in record["message"][:80]
        assert bool(record["summary"]) == (record["status"] in ("ok", "unverifiable"))
        yield record


def check_record(record: Json, expected: Expected) -> None:
    """Hold a record against what it must come to."""
    who = (record["case"]["model"]["label"], record["case"]["batch"], record["label"])
    assert record["status"] in (expected.statuses or (expected.status,)), (who, record["message"])
    if not expected.statuses:
        assert record["reason"] == expected.reason, who
    assert expected.words in record["message"], (who, record["message"])
    flags = {flag["flag"] for flag in record["flags"]}
    assert flags >= set(expected.flags), (who, flags)
    assert not flags & set(expected.no_flags), (who, flags)
    if record["status"] == "unsupported" and record["reason"] in ("input-shape", "dtype"):
        assert record["detail"]["hint"], who
    found = record["verification"]
    if record["summary"] is None:
        return
    assert found["verdict"] in (
        (expected.verdict,) if expected.verdict else ("ok", record["status"])
    )
    assert expected.tolerance in (None, found["tolerance"]), who
    assert not expected.fp64 or found["reference"].endswith("-fp64"), (who, found)
    shapes = tuple(tuple(output["shape"]) for output in found["outputs"])
    assert expected.shapes in ((), shapes), (who, shapes)
    assert found["checks"] == ["a", "b", "after"]
