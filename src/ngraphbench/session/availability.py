"""Where each compiler works: in the interpreter at hand, in a managed environment, or nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ngraphbench.environments.interpreters import interpreter_tag
from ngraphbench.environments.managed import Environment, find_environment
from ngraphbench.environments.systemfiles import ROOT
from ngraphbench.errors import EnvironmentFailed, NGraphBenchError
from ngraphbench.locks import find_lock, request_for, size_text
from ngraphbench.plugin import Compiler, load_compiler
from ngraphbench.session.probing import probe_all
from ngraphbench.types import Device, Json, Support

__all__ = ["Availability", "accelerators", "survey"]

CPU = "cpu"
INTEL = "0x8086"
ACCELERATORS: Mapping[str, Mapping[str, str]] = {
    "cuda": {"dev/nvidia0": "", "dev/nvhost-gpu": "", "dev/nvmap": ""},
    "intel-gpu": {"sys/class/drm/renderD*/device/vendor": INTEL},
    "npu": {"sys/class/accel/accel*/device/vendor": INTEL},
}
"""Files by which an accelerator is known to be there, and what such a file then holds ("": may be
anything). Those of a Jetson, of Intel's GPUs and of NPUs are not yet run on hardware.
"""


@dataclass(frozen=True, slots=True)
class Availability:
    """What is known of one compiler on this machine.

    ``here`` and ``managed`` hold the answers of its probes by accelerator, for the CPU and what
    it takes of those that are there; the latter is empty where its ``environment`` was not made
    yet. ``compiler`` None: its plugin cannot be imported.
    ``lock``: there is one, and how large that gets.
    """

    name: str
    compiler: Compiler | None
    here: Mapping[str, Support]
    managed: Mapping[str, Support]
    environment: Environment | None = None
    lock: str = ""
    size_bytes: int | None = None

    @property
    def places(self) -> list[str]:
        """Where it works: ``here``, ``managed``; neither is ``no``."""
        both = {"here": self.here, "managed": self.managed}
        return [place for place, found in both.items() if any(s.ok for s in found.values())]

    @property
    def version(self) -> str:
        """The version that works, the one here first."""
        found = [*self.here.values(), *self.managed.values()]
        working = [support.version for support in found if support.ok and support.version]
        return next(iter(working), "")

    @property
    def devices(self) -> list[str]:
        """The accelerators it works on, one way or the other."""
        works = {a for found in (self.here, self.managed) for a, s in found.items() if s.ok}
        return [name for name in self.here if name in works]

    @property
    def left_out(self) -> dict[str, str]:
        """Accelerators that it takes and that are here, but cannot be used by it; and why."""
        asked = self.managed or self.here
        takes = self.compiler.accelerators if self.compiler and self.places else ()
        missing = [name for name in takes if name in asked and name not in self.devices]
        return {name: asked[name].hint for name in missing}

    @property
    def reason(self) -> str:
        """Why it does not work, in the words of its probe: in its environment, else here."""
        if self.places:
            return ""
        asked = self.managed or self.here
        return next((support.hint for support in asked.values()), "")

    @property
    def cure(self) -> str:
        """The command that makes it usable, where one is known and needed."""
        if self.places or self.managed or not self.lock:
            return ""
        return f"{self.command}   ({self.size})" if self.size else self.command

    @property
    def command(self) -> str:
        """The command that makes its environment."""
        return f"ngb env create {self.name}"

    @property
    def size(self) -> str:
        """About how large that gets, for people; empty where its lock does not say."""
        return size_text(self.size_bytes)

    def to_json(self) -> Json:
        """Return it with the keys of ``doctor --json``; ``ok`` is of the interpreter at hand."""
        first = next(iter(self.here.values()), Support(ok=False))
        return {
            **first.to_json(),
            "places": self.places,
            "devices": self.devices,
            "cure": self.cure,
            "lock": self.lock,
            "environment": self.environment.id if self.environment else "",
            "environment_state": self.environment.state if self.environment else "",
            "managed": {name: support.to_json() for name, support in self.managed.items()},
            "not_yet_run_on_hardware": bool(
                self.compiler and self.compiler.not_yet_run_on_hardware
            ),
            "accelerators_not_yet_run": list(
                self.compiler.accelerators_not_yet_run if self.compiler else ()
            ),
        }


def accelerators(*, root: Path = ROOT) -> list[str]:
    """Return ``cpu`` and what else this machine has."""
    return [CPU, *(name for name, signs in ACCELERATORS.items() if _is_there(signs, root))]


def _is_there(signs: Mapping[str, str], root: Path) -> bool:
    return any(
        not held or file.read_text(encoding="utf-8").strip() == held
        for pattern, held in signs.items()
        for file in root.glob(pattern)
    )


def survey(targets: Mapping[str, str], *, threads: int) -> list[Availability]:
    """Return what is known of each compiler in ``targets``; each is probed in its own process."""
    plugins = {name: _plugin(target) for name, target in targets.items()}
    environments = {name: _environment(plugin) for name, plugin in plugins.items()}
    pythons = {
        name: one.python for name, one in environments.items() if one and one.state == "ready"
    }
    here: dict[str, dict[str, Support]] = {name: {} for name in targets}
    managed: dict[str, dict[str, Support]] = {name: {} for name in targets}
    for accelerator in accelerators():
        device = Device(accelerator=accelerator, threads=threads)
        # All tell of the CPU why they do not run there; of others only those that might.
        asked = {
            name: target
            for name, target in targets.items()
            if accelerator == CPU or accelerator in _taken(plugins[name])
        }
        for name, support in probe_all(asked, device).items():
            here[name][accelerator] = support
        wanted = {name: asked[name] for name in pythons if name in asked}
        for name, support in probe_all(wanted, device, pythons=pythons).items():
            managed[name][accelerator] = support
    found = []
    for name, plugin in plugins.items():
        lock = find_lock(plugin.environment or plugin.name) if plugin else None
        found.append(
            Availability(
                name=name,
                compiler=plugin,
                here=here[name],
                managed=managed[name],
                environment=environments[name],
                lock=lock.name if lock else "",
                size_bytes=lock.size_bytes if lock else None,
            )
        )
    return found


def _taken(plugin: Compiler | None) -> tuple[str, ...]:
    return plugin.accelerators if plugin else ()


def _plugin(target: str) -> Compiler | None:
    try:
        return load_compiler(target)
    except NGraphBenchError:
        return None


def _environment(plugin: Compiler | None) -> Environment | None:
    if plugin is None:
        return None
    try:
        request = request_for(plugin.environment or plugin.name, distributions=plugin.packages)
    except EnvironmentFailed:
        return None
    return find_environment(request.id(interpreter_tag()))
