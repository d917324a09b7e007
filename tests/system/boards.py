"""Boards on loopback: Debian's sshd on high ports, with keys and a host lock of their own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import free_port

from ngraphbench.engines.ssh import SSH_VARIABLE

__all__ = ["boards", "ssh_tools"]

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin")


def ssh_tools() -> None:
    """Skip the test where there is no sshd or no ssh."""
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("no sshd here: apt-get install openssh-server openssh-client")


@contextmanager
def boards(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int = 1) -> Iterator[list[str]]:
    """Yield the addresses of so many boards; each one's TMPDIR is ``folder/board-N``."""
    ssh_tools()
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    for name in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)]
        subprocess.run(command, check=True)
    (keys / "authorized").write_text((keys / "user.pub").read_text())
    options = f"-F /dev/null -i {keys / 'user'} -o StrictHostKeyChecking=no"
    monkeypatch.setenv(SSH_VARIABLE, f"ssh {options} -o UserKnownHostsFile=/dev/null -q")
    made = None
    if os.geteuid() == 0 and not Path("/run/sshd").exists():
        made = Path("/run/sshd")
        made.mkdir(mode=0o755)
    running, texts = [], []
    try:
        for number in range(count):
            port = free_port()
            running.append(_sshd(folder, keys, port=port, number=number))
            user = getpass.getuser()
            texts.append(f"ssh://{user}@127.0.0.1:{port}?python={sys.executable}")
        yield texts
    finally:
        for process in running:
            process.terminate()
            process.wait(10)
        if made is not None:
            made.rmdir()


def _sshd(folder: Path, keys: Path, *, port: int, number: int) -> subprocess.Popen[bytes]:
    temporary = folder / f"board-{number}"
    temporary.mkdir()
    variables = {
        "TMPDIR": temporary,
        "NGRAPHBENCH_LOCK": folder / f"board-{number}.lock",
        "XDG_STATE_HOME": temporary / "state",
        "OMP_NUM_THREADS": 1,
        "MALLOC_TRIM_THRESHOLD_": 65536,
    }
    config = folder / f"sshd-{number}.conf"
    config.write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {keys / 'host'}\nPidFile none\n"
        f"AuthorizedKeysFile {keys / 'authorized'}\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nPermitRootLogin yes\n"
        f"SetEnv {' '.join(f'{k}={v}' for k, v in variables.items())}\n"
    )
    log = (folder / f"sshd-{number}.log").open("wb")
    process = subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(config)], stderr=log)
    log.close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.05)
    process.kill()
    pytest.fail((folder / f"sshd-{number}.log").read_text())
