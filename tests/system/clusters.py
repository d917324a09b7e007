"""A standing fleet on loopback: a scheduler and agents as processes, to be killed and restarted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from processes import free_port, wait_until

from ngraphbench.engines.certificates import make_certificates
from ngraphbench.types import Json

__all__ = ["Fleet"]


class Fleet:
    """Processes below ``folder``. Each agent has a host lock, a TMPDIR and a root of its own.

    ``host`` is the address of this machine on which the scheduler listens, ``within`` a command
    by device that starts its agent, such as in a network of its own.
    """

    def __init__(
        self,
        folder: Path,
        names: Iterable[str],
        *,
        host: str = "127.0.0.1",
        within: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.host = host
        self.within = dict(within or {})
        self.folder = folder
        self.names = tuple(names)
        self.certificates = folder / "certs"
        make_certificates(self.certificates, self.names, days=1)
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def address(self) -> str:
        return f"tls://{self.host}:{self.port}"

    @property
    def described(self) -> Json:
        """The fleet as ``fleet_runs`` takes it."""
        client = str(self.certificates / "client")
        return {"texts": list(self.names), "address": self.address, "certificates": client}

    def start_scheduler(self, host: str = "") -> None:
        certs = str(self.certificates / "scheduler")
        place = ["--host", host or self.host, "--port", str(self.port), "--certs", certs]
        self._start("scheduler", ["cluster", "scheduler", *place])
        assert self.said("scheduler", "scheduler at"), self.log("scheduler")

    def start_agent(self, name: str) -> None:
        certs = str(self.certificates / f"device-{name}")
        place = ["--scheduler", self.address, "--certs", certs, "--root", str(self.root(name))]
        temporary = self.folder / f"tmp-{name}"
        temporary.mkdir(exist_ok=True)
        given = {
            "TMPDIR": str(temporary),
            "NGRAPHBENCH_LOCK": str(self.folder / f"{name}.lock"),
            "XDG_STATE_HOME": str(self.folder / f"state-{name}"),
            # What Dask's nanny sets for all below it: no worker may see them.
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MALLOC_TRIM_THRESHOLD_": "65536",
        }
        self._start(f"agent-{name}", ["agent", "--name", name, *place], given, name)

    def start(self) -> Fleet:
        """Start all, and return once every agent is connected."""
        self.start_scheduler()
        for name in self.names:
            self.start_agent(name)
        for name in self.names:
            assert self.connected(name), self.log(f"agent-{name}")
        return self

    def connected(self, name: str) -> bool:
        return self.said(f"agent-{name}", "connected to")

    def root(self, name: str) -> Path:
        return self.folder / f"root-{name}"

    def kill(self, what: str) -> None:
        """Kill ``scheduler`` or ``agent-NAME`` and wait until it is gone."""
        process = self.processes.pop(what)
        process.kill()
        process.wait(60)

    def stop(self) -> None:
        for what in list(self.processes):
            process = self.processes[what]
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def log(self, what: str) -> str:
        return (self.folder / f"{what}.log").read_text()

    def said(self, what: str, text: str, patience_s: float = 90) -> bool:
        return wait_until(lambda: text in self.log(what), patience_s)

    def _start(
        self, what: str, command: list[str], variables: Any = None, device: str = ""
    ) -> None:
        with (self.folder / f"{what}.log").open("wb") as log:
            self.processes[what] = subprocess.Popen(
                [*self.within.get(device, ()), sys.executable, "-m", "ngraphbench", *command],
                env={**os.environ, **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        time.sleep(0.05)
