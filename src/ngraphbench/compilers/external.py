"""A worker of any language: a command that speaks the worker protocol (docs/protocol.md)."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from ngraphbench.errors import Unavailable
from ngraphbench.plugin import Compiler, Program
from ngraphbench.types import Device, Option, OptionValue, Support
from ngraphbench.workload import Workload

__all__ = ["External"]


class External(Compiler):
    """What a command of the user's compiles and runs; it answers for itself."""

    name: ClassVar[str] = "external"
    accepts: ClassVar[tuple[str, ...]] = ("onnx", "torch")
    default: ClassVar[bool] = False
    quantises: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            name="command",
            type="str",
            default="",
            help="what starts the worker; the number of its socket is added as last argument",
        ),
        Option(name="variant", type="str", default="", help="handed on; tells two runs apart"),
    )

    def probe(self, device: Device) -> Support:
        return Support(ok=True, version="protocol 1", hint="")

    def worker_command(self, options: Mapping[str, OptionValue]) -> list[str]:
        """Return the command's words. Raises Unavailable where it cannot be found."""
        words = shlex.split(str(options.get("command", "")))
        program = shutil.which(words[0]) if words else None
        if program is None:
            asked = (
                f"there is no program {words[0]!r} that can be run" if words else "none is named"
            )
            raise Unavailable(
                f"external runs a command, and {asked}.",
                reason="command",
                hint="Name it as `external:command=./my-runner`, with its path or on PATH.",
            )
        return [str(Path(program).absolute()), *words[1:]]

    def compile(
        self, workload: Workload, device: Device, options: Mapping[str, OptionValue]
    ) -> Program:
        raise Unavailable(
            "external compiles in its command's own process, not in Python.", reason="command"
        )
