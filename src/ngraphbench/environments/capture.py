"""The environment variables of a worker: an allow-list, so that the user's shell decides little."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ngraphbench.plugin import Compiler
from ngraphbench.types import Device

__all__ = ["worker_environment"]

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
    inherited: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the whole environment of one worker; makes its folders below ``work``.

    Home, temporary files and caches lie below ``work``; model downloads stay in the user's
    own caches. Thread counts are those of ``device``, never inherited. ``inherited`` is
    ``os.environ`` unless given.
    """
    outer = os.environ if inherited is None else inherited
    environment = {name: value for name, value in outer.items() if _is_passed(name)}
    user_caches = Path(outer.get("HOME") or Path.home()) / ".cache"
    environment.setdefault("HF_HOME", str(user_caches / "huggingface"))
    environment.setdefault("TORCH_HOME", str(user_caches / "torch"))

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

    environment |= dict.fromkeys(compiler.threads_env, str(device.threads))
    return environment | {
        "NGB_SESSION": token,
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }


def _is_passed(name: str) -> bool:
    if name.endswith("_NUM_THREADS"):
        return False
    return name in _PASSED or name.startswith(_PASSED_PREFIXES)
