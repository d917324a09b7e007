"""The plugin contract: write one ``Compiler`` and one ``Program``, name them in an entry point.

Neither ever sees a clock: the worker times ``run`` and ``sync``. Importing a plugin module
must not import its vendor; do that inside the methods.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from ngraphbench.errors import SpecError, Unavailable, nearest
from ngraphbench.types import Arrays, Device, Json, Option, OptionValue, Support, TensorSpec
from ngraphbench.workload import Workload

__all__ = [
    "ENTRY_POINT_GROUP",
    "PRESET",
    "Compiler",
    "LoadsArtifact",
    "Program",
    "ReportsCoverage",
    "ReportsDeviceMemory",
    "ReportsTuning",
    "RunsConcurrently",
    "RunsPrebuilt",
    "SavesArtifact",
    "StartsItsWorker",
    "discover",
    "load_compiler",
    "package_version",
    "prebuilt_suffixes",
    "resolve_options",
]

ENTRY_POINT_GROUP = "ngraphbench.compilers"

PRESET = Option(
    name="preset",
    type="str",
    default="recommended",
    choices=("shipped", "recommended"),
    help="shipped: what a newcomer gets; recommended: what the documentation advises here",
)


class Program(ABC):
    """A compiled model, ready to run. It outlives nothing: ``close`` ends it."""

    @abstractmethod
    def load(self, inputs: Arrays) -> None:
        """Replace all inputs, moving them to the device. Raises RunFailed."""

    @abstractmethod
    def run(self) -> None:
        """Run once on the loaded inputs; may return before the device is done.

        Raises RunFailed, also after ``close``.
        """

    def sync(self) -> None:
        """Return when everything that was started has finished. Raises RunFailed."""
        return

    @abstractmethod
    def outputs(self) -> Arrays:
        """Return the last run's outputs by name, as arrays the caller owns. Raises RunFailed."""

    @abstractmethod
    def close(self) -> None:
        """Free everything; may be called twice."""


class Compiler(ABC):
    """A graph compiler. Subclasses set the class attributes and the two methods.

    ``accepts`` lists the forms it takes, best first: ``"onnx"``, ``"torch"``, ``"pt2"`` (a
    ``torch.export`` program, for environments that have torch but not the model's code).
    ``packages`` lists the distributions whose versions decide its results.
    ``threads_env`` names environment variables that must hold the thread count before
    the vendor is imported; ``cache_env`` names variables that hold a cache folder.
    ``environment`` is the lock of its own environment, its name unless it shares one.
    ``accelerators`` are those it takes, ``accelerators_not_yet_run`` those of them on which
    nobody ran it.
    ``quantises``: at precision ``int8`` it quantises the model by ``calibration_batches`` of the
    workload.
    """

    name: ClassVar[str]
    accepts: ClassVar[tuple[str, ...]]
    options: ClassVar[tuple[Option, ...]] = ()
    packages: ClassVar[tuple[str, ...]] = ()
    threads_env: ClassVar[tuple[str, ...]] = ("OMP_NUM_THREADS",)
    cache_env: ClassVar[tuple[str, ...]] = ()
    environment: ClassVar[str] = ""
    default: ClassVar[bool] = True
    quantises: ClassVar[bool] = False
    not_yet_run_on_hardware: ClassVar[bool] = False
    accelerators: ClassVar[tuple[str, ...]] = ("cpu",)
    accelerators_not_yet_run: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def probe(self, device: Device) -> Support:
        """Return whether the compiler works here. Never raises."""

    @abstractmethod
    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> Program:
        """Return a fully built program for the workload's batch, shapes and precision.

        Raises Unsupported for what it does not do, CompileFailed for what went wrong.
        """


@runtime_checkable
class ReportsCoverage(Protocol):
    """A program that can say what the compiler really executed.

    ``coverage()`` returns JSON. ``share`` is how much of the model's work ran in what was
    compiled, for the device that was asked for, 0 to 1, or None where that is not known;
    ``unit`` says of what: ``"flops"`` or ``"nodes"``. Below 0.95 a program is not ranked, nor
    where ``share`` is None and ``partly`` says why some of it surely ran elsewhere.
    ``items`` is how many items a call computes, where those are more than the batch size: figures
    are of the items asked for, and the cell is flagged ``batch-padded``.
    ``parts`` may count by who executed, ``notes`` say more in sentences; other keys are free.
    """

    def coverage(self) -> Json: ...


@runtime_checkable
class ReportsDeviceMemory(Protocol):
    """A program that knows how much device memory it holds."""

    def device_memory_bytes(self) -> int: ...


@runtime_checkable
class ReportsTuning(Protocol):
    """A program whose compile began with a search over measured variants.

    ``tuning_s()`` returns how many seconds of that compile the search took, nearly none where
    what it needed was known already, None where there was no search. They are kept apart from
    the time to compile.
    """

    def tuning_s(self) -> float | None: ...


@runtime_checkable
class SavesArtifact(Protocol):
    """A program whose compiled form can be written to a folder.

    It is asked once, after timing: later launches then load what was written.
    """

    def save(self, folder: Path) -> None:
        """Write to ``folder``, which is there and empty. Raises Unsupported."""


@runtime_checkable
class LoadsArtifact(Protocol):
    """A compiler that can start from what ``SavesArtifact.save`` wrote in another process.

    The program must be the one that was saved: the same kernels, no compiling anew. Where
    that cannot be had, leave this out and each launch compiles.
    """

    def load_artifact(
        self,
        folder: Path,
        workload: Workload,
        device: Device,
        options: Mapping[str, OptionValue],
    ) -> Program:
        """Return the program as ``compile`` does. Raises CompileFailed."""


