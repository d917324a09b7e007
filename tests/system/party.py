"""A third party with a compiler, a lock and a vendor, all tiny: what needs no network.

``build_party`` writes wheels of the vendor ``toyvendor`` in several versions, and a folder for
``PYTHONPATH`` with the plugin ``toyc``, its lock and its entry points. Version 3.0 crashes at
import. Numpy, which a worker needs, is a wheel that points at the one at hand.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import zipfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["VENDOR", "build_party", "installer_settings"]

VENDOR = "toyvendor"
WORK_US = {"1.0": 30000, "2.0": 500}
"""So far apart that no burst beside a few short slots can turn their order."""

_PLUGIN = """
from ngraphbench.compilers.fake import FakeCompiler
from ngraphbench.types import Support


class ToyCompiler(FakeCompiler):
    name = "toyc"
    packages = ("toyvendor",)

    def probe(self, device):
        try:
            import toyvendor
        except ImportError:
            return Support(ok=False, hint="pip install toyvendor")
        return Support(ok=True, version=toyvendor.__version__)

    def compile(self, workload, device, options):
        import toyvendor

        return super().compile(workload, device, {**options, "work_us": toyvendor.WORK_US})
"""


def write_wheel(folder: Path, name: str, version: str, files: Mapping[str, str]) -> Path:
    """Return the wheel of a pure package, written to ``folder``."""
    about = f"{name}-{version}.dist-info"
    whole = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    rows = [f"{path},{_hash(text)},{len(text.encode())}" for path, text in whole.items()]
    whole[f"{about}/RECORD"] = "\n".join([*rows, f"{about}/RECORD,,", ""])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for member, text in whole.items():
            wheel.writestr(member, text)
    return path


def build_party(root: Path) -> tuple[Path, Path]:
    """Return the folder of wheels and the one for ``PYTHONPATH``, both below ``root``."""
    import numpy as np

    wheels, site, real = root / "wheels", root / "site", root / "real"
    for folder in (wheels, site / "party_toyc", real):
        folder.mkdir(parents=True)
    for version, work_us in WORK_US.items():
        code = f"__version__ = {version!r}\nWORK_US = {work_us}\n"
        write_wheel(wheels, VENDOR, version, {f"{VENDOR}/__init__.py": code})
    crash = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    write_wheel(wheels, VENDOR, "3.0", {f"{VENDOR}/__init__.py": crash})
    package = Path(np.__file__).parent
    for place in (package, package.parent / "numpy.libs"):
        if place.exists():
            (real / place.name).symlink_to(place)
    version = importlib.metadata.version("numpy").partition("+")[0]
    write_wheel(wheels, "numpy", version, {"numpy_at_hand.pth": f"{real}\n"})
    (site / "party_toyc/__init__.py").write_text(_PLUGIN)
    (site / "party_toyc/toyc.in").write_text(f"# size: 1 MB\n{VENDOR}==1.0\nnumpy\n")
    (site / "party_toyc/toyc.txt").write_text(f"{VENDOR}==1.0\nnumpy=={version}\n")
    about = site / "party_toyc-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: party_toyc\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[ngraphbench.compilers]\ntoyc = party_toyc:ToyCompiler\n"
        "[ngraphbench.locks]\ntoyc = party_toyc\n"
    )
    return wheels, site


def installer_settings(wheels: Path) -> dict[str, str]:
    """Return the pip settings of a user who has these wheels and no index."""
    return {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_CONSTRAINT": "",
    }


def _hash(text: str) -> str:
    plain = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
    return f"sha256={plain.decode()}"
