"""Environments of their own, for real: tiny wheels, no network, pip and uv."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from command_line import ngb, records
from party import VENDOR, build_party, installer_settings
from steady import as_steady

from ngraphbench.analysis.tables import Cell, Evidence
from ngraphbench.analysis.versions import version_verdicts
from ngraphbench.api import Run
from ngraphbench.environments.installing import Installer, find_uv
from ngraphbench.environments.managed import MARKER
from ngraphbench.errors import EnvironmentFailed
from ngraphbench.summary import verdict
from ngraphbench.testing.workloads import write_onnx

ALIKE = 0.999
"""So sure a test must be that a program differs from itself; else one run in ten fails."""

TOOLS = ["pip", pytest.param("uv", marks=pytest.mark.skipif(not find_uv(), reason="no uv here"))]


@pytest.fixture(scope="module")
def party(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the wheels of the toy vendor, and the folder of its plugin."""
    return build_party(tmp_path_factory.mktemp("party"))


@pytest.fixture(scope="module")
def given(party: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the variables of a user with that plugin, those wheels and an own store."""
    wheels, site = party
    home = tmp_path_factory.mktemp("home")
    (home / "data").mkdir()
    return {
        **installer_settings(wheels),
        "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]),
        "HOME": str(home),
        "NGRAPHBENCH_ENVIRONMENTS": "",
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_CACHE_HOME": str(home / "cache"),
    }


def store(given: dict[str, str]) -> Path:
    return Path(given["XDG_DATA_HOME"]) / "ngraphbench/environments"


def all_files(given: dict[str, str]) -> set[Path]:
    """Return what lies in the user's home, but for the installers' own caches.

    Pip asks rustc for its version, which makes a folder where rustup stands before it.
    """
    home = Path(given["HOME"])
    left_out = (home / "cache", home / ".rustup")
    return {path for path in home.rglob("*") if not any(map(path.is_relative_to, left_out))}


@pytest.fixture(scope="module")
def measured(
    given: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Return a run over four versions, two of which cannot work, and its records by label."""
    folder = tmp_path_factory.mktemp("run")
    write_onnx(folder / "m.onnx", "fake")
    heads = ["toyc@1.0", "toyc@2.0", "toyc@3.0", "toyc@9.9"]
    chosen = [word for head in heads for word in ("-c", head)]
    done = ngb(
        *("bench", "m.onnx", *chosen, "-b", "1", "--profile", "quick", "-o", "run", "--json"),
        cwd=folder,
        env=given,
        short=True,
    )
    assert done.returncode == 1, done.stderr
    yield folder / "run", {record["label"]: record for record in records(done)}


@pytest.mark.slow
def test_versions_are_measured_side_by_side(measured: tuple[Path, dict[str, Any]]) -> None:
    path, found = measured
    sessions = {found[head]["session_id"] for head in ("toyc@1.0", "toyc@2.0")}
    assert len(sessions) == 1
    for head, version in (("toyc@1.0", "1.0"), ("toyc@2.0", "2.0")):
        environment = found[head]["environment"]
        assert found[head]["stage"] == "measure", found[head]["message"]
        assert environment["compiler_version"] == version
        assert environment["distributions"][VENDOR] == version
        assert environment["lock"] and environment["lock_name"] == "toyc"
        assert found[head]["costs"]["environment_s"] > 0
    assert found["onnxruntime:level=none"]["environment"]["lock"] == ""
    run = Run.open(path)
    history = [as_steady(record) for record in run.history()]
    calm = [{**session, "sentinel": None, "flags": []} for session in run.sessions()]
    (judged,) = version_verdicts(Evidence(history, calm, run.samples))
    assert (judged.earlier, judged.later, judged.verdict) == ("toyc@1.0", "toyc@2.0", "faster")
    assert "faster than toyc@1.0" in judged.sentence
    fingerprint = run.sessions()[0]["fingerprint"]["environments"]
    assert fingerprint["toyc@1.0"] == found["toyc@1.0"]["environment"]["lock"]


@pytest.mark.slow
def test_what_crashes_or_cannot_be_made_is_a_record(
    measured: tuple[Path, dict[str, Any]],
) -> None:
    path, found = measured
    crashed, missing = found["toyc@3.0"], found["toyc@9.9"]
    assert (crashed["status"], crashed["stage"], crashed["reason"]) == (
        "crashed",
        "probe",
        "signal:SIGSEGV",
    )
    assert (missing["status"], missing["stage"], missing["reason"]) == (
        "unavailable",
        "environment",
        "install",
    )
    assert f"{VENDOR}==9.9" in missing["message"], "the installer's own words"
    log = next((path / "logs").rglob("environment-toyc@9.9.log"))
    assert VENDOR in log.read_text()


@pytest.mark.slow
def test_a_second_run_uses_what_is_there_and_removing_leaves_nothing(
    measured: tuple[Path, dict[str, Any]], given: dict[str, str], tmp_path: Path
) -> None:
    write_onnx(tmp_path / "m.onnx", "fake")
    listed = json.loads(ngb("env", "list", "--json", cwd=tmp_path, env=given, check=0).stdout)
    ids = list(listed["environments"])
    assert len(ids) == 3 and {e["state"] for e in listed["environments"].values()} == {"ready"}
    place = store(given) / measured[1]["toyc@1.0"]["environment"]["lock"]
    done = ngb(
        *("bench", "m.onnx", "-c", "toyc@1.0", "-c", f"toyc@{place}", "-b", "1", "--json"),
        *("--profile", "quick", "--baseline", "toyc@1.0", "--environments", "managed"),
        *("-o", "run"),
        cwd=tmp_path,
        env=given,
        short=True,
        check=0,
    )
    assert "making the environment" not in done.stderr
    found = {record["label"]: record for record in records(done)}
    same = found[f"toyc@{place}"]
    assert same["environment"]["distributions"][VENDOR] == "1.0"
    assert same["summary"]["vs_baseline"]["baseline"] == "toyc@1.0"
    run = Run.open(tmp_path / "run")
    evidence = Evidence(run.history(), run.sessions(), run.samples)
    alike = evidence.compare(Cell(found["toyc@1.0"]), Cell(same), ALIKE)
    assert verdict(alike, tie=0.03) not in ("faster", "slower"), "the same version in two places"
    ngb("env", "remove", "toyc@2.0", cwd=tmp_path, env=given, check=0)
    assert len([path for path in store(given).iterdir() if path.is_dir()]) == 2
    ngb("env", "remove", "--all", cwd=tmp_path, env=given, check=0)
    assert not store(given).exists()


@pytest.mark.slow
def test_create_list_survey_remove(given: dict[str, str], tmp_path: Path) -> None:
    before = all_files(given)
    made = ngb("env", "create", "toyc", cwd=tmp_path, env=given, check=0)
    assert "toyc: installing" in made.stderr and "ready" in made.stderr
    again = ngb("env", "create", "toyc", cwd=tmp_path, env=given, check=0)
    assert again.stdout == made.stdout and "installing" not in again.stderr
    toy = surveyed(given)
    assert not toy["ok"] and toy["places"] == ["managed"] and toy["cure"] == ""
    assert toy["managed"]["cpu"]["version"] == "1.0" and toy["devices"] == ["cpu"]
    shown = ngb("env", "list", cwd=tmp_path, env=given, check=0).stdout
    assert "toyc" in shown and "ready" in shown
    ngb("env", "remove", "toyc", cwd=tmp_path, env=given, check=0)
    toy = surveyed(given)
    assert toy["places"] == [] and toy["hint"] == "pip install toyvendor"
    assert toy["cure"] == "ngb env create toyc   (about 1 MB)"
    assert all_files(given) == before and processes_of(given) == []
    refused = ngb("env", "remove", "toyc", cwd=tmp_path, env=given, check=2)
    assert "There is no environment" in refused.stderr


def processes_of(given: dict[str, str]) -> list[str]:
    """Return the command lines of live processes that name the user's home."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if given["HOME"] in words:
                found.append(words)
    return found


def surveyed(given: dict[str, str]) -> dict[str, Any]:
    """Return what ``doctor --json`` says of the toy compiler, without probing the others."""
    code = (
        "import json; from ngraphbench.session.availability import survey;"
        "(one,) = survey({'toyc': 'party_toyc:ToyCompiler'}, threads=1);"
        "print(json.dumps(one.to_json()))"
    )
    variables = {**os.environ, **given}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_what_a_run_made_can_be_gone_at_its_end(given: dict[str, str], tmp_path: Path) -> None:
    write_onnx(tmp_path / "m.onnx", "fake")
    done = ngb(
        *("bench", "m.onnx", "-c", "toyc", "--environments", "managed", "-b", "1", "--json"),
        *("--profile", "quick", "--baseline", "toyc", "--remove-environments"),
        cwd=tmp_path,
        env=given,
        short=True,
        check=0,
    )
    (record,) = records(done)
    assert record["status"] == "ok" and record["environment"]["lock_name"] == "toyc"
    assert not store(given).exists()


@pytest.mark.parametrize("tool", TOOLS)
def test_the_users_wheels_and_constraints_are_honoured(
    tool: str, party: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in installer_settings(party[0]).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(f"{VENDOR}<2\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(constraints))
    uv = find_uv() if tool == "uv" else None
    folder = tmp_path / "env"
    folder.mkdir()
    installer = Installer(folder, lambda text: None, uv=uv)
    assert installer.make([f"{VENDOR}==2.0\n", f"{VENDOR}\n"]) == tool
    sites = list(folder.glob(f"lib/python*/site-packages/{VENDOR}-1.0.dist-info"))
    assert len(sites) == 1, "the first cannot be had under the constraint; the second is 1.0"
    assert not (folder / "tmp").exists()
    (tmp_path / "other").mkdir()
    with pytest.raises(EnvironmentFailed, match=VENDOR) as caught:
        Installer(tmp_path / "other", lambda text: None, uv=uv).make([f"{VENDOR}==2.0\n"])
    assert caught.value.reason == "install"


@pytest.mark.slow
def test_a_creator_that_is_killed_leaves_what_is_made_anew(
    given: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "ngraphbench", "env", "create", "toyc"]
    variables = {**os.environ, **given, "NGRAPHBENCH_LOCK": str(tmp_path / "lock")}
    creator = subprocess.Popen(command, env=variables, cwd=tmp_path, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list(store(given).glob("*/tmp")):
        assert creator.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(creator.pid, signal.SIGKILL)
    creator.wait()
    while processes_of(given):
        assert time.monotonic() < deadline, "the installer goes on without its creator"
        time.sleep(0.05)
    listed = ngb("env", "list", cwd=tmp_path, env=given, check=0).stdout
    assert "half-made" in listed
    ngb("env", "create", "toyc", cwd=tmp_path, env=given, check=0)
    (marker,) = store(given).glob(f"*/{MARKER}")
    assert not (marker.parent / "tmp").exists()
    ngb("env", "remove", "--all", cwd=tmp_path, env=given, check=0)
    assert not store(given).exists()
