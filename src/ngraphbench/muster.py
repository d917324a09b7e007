"""From an experiment to the devices it names: their engine, the plan, and who is still awaited."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ngraphbench.campaign import Arrivals
from ngraphbench.engines.fleet import LOCAL, Cluster, FleetEngine
from ngraphbench.engines.local import LocalEngine
from ngraphbench.errors import NGraphBenchError
from ngraphbench.locks import is_path
from ngraphbench.plan import Plan, make_plan
from ngraphbench.plugin import discover, load_compiler
from ngraphbench.spec import Experiment, parse_compiler
from ngraphbench.spec_values import split_device

__all__ = ["Fleet", "Muster", "muster"]


@dataclass(frozen=True, slots=True)
class Fleet:
    """Where devices are found: a scheduler's address, the certificates for it, and how long those
    that are not there are waited for at the end, in seconds.
    """

    address: str = ""
    certificates: Path | None = None
    wait_s: float = 0.0


@dataclass(slots=True)
class Muster:
    """An engine that reaches the devices, the plan of those that are there, and the others.

    ``late`` holds the plans of devices that joined later.
    """

    engine: LocalEngine | FleetEngine
    plan: Plan
    arrivals: Arrivals = field(default_factory=Arrivals)
    late: list[Plan] = field(default_factory=list)


@contextmanager
def muster(experiment: Experiment, *, base: Path, fleet: Fleet | None = None) -> Iterator[Muster]:
    """Yield the engine and the plan of an experiment; its links are closed at the end.

    Raises SpecError, and ClusterError when none of the devices can be reached.
    """
    compilers = discover()
    packages = {package for target in compilers.values() for package in _packages(target)}
    named = [*experiment.compilers, parse_compiler(experiment.baseline or "none")]
    places = [spec.version for spec in named if is_path(spec.version)]
    if {split_device(text)[0] for text in experiment.devices} <= {LOCAL}:
        engine = LocalEngine(packages, places)
        facts = engine.devices()
        yield Muster(engine, make_plan(experiment, base=base, compilers=compilers, facts=facts))
        return
    given = fleet or Fleet()
    many = FleetEngine(
        experiment.devices,
        packages=packages,
        interpreters=places,
        cluster=_cluster(given),
    )
    try:
        yield _gathered(experiment, many, base=base, compilers=compilers, wait_s=given.wait_s)
    finally:
        many.close()


def _gathered(
    experiment: Experiment,
    engine: FleetEngine,
    *,
    base: Path,
    compilers: dict[str, str],
    wait_s: float,
) -> Muster:
    facts = engine.devices()
    if not facts and not wait_s:
        raise next(iter(engine.absent.values()))

    def plan_for(found: dict[str, object]) -> Plan:
        texts = [text for text in experiment.devices if split_device(text)[0] in found]
        asked = experiment.model_copy(update={"devices": texts})
        return make_plan(asked, base=base, compilers=compilers, facts=found)

    def look(name: str) -> Plan | None:
        found = engine.look(name)
        if found is None:
            return None
        result.late.append(plan_for({name: found}))
        return result.late[-1]

    plan = plan_for(facts) if facts else Plan(experiment.name, ())
    result = Muster(engine, plan, Arrivals(tuple(engine.absent), look, wait_s))
    return result


def _cluster(fleet: Fleet) -> Cluster | None:
    if not fleet.address:
        return None
    from ngraphbench.engines.daskcluster import DaskCluster

    return DaskCluster(fleet.address, fleet.certificates)


def _packages(target: str) -> tuple[str, ...]:
    try:
        return load_compiler(target).packages
    except NGraphBenchError:
        # A plugin that cannot be imported is told of by doctor, and in its cells' records.
        return ()
