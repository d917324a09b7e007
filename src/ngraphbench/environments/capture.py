"""The environment variables of a worker: an allow-list, so that the user's shell decides little."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path

from ngraphbench.places import home_folder
from ngraphbench.plugin import Compiler
from ngraphbench.redaction import is_secret
from ngraphbench.types import VENDOR_DEFAULT, Device

__all__ = ["PADDING_BYTES", "in_environment", "padding", "worker_environment"]

PADDING_BYTES = 4096
"""A page: the environment lies above the stack, so its size decides where the stack starts."""

_PASSED = (
    "PATH",
    "LD_LIBRARY_PATH",
    "LANG",
    "TZ",
    "PYTHONPATH",
    "SSL_CERT_FILE",
    "CC",
    "CXX",
    "VIRTUAL_ENV",
)
_PASSED_PREFIXES = (
    "LC_",
    "OPENBLAS_",
    "CUDA_",
    "NVIDIA_",
    "ORT_",
    "OV_",
    "OPENVINO_",
    "TORCH",
    "HF_",
)


def worker_environment(
    *,
    compiler: Compiler | type[Compiler],
    device: Device,
    work: Path,
    token: str,
    padding: str = "",
    inherited: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the whole environment of one worker; makes its folders below ``work``.

    Home, temporary files and caches lie below ``work``; model downloads stay in the user's
    own caches. Thread counts are those of ``device``, never inherited, and not set at all
    where the vendor's default decides. ``inherited`` is ``os.environ`` unless given.
    """
    outer = os.environ if inherited is None else inherited
    environment = {name: value for name, value in outer.items() if _is_passed(name)}
    home = home_folder(outer)
    if home is not None:
        environment.setdefault("HF_HOME", str(home / ".cache" / "huggingface"))
        environment.setdefault("TORCH_HOME", str(home / ".cache" / "torch"))

    folders = {
        "HOME": work / "home",
        "TMPDIR": work / "tmp",
        "XDG_CACHE_HOME": work / "cache" / "xdg",
        "XDG_CONFIG_HOME": work / "config",
    }
    folders |= {name: work / "cache" / name for name in compiler.cache_env}
    for name, folder in folders.items():
        folder.mkdir(parents=True, exist_ok=True)
        environment[name] = str(folder)

    if device.threads != VENDOR_DEFAULT:
        environment |= dict.fromkeys(compiler.threads_env, str(device.threads))
    return environment | {
        "NGB_SESSION": token,
        "NGB_PADDING": padding,
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }


def padding(*, seed: int, epoch: int, key: str) -> str:
    """Return what makes the environment of one launch 0 to 4096 bytes larger.

    The size of the environment shifts the stack, and some programs run several percent
    faster or slower for it (Mytkowicz et al., ASPLOS 2009). One size for a whole session
    would be a constant bias; a new one per launch makes it part of the launch spread.
    """
    return "x" * random.Random(f"padding/{seed}/{epoch}/{key}").randint(0, PADDING_BYTES)


def in_environment(given: Mapping[str, str], *, python: Path, virtual: bool) -> dict[str, str]:
    """Return a worker's variables for an interpreter that is not the one at hand.

    Nothing of this one's packages is seen there, and its own programs come first on PATH.
    ``virtual``: it belongs to a virtual environment; else the user's own packages are kept.
    """
    places = os.pathsep.join(filter(None, [str(python.parent), given.get("PATH", "")]))
    found = {k: v for k, v in given.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    if virtual:
        return found | {"PATH": places, "VIRTUAL_ENV": str(python.parent.parent)}
    home = home_folder()
    own = {} if home is None else {"PYTHONUSERBASE": str(home / ".local")}
    return found | {"PATH": places, **own}


def _is_passed(name: str) -> bool:
    if is_secret(name):
        # A worker needs none, and records name some variables.
        return False
    if name.endswith("_NUM_THREADS"):
        return False
    if ("CACHE" in name and not name.startswith("HF_")) or name == "TORCH_EXTENSIONS_DIR":
        # What others have compiled would make a cold compile warm; downloads do not.
        return False
    return name in _PASSED or name.startswith(_PASSED_PREFIXES)
