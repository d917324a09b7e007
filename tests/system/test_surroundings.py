"""Odd surroundings: no user, no home, no space, no streams, no permission, odd names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import command_line
import pytest
from command_line import ngb, records
from steady import as_steady

from ngraphbench import api

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_lock")]

NOBODY = 54321
NGB = (sys.executable, command_line.__file__)
SHORT = ("-c", "fake", "-b", "1", "--baseline", "fake", "--profile", "quick")
FAULT = "fault of ngraphbench"
GOLDEN = Path(__file__).parents[1] / "golden"


def said(command: Sequence[object], *, cwd: Path, env: dict[str, str], code: int) -> str:
    """Return what a command wrote, which ended with ``code`` and without a traceback."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=command_line.PATIENCE_S,
        check=False,
    )
    text = done.stdout + done.stderr
    assert "Traceback" not in text and FAULT not in text, text
    assert done.returncode == code, text
    return text


def stranger(*command: object) -> list[object]:
    """Return a command run by a user whom no database knows, who may read everything."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to become a user without a name")
    ids = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    # Python itself may lie in the home of root.
    reads = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search")
    return ["setpriv", *ids, *reads, "--bounding-set=-all,+dac_read_search", *command]


def test_a_user_without_name_and_home(tmp_path: Path, site) -> None:
    own = tmp_path / "own"
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    shutil.copy(tmp_path / "double.onnx", own)
    places = ("HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "NGRAPHBENCH_ENVIRONMENTS")
    env = {name: value for name, value in {**os.environ, **site}.items() if name not in places}
    env |= {"TMPDIR": str(own), "NGRAPHBENCH_LOCK": str(own / "lock"), "USER": ""}
    bench = (*NGB, "bench", "double.onnx", *SHORT)
    told = said(stranger(*bench, "-o", "run"), cwd=own, env=env, code=0)
    assert "report.html" in told
    assert {r["status"] for r in api.Run.open(own / "run").records()} == {"ok"}

    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    shutil.copy(tmp_path / "double.onnx", closed)
    told = said(stranger(*bench, "-o", "run"), cwd=closed, env=env, code=2)
    assert "cannot be written: Permission denied" in told
    said(stranger(*NGB, "env", "list"), cwd=own, env=env, code=3)


def can_mount() -> bool:
    """Return whether a file system can be mounted for a command alone."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


FULL = """
mount -t tmpfs -o size=96k tmpfs small || exit 99
"$@"
echo "first: $?"
mount -o remount,size=20m small
"$@"
echo "second: $?"
ls small/run/spool
"""


def test_a_full_disk_stops_the_run_and_a_resume_finishes(tmp_path: Path, site) -> None:
    if not can_mount():
        pytest.skip("needs the right to mount a small file system")
    (tmp_path / "small").mkdir()
    bench = (*NGB, "bench", "double.onnx", *SHORT, "-b", "1,2", "-o", "small/run")
    script = ("unshare", "--mount", "sh", "-c", FULL, "sh")
    told = said((*script, *bench), cwd=tmp_path, env={**os.environ, **site}, code=0)
    first, _, second = told.partition("first: ")
    assert second.startswith("2\n"), told
    assert "No space left on device" in told and "run again" in " ".join(told.split())
    assert "second: 0" in told and "report.html" in told
    assert first.count("ngb: ") <= 2, first


@pytest.mark.parametrize(
    ("streams", "code"),
    [(">&-", 0), ("<&- >&- 2>&-", 0), ("2>&-", 0), (">/dev/full", 2), ("| head -n 1", 0)],
)
def test_streams_that_are_closed_or_full(streams: str, code: int) -> None:
    command = f"{sys.executable} -m ngraphbench show quickstart {streams}"
    told = said(["sh", "-c", command], cwd=GOLDEN, env=dict(os.environ), code=code)
    assert ("No space left" in told) == (code == 2), told


def test_a_measurement_outlives_its_streams(tmp_path: Path, site) -> None:
    command = " ".join([*NGB, "bench", "double.onnx", *SHORT, "-o", "run <&- >&- 2>&-"])
    said(["sh", "-c", command], cwd=tmp_path, env={**os.environ, **site}, code=0)
    assert {r["status"] for r in api.Run.open(tmp_path / "run").records()} == {"ok"}


ODD = (
    *("with space.onnx", "\u6a21\u578b \u00e9.onnx", "-dash.onnx", "new\nline.onnx", ".onnx"),
    *("~.onnx", "$HOME;`x`'\".onnx", "a%b?c=d&e.onnx", "x" * 250 + ".onnx"),
)


def test_odd_names_of_models_and_folders(tmp_path: Path, site) -> None:
    data = (tmp_path / "double.onnx").read_bytes()
    for number, name in enumerate(ODD):
        # The same bytes would be the same model, which may be listed once only.
        (tmp_path / name).write_bytes(data + b"\x12" + bytes([number + 1]) + b"p" * (number + 1))
    out = "out\n -\u00e9 ~"
    command = ("bench", *SHORT, "--json", "-o", out, "--", *ODD)
    found = records(ngb(*command, cwd=tmp_path, env=site, short=True, check=0))
    assert {Path(r["case"]["model"]["path"]).name for r in found} == set(ODD)
    assert {as_steady(r)["status"] for r in found} == {"ok"}
    ngb("report", out, cwd=tmp_path, check=0)
    assert (tmp_path / out / "report.html").exists()
