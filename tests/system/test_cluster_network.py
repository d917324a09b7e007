"""A device in a network of its own: it can only dial out, and its link is cut for a minute.

They need root, ``ip`` and ``nsenter``, add an interface to this machine's network and take some
minutes: they run where ``NGRAPHBENCH_NETWORKS=1`` asks for them, and fail where they cannot.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from clusters import Fleet
from fake_runs import compiler, small_profile
from fleet_runs import check_alike, check_once, client, events, finish, fleet_plan, run_fleet
from networks import Network
from processes import listening_of, wait_until

from ngraphbench.engines.remote import Patience
from ngraphbench.store.rundir import RunDir
from ngraphbench.types import Json

pytest.importorskip("distributed", reason="needs the extra cluster")
pytest.importorskip("cryptography", reason="needs the extra cluster")
pytestmark = pytest.mark.slow

ASKED = "NGRAPHBENCH_NETWORKS"
CUT_S = 60


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    if not os.environ.get(ASKED):
        pytest.skip(f"{ASKED}=1 has these tests change this machine's network, as root")
    made = Network()
    yield made
    made.close()


@pytest.fixture(scope="module")
def fleet(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A scheduler and the device ``b`` on this machine, the device ``a`` across the cable."""
    folder = tmp_path_factory.mktemp("network")
    made = Fleet(folder, ["a", "b"], host=network.here, within={"a": network.within})
    try:
        yield made.start()
    finally:
        made.stop()


def test_a_device_that_can_only_dial_out_gives_the_same_records(
    fleet: Fleet, tmp_path: Path
) -> None:
    listening = listening_of(fleet.processes["agent-a"].pid)
    assert listening
    assert all(host.startswith("127.") for host, _ in listening), listening
    plan = fleet_plan(tmp_path, ["a"], sessions=2, compilers=[compiler(work_us=50)])
    run_fleet(tmp_path / "run", plan, fleet.described)
    records = check_once(tmp_path / "run", plan)
    check_alike([*records, *RunDir.open(tmp_path / "run").sessions()], tmp_path)
    assert all((tmp_path / "run" / r["measurement"]["samples"]).exists() for r in records)


def test_a_link_cut_for_a_minute_costs_no_cell_and_none_is_measured_twice(
    fleet: Fleet, network: Network, tmp_path: Path
) -> None:
    profile = small_profile(rounds=60, slot_ms=20)
    plan = fleet_plan(tmp_path, ["a", "b"], sessions=3, compilers=[compiler()], profile=profile)
    # As long as a user's client waits, not as long as those of other tests.
    patience = {"patience": asdict(Patience())}
    running = client(tmp_path / "run", plan, {**fleet.described, **patience})
    told: list[Json] = []
    for event in events(running):
        told.append(event)
        if event["event"] == "round" and event["device"] == "a":
            break
    assert network.carries()
    network.cut()
    try:
        assert not network.carries()
        assert not wait_until(lambda: running.poll() is not None, CUT_S), "the client gave up"
    finally:
        network.mend()
    mended = time.monotonic()
    told += finish(running)
    print(f"all was there {time.monotonic() - mended:.1f} s after the link was")
    records = check_once(tmp_path / "run", plan)
    assert {r["attempt"] for r in RunDir.open(tmp_path / "run").sessions()} == {0}
    assert sum(e["event"] == "session" and e["device"] == "a" for e in told) == 3
    for record in records:
        rows = (tmp_path / "run" / record["measurement"]["samples"]).read_text().splitlines()
        assert len(rows) == 1 + record["measurement"]["rounds"]
