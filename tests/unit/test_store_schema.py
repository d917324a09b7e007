"""The schema of records, and samples of each version that must stay readable for ever."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import machines
import pytest

from ngraphbench.case import Case, Limits, Session
from ngraphbench.environments.host import host_facts
from ngraphbench.profiles import Profile
from ngraphbench.records import OPTIONAL_COSTS, STAGES, STATUSES, empty_costs
from ngraphbench.session.hostwatch import HostWatch, thermal_facts
from ngraphbench.store.journal import Journal
from ngraphbench.store.schema import load_schema
from ngraphbench.types import Device

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("v*-*.json"))


def golden(name: str) -> Any:
    return json.loads((GOLDEN[0].parent / f"{name}.json").read_text())


def validator() -> Any:
    return jsonschema.Draft202012Validator(load_schema())


def test_schema_is_a_schema_and_knows_the_vocabulary() -> None:
    schema = load_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    case = schema["$defs"]["case_record"]["properties"]
    assert tuple(case["status"]["enum"]) == STATUSES
    assert tuple(case["stage"]["enum"]) == STAGES
    costs = schema["$defs"]["costs"]
    assert costs["required"] == list(empty_costs())
    assert list(costs["properties"]) == [*empty_costs(), *OPTIONAL_COSTS]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_records_are_valid_and_readable(path: Path, tmp_path: Path) -> None:
    record = json.loads(path.read_text())
    validator().validate(record)
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append([record])
    assert journal.read() == [record]


def test_what_hosts_tell_fits_the_schema(tmp_path: Path) -> None:
    def fits(value: object, part: str) -> bool:
        schema = {"$ref": f"#/$defs/{part}", "$defs": load_schema()["$defs"]}
        return bool(jsonschema.Draft202012Validator(schema).is_valid(value))

    machines.dual_socket(machines.hybrid(tmp_path))
    machines.with_quota(tmp_path, 1.5)
    temperature = {"sys/class/thermal/thermal_zone0/temp": 50000}
    for root in (machines.write(tmp_path, temperature), tmp_path / "nothing", Path("/")):
        assert fits(host_facts(root=root), "host")
        watch = HostWatch(lambda: 0, Device(cpus=(0,)), root=root)
        watch.look()
        told = thermal_facts([watch.to_json()])
        assert fits(told, "thermal")
        assert not fits({**(told or {}), "temperature_c": {"min": "hot"}}, "thermal")
    vendor = Device(threads=0, cpus=(0,)).to_json()
    assert fits(vendor, "device") and not fits({**vendor, "threads": -1}, "device")


def test_there_is_a_golden_record_of_each_kind() -> None:
    assert {path.stem for path in GOLDEN} >= {"v1-case-ok", "v1-case-crashed", "v1-session"}


@pytest.mark.parametrize("name", ["v1-case-ok", "v1-case-crashed"])
def test_case_ids_never_change(name: str) -> None:
    record = golden(name)
    case = Case.from_json(record["case"])
    assert case.case_id == record["case_id"]
    assert case.to_json() == record["case"]


def test_session_ids_never_change() -> None:
    record = golden("v1-session")
    profile = Profile.from_json(record["profile"])
    case = Case.from_json(golden("v1-case-ok")["case"])
    session = Session((case,), record["baseline"], profile, Limits(), fingerprint={"host": "a"})
    assert session.session_id == "36cd2b1db3e3d019"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_key_is_required_and_no_other_allowed(path: Path) -> None:
    record = json.loads(path.read_text())
    check = validator()
    assert not check.is_valid({**record, "extra": 1})
    for key in record:
        less = {name: value for name, value in record.items() if name != key}
        assert not check.is_valid(less), key


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("v1-case-ok", ("status",), "fine"),
        ("v1-case-ok", ("stage",), "run"),
        ("v1-case-ok", ("started_at",), "yesterday"),
        ("v1-case-ok", ("case_id",), "xyz"),
        ("v1-case-ok", ("schema_version",), 2),
        ("v1-case-ok", ("costs", "load_s"), "fast"),
        ("v1-case-ok", ("summary", "vs_baseline", "verdict"), "best"),
        ("v1-case-ok", ("verification", "verdict"), "maybe"),
        ("v1-case-ok", ("case", "batch"), 0),
        ("v1-session", ("mode",), "paced"),
        ("v1-session", ("cases",), ["a"]),
        ("v1-session", ("kind",), "run"),
    ],
)
def test_wrong_values_are_refused(name: str, path: tuple[str, ...], value: object) -> None:
    record = copy.deepcopy(golden(name))
    target = record
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    assert not validator().is_valid(record)
