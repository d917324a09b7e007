"""Who is let in to a fleet, and what listens: mutual TLS on one port, nothing else."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from clusters import Fleet
from processes import listening_of

from ngraphbench.errors import ClusterError

pytest.importorskip("distributed", reason="needs the extra cluster")
pytest.importorskip("cryptography", reason="needs the extra cluster")

from ngraphbench.engines import dasksettings
from ngraphbench.engines.certificates import Certificates, make_certificates
from ngraphbench.engines.daskcluster import DaskCluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet(tmp_path_factory.mktemp("secure"), ["a"])
    try:
        made.start_scheduler(host="0.0.0.0")
        made.start_agent("a")
        assert made.connected("a"), made.log("agent-a")
        yield made
    finally:
        made.stop()


def refused(address: str, certificates: Path) -> ClusterError:
    cluster = DaskCluster(address, certificates)
    try:
        with pytest.raises(ClusterError) as caught:
            cluster.devices()
    finally:
        cluster.close()
    return caught.value


def test_a_certificate_of_the_fleet_is_let_in(fleet: Fleet) -> None:
    cluster = DaskCluster(fleet.address, fleet.certificates / "client")
    try:
        devices = cluster.devices()
    finally:
        cluster.close()
    assert devices["a"]["facts"]["threads"] >= 1
    assert devices["a"]["facts"]["host"]


def test_the_command_line_renews_certificates_and_tells_who_is_connected(
    fleet: Fleet, tmp_path: Path
) -> None:
    for name in ("ca.pem", "ca-key.pem"):
        shutil.copy(fleet.certificates / name, tmp_path)
    ngb = [sys.executable, "-m", "ngraphbench", "cluster"]
    subprocess.run([*ngb, "certs", "-o", str(tmp_path), "--device", "b"], check=True)
    assert {path.name for path in tmp_path.glob("*/")} == {"scheduler", "client", "device-b"}
    asked = ["status", "--cluster", fleet.address, "--certs", str(tmp_path / "client"), "--json"]
    told = subprocess.run([*ngb, *asked], check=True, capture_output=True, text=True).stdout
    assert json.loads(told)["devices"]["a"]["facts"]["threads"] >= 1


def test_a_foreign_certificate_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    make_certificates(tmp_path, [])
    problem = refused(fleet.address, tmp_path / "client")
    assert problem.reason == "certificates"
    assert "ngb cluster certs" in problem.hint


def test_a_certificate_that_has_ended_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    for name in ("ca.pem", "ca-key.pem"):
        shutil.copy(fleet.certificates / name, tmp_path)
    make_certificates(tmp_path, [], days=0)
    assert refused(fleet.address, tmp_path / "client").reason == "certificates"


def test_who_has_no_certificate_gets_nothing(fleet: Fleet) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", fleet.port), timeout=20) as plain:
        try:
            with context.wrap_socket(plain) as wrapped:
                # In TLS 1.3 the refusal comes with the first byte that is read.
                assert wrapped.recv(1024) == b""
        except (ssl.SSLError, ConnectionResetError):
            return


def test_a_client_certificate_cannot_pose_as_a_scheduler(fleet: Fleet) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = Certificates(fleet.certificates / "client")
    server.load_cert_chain(client.cert, client.key)
    trusting = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(client.ca))
    trusting.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    back, forth = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = server.wrap_bio(back, forth, server_side=True)
    two = trusting.wrap_bio(incoming, outgoing)
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        for _ in range(4):
            for side in (two, one):
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
                back.write(outgoing.read())
                incoming.write(forth.read())


def test_plain_tcp_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    with socket.create_connection(("127.0.0.1", fleet.port), timeout=20) as plain:
        plain.sendall(b"\x00" * 64)
        answer = b""
        with suppress(ConnectionResetError, TimeoutError):
            while part := plain.recv(1024):
                answer += part
    # At most a TLS alert comes back.
    assert len(answer) <= 7
    with pytest.raises(ClusterError, match="not a scheduler's address"):
        DaskCluster(f"tcp://127.0.0.1:{fleet.port}", fleet.certificates / "client")


def test_other_versions_are_refused_with_the_cure(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = dasksettings.versions()
    monkeypatch.setattr(dasksettings, "versions", lambda: {**ours, "distributed": "2020.1.0"})
    problem = refused(fleet.address, fleet.certificates / "client")
    assert problem.reason == "version"
    assert f"pip install 'distributed=={ours['distributed']}'" in problem.message
    monkeypatch.setattr(dasksettings, "versions", lambda: {**ours, "python": "3.99"})
    security = dasksettings.security_of(fleet.certificates / "client")
    assert asyncio.run(dasksettings.say_hello(fleet.address, security))["problem"] == ""


def test_only_the_schedulers_port_can_be_reached_from_outside(fleet: Fleet) -> None:
    listening = {what: listening_of(process.pid) for what, process in fleet.processes.items()}
    outside = {
        what: {(host, port) for host, port in found if not host.startswith("127.")}
        for what, found in listening.items()
    }
    assert outside == {"scheduler": {("0.0.0.0", fleet.port)}, "agent-a": set()}
    assert listening["agent-a"], "nothing was looked at"


def test_files_can_be_read_by_their_owner_alone(fleet: Fleet) -> None:
    files = [path for path in fleet.certificates.rglob("*") if path.is_file()]
    assert len(files) == 2 + 3 * 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {stat.S_IMODE(p.stat().st_mode) for p in fleet.certificates.glob("*/")} == {0o700}


def test_without_the_extra_the_error_says_how_to_get_it(tmp_path: Path) -> None:
    commands = [
        ["cluster", "certs", "-o", str(tmp_path / "certs")],
        ["cluster", "scheduler"],
        ["cluster", "status", "--cluster", "tls://x:1"],
        ["agent", "--name", "a", "--scheduler", "tls://x:1"],
        ["bench", "x.onnx", "-c", "openvino", "--device", "a", "--cluster", "tls://x:1"],
    ]
    code = (
        "import json, sys; sys.modules['distributed'] = sys.modules['cryptography'] = None\n"
        "from ngraphbench.cli import main\n"
        "for sys.argv[1:] in json.loads(sys.argv[1]):\n"
        "    try: main()\n"
        "    except SystemExit as end: print(end.code, file=sys.stderr, flush=True)"
    )
    asked = [sys.executable, "-c", code, json.dumps(commands)]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stderr
    told = re.findall(r"pip install 'ngraphbench\[cluster\]'\n3\n", said)
    assert len(told) == len(commands), said
