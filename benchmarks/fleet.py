"""What the client of a large fleet costs: 10,000 sessions over 200 devices that measure nothing.

Prints the client's time per session, its memory, and both again for a resume that finds
everything done. The journal is a real one, each session synced to disk.

    python benchmarks/fleet.py [SESSIONS DEVICES]
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "unit"))

from fleet_fixture import FleetOfFakes, fleet_plan

from ngraphbench.campaign import Campaign
from ngraphbench.store.rundir import RunDir

LIMIT_MS, LIMIT_MB = 50.0, 500.0


def main(sessions: int, devices: int) -> int:
    """Return 0 when both figures are below their limits."""
    plan = fleet_plan([f"device-{n}" for n in range(devices)], sessions // devices)
    total = len(plan.sessions)
    worst_ms = 0.0
    with tempfile.TemporaryDirectory(prefix="ngb-fleet-") as folder:
        for name in ("run", "resume"):
            engine = FleetOfFakes()
            campaign = Campaign(plan, RunDir.open(Path(folder), create=True), engine, _quiet)
            began, cpu = time.monotonic(), time.process_time()
            campaign.run()
            each_ms = (time.monotonic() - began) * 1e3 / total
            cpu_ms = (time.process_time() - cpu) * 1e3 / total
            asked = sum(map(len, engine.asked.values()))
            print(
                f"{name}: {asked} of {total} sessions over {devices} devices,"
                f" {each_ms:.2f} ms each ({cpu_ms:.2f} ms CPU)"
            )
            worst_ms = max(worst_ms, each_ms)
        cells = len(RunDir.open(Path(folder)).latest())
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{cells} cells recorded; peak memory of the client {peak_mb:.0f} MB")
    print(f"limits: {LIMIT_MS:g} ms per session, {LIMIT_MB:g} MB")
    return int(worst_ms > LIMIT_MS or peak_mb > LIMIT_MB)


def _quiet(event: object) -> None:
    """Watch a run by doing nothing."""


if __name__ == "__main__":
    sys.exit(main(*(map(int, sys.argv[1:]) if len(sys.argv) > 1 else (10_000, 200))))
