"""Which compilers work here. Each probe is a process of its own: a vendor's import may crash."""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ngraphbench.environments.capture import in_environment, worker_environment
from ngraphbench.environments.kit import build_kit, plugin_folder, worker_command
from ngraphbench.errors import NGraphBenchError
from ngraphbench.plugin import load_compiler
from ngraphbench.session.guard import sweep
from ngraphbench.session.process import FD, WorkerProcess
from ngraphbench.types import Device, Support

__all__ = ["probe", "probe_all"]

PROBE_S = 120.0
PROBE_MEMORY_BYTES = 8 * 1024**3
AT_ONCE = 2


def probe_all(
    targets: Mapping[str, str], device: Device, *, pythons: Mapping[str, Path] | None = None
) -> dict[str, Support]:
    """Return each compiler's support by name; ``targets`` maps names to ``module:attribute``.

    ``pythons`` names the interpreters of virtual environments; the others are probed in this one.
    """
    elsewhere = pythons or {}
    with _workshop() as (root, kit, token), ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {
            name: pool.submit(
                _probe,
                target,
                device,
                work=root / name,
                kit=kit,
                token=token,
                python=elsewhere.get(name),
            )
            for name, target in targets.items()
        }
        try:
            return {name: future.result() for name, future in futures.items()}
        except BaseException:
            # An interrupt must not wait for probes: end those that run, begin no other.
            pool.shutdown(wait=False, cancel_futures=True)
            sweep(token)
            raise


def probe(target: str, device: Device) -> Support:
    """Return one compiler's support."""
    return probe_all({"compiler": target}, device)["compiler"]


@contextmanager
def _workshop() -> Iterator[tuple[Path, Path, str]]:
    token = secrets.token_hex(8)
    with tempfile.TemporaryDirectory(prefix="ngb-probe-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        try:
            yield root, build_kit(root), token
        finally:
            sweep(token)


def _probe(
    target: str, device: Device, *, work: Path, kit: Path, token: str, python: Path | None
) -> Support:
    work.mkdir()
    try:
        variables = worker_environment(
            compiler=load_compiler(target), device=device, work=work, token=token
        )
        command = worker_command(sys.executable, kit, FD)
        if python is not None:
            plugins = plugin_folder(work, [target])
            command = worker_command(str(python), kit, FD, plugins=plugins)
            variables = in_environment(variables, python=python, virtual=True)
        worker = WorkerProcess.spawn(
            command,
            env=variables,
            log=work / "probe.log",
            cwd=work,
            memory_bytes=PROBE_MEMORY_BYTES,
        )
    except (NGraphBenchError, OSError) as error:
        return Support(ok=False, hint=str(error))
    try:
        worker.request(
            "hello", deadline_s=PROBE_S, plugin=target, device=device.to_json(), search_path=[]
        )
        found = worker.request("probe", deadline_s=PROBE_S)["support"]
        return Support(ok=found["ok"], version=found["version"], hint=found["hint"])
    except NGraphBenchError as error:
        return Support(ok=False, hint=f"its probe failed: {error}")
    finally:
        worker.kill()