@runtime_checkable
class StartsItsWorker(Protocol):
    """A compiler whose worker is a command of its own, which speaks the worker protocol."""

    def worker_command(self, options: Mapping[str, OptionValue]) -> list[str]:
        """Return the command, to which the number of its socket is added. Raises Unavailable."""


@runtime_checkable
class RunsConcurrently(Protocol):
    """A program that can hold several requests in flight.

    ``lanes(count)`` returns that many programs over this one's compiled form, each with its
    own inputs and outputs. Each is loaded, run and read by a thread of its own, all at the
    same time; closing one leaves the others and this program alone. What limits them, such
    as the interpreter's lock, may be said in a string attribute ``lanes_note``.
    """

    def lanes(self, count: int) -> Sequence[Program]: ...


@runtime_checkable
class RunsPrebuilt(Protocol):
    """A compiler that runs files which it, or a tool of its vendor's, made elsewhere.

    ``prebuilt`` maps the suffix of such a file to the suffixes of files that belong to it and
    have the same stem, such as weights.
    """

    prebuilt: Mapping[str, tuple[str, ...]]

    def signature(
        self, path: Path, given: Sequence[TensorSpec]
    ) -> tuple[Sequence[TensorSpec], Sequence[TensorSpec]]:
        """Return the file's inputs and outputs, in its order; dims that are free are names.

        ``given`` is what the user says of its inputs, for files that do not tell. Raises
        CompileFailed for a file that cannot be read, Unsupported where too little is known.
        """

    def open_prebuilt(
        self, path: Path, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> Program:
        """Return the program in the file as it is. Raises Unsupported or CompileFailed."""


def prebuilt_suffixes() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return whose artefact a file is by its suffix: a compiler's name, and what belongs to it."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, target in discover().items():
        with suppress(Unavailable):
            compiler = load_compiler(target)
            if isinstance(compiler, RunsPrebuilt):
                found |= {suffix: (name, more) for suffix, more in compiler.prebuilt.items()}
    return found


def discover() -> dict[str, str]:
    """Return every installed compiler's name with its ``module:attribute``, none imported."""
    points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    return {point.name: point.value for point in sorted(points, key=lambda p: p.name)}


def load_compiler(target: str) -> Compiler:
    """Return an instance of the compiler at ``module:attribute``.

    Raises Unavailable when the plugin's own module cannot be imported.
    """
    module_name, _, attribute = target.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise Unavailable(
            f"The compiler plugin {target} cannot be imported: {error}.",
            reason="plugin-import",
            hint="Install the package that provides it, or fix its entry point.",
        ) from error
    compiler = found() if isinstance(found, type) else found
    if not isinstance(compiler, Compiler):
        raise Unavailable(
            f"{target} is a {type(compiler).__name__}, not an ngraphbench.plugin.Compiler.",
            reason="plugin-type",
            hint="Its entry point must name a Compiler subclass.",
        )
    return compiler


def package_version(*names: str) -> str:
    """Return the installed version of the first distribution that is there, else ``""``."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def resolve_options(
    compiler: Compiler, given: Mapping[str, OptionValue | str]
) -> dict[str, OptionValue]:
    """Return every declared option with its value: given, else preset's, else default.

    Strings are converted to the declared type. Raises SpecError for an unknown option, a
    value of the wrong type, or one that is not among the choices.
    """
    declared = {option.name: option for option in compiler.options}
    for name in given:
        if name not in declared:
            raise SpecError(
                f"{compiler.name} has no option {name!r}.",
                key=name,
                reason="unknown-option",
                hint=nearest(name, sorted(declared), what="It has:") or "It has no options.",
            )
    preset = ""
    if "preset" in declared:
        preset = str(_converted(compiler, declared["preset"], given.get("preset")))
    resolved: dict[str, OptionValue] = {}
    for name, option in declared.items():
        if name in given:
            resolved[name] = _converted(compiler, option, given[name])
        else:
            resolved[name] = option.presets.get(preset, option.default)
    return resolved


def _converted(compiler: Compiler, option: Option, value: OptionValue | None) -> OptionValue:
    if value is None:
        return option.default
    result = _typed(option, value)
    if result is None:
        raise SpecError(
            f"{compiler.name}: option {option.name} takes a {option.type}, not {value!r}.",
            key=option.name,
            reason="option-type",
            hint=option.help,
        )
    if option.choices and result not in option.choices:
        raise SpecError(
            f"{compiler.name}: option {option.name} cannot be {value!r}.",
            key=option.name,
            reason="option-value",
            hint=f"Choose from {', '.join(map(str, option.choices))}.",
        )
    if option.minimum is not None and not isinstance(result, str) and result < option.minimum:
        raise SpecError(
            f"{compiler.name}: option {option.name} must be at least {option.minimum:g},"
            f" not {value!r}.",
            key=option.name,
            reason="option-value",
        )
    return result


_BOOLS = {"true": True, "yes": True, "1": True, "on": True}
_BOOLS |= {"false": False, "no": False, "0": False, "off": False}


def _typed(option: Option, value: OptionValue) -> OptionValue | None:
    if option.type == "bool":
        return value if isinstance(value, bool) else _BOOLS.get(str(value).lower())
    if isinstance(value, bool):
        return None
    try:
        if option.type == "int":
            return int(value) if float(value) == int(float(value)) else None
        if option.type == "float":
            return float(value)
    except (ValueError, OverflowError):
        return None
    return str(value)
