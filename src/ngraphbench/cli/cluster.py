"""``cluster`` and ``agent``: standing fleets of devices."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from ngraphbench.cli import options

__all__ = ["agent", "app"]

PORT = 8786

app = typer.Typer(
    no_args_is_help=True,
    help="Devices that work together: certificates, the scheduler, who is connected.",
)


@app.command("certs")
def certs(
    device: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A device that gets a certificate; several may be."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="For how long they are good.")] = 30,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where the authority and all lie.")
    ] = Path("ngb-certs"),
) -> int:
    """Make certificates: an authority of this fleet, and a folder for each part to copy there.

    Again renews them. Whoever holds one can run code on every device.
    """
    from ngraphbench.engines.certificates import make_certificates

    for folder in make_certificates(out, device or [], days=days):
        typer.echo(f"{folder}  good for {days} days")
    typer.echo(f"Keep {out / 'ca-key.pem'} here; copy each folder to its part, and to no other.")
    return 0


@app.command("scheduler")
def scheduler(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Its port.")] = PORT,
    certs: options.Certs = None,
) -> int:
    """Run the scheduler: agents and clients dial in here, with certificates of the fleet."""
    from ngraphbench.engines.daskscheduler import serve_scheduler

    def ready(address: str) -> None:
        typer.echo(f"scheduler at {address}", err=True)

    return _served(lambda: serve_scheduler(host, port, certs, ready=ready))


@app.command("status")
def status(
    cluster: Annotated[str, typer.Option("--cluster", metavar="tls://HOST:PORT")],
    certs: options.Certs = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Say which devices are connected, and what they said of themselves."""
    from ngraphbench.engines.daskcluster import DaskCluster

    fleet = DaskCluster(cluster, certs)
    try:
        devices = fleet.devices()
    finally:
        fleet.close()
    if json_:
        sys.stdout.write(json.dumps({"devices": devices}, indent=1) + "\n")
        return 0
    if not devices:
        typer.echo("No device is connected. On each: ngb agent --name NAME --scheduler ADDRESS")
    for name, about in sorted(devices.items()):
        facts = about["facts"]
        mode = f", power mode {facts['power_mode']}" if facts.get("power_mode") else ""
        threads, python = facts.get("threads"), about["versions"]["python"]
        typer.echo(f"{name:<16} {facts.get('cpu_model')}, {threads} threads, Python {python}{mode}")
    return 0


def agent(
    name: Annotated[str, typer.Option(metavar="NAME", help="The device, as experiments name it.")],
    scheduler: Annotated[str, typer.Option(metavar="tls://HOST:PORT", help="Where to dial.")],
    certs: options.Certs = None,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="What it was sent and has measured.",
            show_default="~/.local/state/ngraphbench/agents/NAME",
        ),
    ] = None,
) -> int:
    """Offer this machine to a fleet: dial out to its scheduler and measure what comes."""
    from ngraphbench.engines.daskagent import serve_agent

    def say(text: str) -> None:
        typer.echo(f"agent {name}: {text}", err=True)

    return _served(lambda: serve_agent(name, scheduler, certs, root=root, say=say))


def _served(serve: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Return 0 once it is told to end: by Ctrl-C or SIGTERM."""
    import asyncio

    async def until_told() -> None:
        task = asyncio.ensure_future(serve())
        loop = asyncio.get_running_loop()
        for told in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(told, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            return

    asyncio.run(until_told())
    return 0
