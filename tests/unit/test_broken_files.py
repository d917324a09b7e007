"""Files that something else wrote or cut short: one clear error, whatever is in them."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ngraphbench.engines.certificates import CA, CA_KEY, make_certificates
from ngraphbench.environments.managed import FOLDER_VARIABLE, MARKER, environments
from ngraphbench.errors import ClusterError, SpecError, StoreError
from ngraphbench.models.values import load_user_inputs
from ngraphbench.session.launches import learned
from ngraphbench.store.rundir import RunDir
from ngraphbench.store.snapshot import read_snapshot
from ngraphbench.studies.delivery import ASKED, Asked
from ngraphbench.types import TensorSpec

DEEP = "[" * 200_000


def packed(data: bytes) -> bytes:
    """Return an archive whose one member, which should be an array, is ``data``."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x.npy", data)
    return out.getvalue()


def header(text: str) -> bytes:
    return packed(b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text.encode())


def saved() -> bytearray:
    out = io.BytesIO()
    np.savez_compressed(out, x=np.arange(1000.0))
    return bytearray(out.getvalue())


def edited(start: int, data: bytes) -> bytes:
    """Return a good archive with ``data`` from byte ``start`` on, counted in the member's entry."""
    whole = saved()
    at = whole.find(b"PK\x01\x02") + start if start < 50 else start
    whole[at : at + len(data)] = data
    return bytes(whole)


ARCHIVES = {
    "empty": b"",
    "cut": bytes(saved()[:300]),
    "flipped": edited(80, b"\xff" * 60),
    "method": edited(10, b"\x63\0"),
    "encrypted": edited(8, b"\x01"),
    "no array": packed(b"abc"),
    "giant": header("{'descr': '<f8', 'fortran_order': False, 'shape': (9000000000000,), }\n"),
    "past counting": header(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 30 + ",)}\n"
    ),
    "no end": header("(" * 9000 + "\n"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives_of_arrays(tmp_path: Path, name: str) -> None:
    (tmp_path / "in.npz").write_bytes(ARCHIVES[name])
    with pytest.raises(SpecError, match=r"in\.npz cannot be read as an \.npz file") as caught:
        load_user_inputs(tmp_path / "in.npz", [TensorSpec("x", "float64", (1000,))], 1)
    assert "\n" not in str(caught.value)


def read_plan(folder: Path) -> object:
    run = RunDir.open(folder / "run", create=True)
    (folder / "plan.json").replace(run.path / "plan.json")
    return run.read_plan()


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("base.json", lambda folder: read_snapshot(folder / "base.json")),
        ("plan.json", read_plan),
        (ASKED, Asked.read),
    ],
)
@pytest.mark.parametrize("text", [DEEP, "", "[1]", "\0"])
def test_json_of_a_run(
    tmp_path: Path, name: str, read: Callable[[Path], object], text: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(StoreError):
        read(tmp_path)


def test_what_was_learned_is_forgotten(tmp_path: Path) -> None:
    fresh = learned("artefact", path=tmp_path / "none.json")
    (tmp_path / "launches.json").write_text(DEEP)
    assert learned("artefact", path=tmp_path / "launches.json") == fresh


@pytest.mark.parametrize("text", [DEEP, "[]", "{}", json.dumps({"distributions": 5, "name": "a"})])
def test_markers_of_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    (tmp_path / "a1" / "bin").mkdir(parents=True)
    (tmp_path / "a1" / "bin" / "python").touch()
    (tmp_path / "a1" / MARKER).write_text(text)
    assert [one.state for one in environments()] == ["half-made"]


def test_a_broken_authority(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    for name in (CA, CA_KEY):
        (tmp_path / name).write_text("no certificate")
    with pytest.raises(ClusterError, match=r"The authority in .* cannot be read"):
        make_certificates(tmp_path, [], days=1)
    assert (tmp_path / CA_KEY).read_text() == "no certificate"
