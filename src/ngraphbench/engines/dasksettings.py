"""What every part of a standing fleet agrees on: a quiet Dask, mutual TLS, equal versions."""

from __future__ import annotations

import asyncio
import platform
import ssl
from pathlib import Path
from typing import Any

from ngraphbench import __version__
from ngraphbench.engines.certificates import Certificates, certificates_folder
from ngraphbench.errors import ClusterError
from ngraphbench.types import Json

__all__ = [
    "HELLO",
    "check_address",
    "compare_versions",
    "quieten",
    "require_dask",
    "say_hello",
    "security_of",
    "topic_of",
    "versions",
]

HELLO = "ngb_hello"
HELLO_S = 20.0

# An idle agent wakes up 150 times a second with Dask's own settings, and the machine it is idle on
# is being measured. A link may be cut for minutes.
_SETTINGS = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "60s",
    "distributed.worker.http.routes": [],
    "distributed.scheduler.http.routes": [],
    "distributed.admin.tick.interval": "5s",
    "distributed.admin.tick.limit": "30s",
    "distributed.admin.tick.cycle": "10s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.low-level-log-length": 100,
    "distributed.diagnostics.nvml": False,
    "distributed.comm.timeouts.connect": "20s",
    "distributed.comm.timeouts.tcp": "600s",
    "distributed.scheduler.worker-ttl": "900s",
    "distributed.scheduler.allowed-failures": 1,
    "distributed.scheduler.work-stealing": False,
    "distributed.worker.preload": [],
    "distributed.scheduler.preload": [],
}


def require_dask() -> Any:
    """Return the module ``distributed``, told to be quiet. Raises ClusterError without it."""
    try:
        import distributed
    except ImportError as error:
        raise ClusterError(
            "A cluster needs the package distributed, which is not installed.",
            reason="extra",
            hint="pip install 'ngraphbench[cluster]'",
        ) from error
    quieten()
    return distributed


def quieten() -> None:
    """Set what Dask does on its own to as little as it can be."""
    import logging

    import dask

    dask.config.set(_SETTINGS)
    logging.getLogger("distributed").setLevel(logging.ERROR)


def versions() -> Json:
    """Return the versions that both ends must share, and Python's, which may differ."""
    return {
        "ngraphbench": __version__,
        "distributed": require_dask().__version__,
        "python": platform.python_version(),
    }


def compare_versions(ours: Json, theirs: Json) -> str:
    """Return what differs and the cure, nothing where both ends can work together."""
    for package in ("distributed", "ngraphbench"):
        mine, other = ours.get(package), theirs.get(package)
        if mine != other:
            return (
                f"The scheduler has {package} {mine}, this side has {other}. On this side:"
                f" pip install '{package}=={mine}' (or {other} on the scheduler's)."
            )
    return ""


def check_address(address: str) -> str:
    """Return the address of a scheduler if it is one with TLS. Raises ClusterError."""
    if not address.startswith("tls://") or ":" not in address.removeprefix("tls://"):
        raise ClusterError(
            f"{address!r} is not a scheduler's address.",
            reason="address",
            hint="Write tls://HOST:PORT; nothing travels without TLS.",
        )
    return address


def security_of(folder: Path | None) -> Any:
    """Return Dask's settings for mutual TLS with the certificates in ``folder``."""
    found = Certificates(certificates_folder(folder)).check()
    files = {"tls_ca_file": str(found.ca)}
    for role in ("client", "scheduler", "worker"):
        files |= {f"tls_{role}_cert": str(found.cert), f"tls_{role}_key": str(found.key)}
    return require_dask().Security(require_encryption=True, **files)


async def say_hello(address: str, security: Any) -> Json:
    """Return what the scheduler says of itself, once both ends trust each other.

    Raises ClusterError for anything that will not get better by itself: certificates or versions.
    Raises OSError while the scheduler cannot be reached.
    """
    from distributed.core import connect

    arguments = security.get_connection_args("client")
    try:
        comm = await asyncio.wait_for(connect(address, timeout=HELLO_S, **arguments), HELLO_S + 1)
    except (OSError, asyncio.TimeoutError) as error:
        _refuse_tls(address, error)
        raise OSError(f"The scheduler at {address} cannot be reached: {error}") from error
    try:
        await comm.write({"op": HELLO, "versions": versions(), "reply": True})
        answer: Any = await asyncio.wait_for(comm.read(), HELLO_S)
    except asyncio.TimeoutError as error:
        raise OSError(f"The scheduler at {address} gave no answer.") from error
    except OSError as error:
        # The other side closes without a word where it does not take our certificate.
        raise ClusterError(
            f"The scheduler at {address} closed the connection: it does not take this certificate.",
            reason="certificates",
            hint="Use certificates of its own authority that have not ended: `ngb cluster certs`.",
        ) from error
    finally:
        comm.abort()
    if not isinstance(answer, dict) or "versions" not in answer:
        raise ClusterError(
            f"What listens at {address} is not a scheduler of ngraphbench.",
            reason="version",
            hint="Start it with `ngb cluster scheduler`, of the same version.",
        )
    if answer["problem"]:
        raise ClusterError(str(answer["problem"]), reason="version")
    return answer


def topic_of(client: str) -> str:
    """Return the topic under which a client's answers and events travel."""
    return f"ngb-{client}"


def _refuse_tls(address: str, error: BaseException) -> None:
    """Raise ClusterError where a chain of errors began with TLS."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError) or "ssl" in str(seen).lower():
            raise ClusterError(
                f"No TLS connection to {address}: {seen}.",
                reason="certificates",
                hint="Both sides need certificates of one authority: `ngb cluster certs`.",
            ) from error
        seen = seen.__cause__ or seen.__context__
