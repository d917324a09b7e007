"""Whether two runs may be compared: which facts of machine, model and method differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from ngraphbench.analysis.tables import Cell, Evidence
from ngraphbench.case import canonical
from ngraphbench.types import Json

__all__ = ["Difference", "cell_differences", "disturbances", "session_differences"]

_HOST = (
    *("cpu_model", "cpu_flags", "logical_cpus", "physical_cores", "smt", "numa_nodes"),
    *("governor", "frequency_khz", "quota_cpus", "thp", "hypervisor", "affinity", "turbo"),
    *("energy_preference", "frequency_limits_khz", "on_battery", "power_mode"),
)
"""What a device is: where one of these differs, so does the machine."""

_DISTURBED = ("interference", "steal", "quota", "drift", "throttled")
"""Flags of a session that say: the machine did other things meanwhile."""

_HOST_TOLD = ("os", "kernel", "python", "memory_bytes")
"""What may be the very change whose effect is asked for, so it is told and no more."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that is not the same in both runs.

    ``what`` names it, ``where`` the cell or "" for the whole run. ``forbids`` says that figures
    must not be compared unless the user insists.
    """

    what: str
    before: str
    after: str
    where: str = ""
    forbids: bool = True

    @property
    def sentence(self) -> str:
        """The difference as people read it."""
        place = f" of {self.where}" if self.where else ""
        return f"{self.what}{place}: {self.before} before, {self.after} after"

    def to_json(self) -> Json:
        return asdict(self)


def session_differences(
    before: Evidence, after: Evidence, pairs: Iterable[tuple[str, str]]
) -> list[Difference]:
    """Return what differs between the sessions of two runs, each fact once.

    ``pairs`` are the ids of sessions whose cells are compared.
    """
    found: dict[Difference, None] = {}
    for one, other in pairs:
        left, right = before.sessions.get(one), after.sessions.get(other)
        if left is not None and right is not None:
            found.update(dict.fromkeys(_session(left, right)))
    return list(found)


def disturbances(evidence: Evidence, sessions: Iterable[str]) -> list[str]:
    """Return what disturbed these sessions: each flag of the machine with what was seen, once."""
    flags = (
        flag
        for session in sessions
        for flag in evidence.sessions.get(session, {}).get("flags", [])
        if flag["flag"] in _DISTURBED
    )
    told = (f"{f['flag']} ({f['detail']})" if f["detail"] else str(f["flag"]) for f in flags)
    return list(dict.fromkeys(told))


def _session(left: Json, right: Json) -> list[Difference]:
    found = [
        _of("profile", left["profile"]["name"], right["profile"]["name"]),
        _of("mode", left["mode"], right["mode"]),
        _of("method", left.get("conditions", {}), right.get("conditions", {})),
        *(_of(f"host {key}", left["host"].get(key), right["host"].get(key)) for key in _HOST),
    ]
    if left["profile"] != right["profile"] and found[0] is None:
        found.append(_of("the profile's settings", left["profile"], right["profile"]))
    told = [
        _of("tool version", left["tool_version"], right["tool_version"], forbids=False),
        *(
            _of(f"host {key}", left["host"].get(key), right["host"].get(key), forbids=False)
            for key in _HOST_TOLD
        ),
    ]
    return [one for one in (*found, *told) if one is not None]


def cell_differences(pairs: Sequence[tuple[Cell, Cell]]) -> list[Difference]:
    """Return what differs between cells that bear the same name, each fact once."""
    found: dict[Difference, None] = {}
    for before, after in pairs:
        found.update(dict.fromkeys(_cell(before, after)))
    return list(found)


def _cell(before: Cell, after: Cell) -> list[Difference]:
    left, right = before.record, after.record
    old, new = left["case"], right["case"]
    model = str(old["model"]["label"])
    place = f"{model}, {before.label}"
    return [
        one
        for one in (
            _of("model bytes", _short(old), _short(new), model),
            _of("inputs", old["model"]["inputs"], new["model"]["inputs"], model),
            _of("weights", left["weights"], right["weights"], model),
            _of("compiler options", *_options(old, new), place),
            _of("threads", old["device"]["threads"], new["device"]["threads"]),
            _of("CPUs", old["device"]["cpus"], new["device"]["cpus"]),
            _of("accelerator", old["device"]["accelerator"], new["device"]["accelerator"]),
            _of("version", *_versions(before, after), before.label, forbids=False),
        )
        if one is not None
    ]


def _short(case: Json) -> str:
    return str(case["model"]["content"])[:12]


def _options(old: Json, new: Json) -> tuple[Json, Json]:
    """Return the options that differ, as each side has them."""
    left, right = old["compiler"]["options"], new["compiler"]["options"]
    keys = [key for key in {**left, **right} if left.get(key) != right.get(key)]
    return {key: left.get(key) for key in keys}, {key: right.get(key) for key in keys}


def _versions(before: Cell, after: Cell) -> tuple[str, str]:
    old, new = (cell.record["environment"].get("compiler_version") for cell in (before, after))
    # A cell that never got to its compiler has no version.
    return (str(old), str(new)) if old and new else ("", "")


def _of(
    what: str, before: object, after: object, where: str = "", *, forbids: bool = True
) -> Difference | None:
    if before == after:
        return None
    if isinstance(before, list) and isinstance(after, list) and what == "host cpu_flags":
        before, after = sorted({*before} - {*after}), sorted({*after} - {*before})
    return Difference(what, _text(before), _text(after), where, forbids)


def _text(value: object) -> str:
    text = value if isinstance(value, str) else canonical(value)
    return text if len(text) <= 60 else text[:59] + "…"
