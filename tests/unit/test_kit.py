from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ngraphbench.environments import host
from ngraphbench.environments.capture import padding, worker_environment
from ngraphbench.environments.kit import build_kit, worker_command
from ngraphbench.environments.systemfiles import quota_cpus
from ngraphbench.environments.topology import default_threads
from ngraphbench.errors import EnvironmentFailed
from ngraphbench.plugin import Compiler
from ngraphbench.types import Device


class Fake(Compiler):
    name = "fake"
    accepts = ("onnx",)
    threads_env = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    cache_env = ("TORCHINDUCTOR_CACHE_DIR",)

    def probe(self, device):
        raise AssertionError("A kit is made without its plugin.")

    def compile(self, workload, device, options):
        raise AssertionError("A kit is made without its plugin.")


def test_the_kit_is_made_once(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: build_kit(tmp_path / "new"), range(8)))
    assert len(set(made)) == 1
    assert [path.name for path in (tmp_path / "new").iterdir()] == [made[0].name]
    package = made[0] / "ngraphbench"
    assert (package / "worker" / "__main__.py").is_file()
    assert (package / "compilers" / "__init__.py").is_file()
    assert (package / "models" / "__init__.py").is_file()
    top = {path.name for path in package.glob("*.py")}
    assert top == {"__init__.py", "errors.py", "types.py", "workload.py", "plugin.py"}


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFailed, match="kit cannot be written"):
        build_kit(tmp_path / "file" / "kits")


def test_a_worker_from_the_kit_needs_nothing_of_the_client(tmp_path):
    kit = build_kit(tmp_path)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "import ngraphbench.worker.__main__ as m, ngraphbench;"
        "print(ngraphbench.__file__); print(sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(kit)], capture_output=True, text=True, check=True
    )
    place, modules = done.stdout.splitlines()
    assert Path(place).is_relative_to(kit)
    for name in ("typer", "pydantic", "rich", "scipy", "onnx", "torch", "ruamel"):
        assert f"'{name}'" not in modules


def test_the_compilers_of_the_kit_import_without_client_or_vendor(tmp_path):
    code = (
        "import importlib, pkgutil, sys; sys.path.insert(0, sys.argv[1]);"
        "import ngraphbench.compilers as c, ngraphbench.worker as w;"
        "[importlib.import_module(f'{p.__name__}.{m.name}')"
        " for p in (c, w) for m in pkgutil.iter_modules(p.__path__)];"
        "print(sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(build_kit(tmp_path))],
        capture_output=True,
        text=True,
        check=True,
    )
    for name in ("typer", "pydantic", "rich", "scipy", "onnx", "torch", "onnxruntime", "openvino"):
        assert f"'{name}'" not in done.stdout


def test_the_command_names_the_kit_and_a_place_for_the_socket(tmp_path):
    command = worker_command("/env/bin/python", tmp_path)
    assert command[0] == "/env/bin/python" and command[-2:] == [str(tmp_path), "{fd}"]
    assert worker_command("python", tmp_path, 7)[-1] == "7"


def test_the_environment_is_an_allow_list(tmp_path):
    inherited = {
        "PATH": "/bin",
        "HOME": "/home/user",
        "LC_ALL": "C",
        "OMP_NUM_THREADS": "64",
        "OPENBLAS_NUM_THREADS": "64",
        "OPENBLAS_CORETYPE": "Haswell",
        "CUDA_VISIBLE_DEVICES": "0",
        "TORCHINDUCTOR_CACHE_DIR": "/old",
        "CUDA_CACHE_PATH": "/old",
        "ORT_TENSORRT_CACHE_PATH": "/old",
        "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "1",
        "TORCH_EXTENSIONS_DIR": "/old",
        "HF_HUB_CACHE": "/downloads",
        "MALLOC_TRIM_THRESHOLD_": "1",
        "AWS_SECRET": "x",
        "LD_PRELOAD": "x.so",
    }
    got = worker_environment(
        compiler=Fake(), device=Device(threads=3), work=tmp_path, token="t", inherited=inherited
    )
    assert got["OMP_NUM_THREADS"] == got["MKL_NUM_THREADS"] == "3"
    assert got["NGB_SESSION"] == "t" and got["PYTHONHASHSEED"] == "0"
    assert got["OPENBLAS_CORETYPE"] == "Haswell" and got["CUDA_VISIBLE_DEVICES"] == "0"
    absent = {"OPENBLAS_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_", "AWS_SECRET", "LD_PRELOAD"}
    assert not absent & set(got)
    caches = {name for name in got if "CACHE" in name or "EXTENSIONS" in name}
    assert caches == {"XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "HF_HUB_CACHE"}
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TORCHINDUCTOR_CACHE_DIR"):
        assert Path(got[name]).is_dir() and Path(got[name]).is_relative_to(tmp_path)
    assert "NGB_PADDING" in got
    free = worker_environment(
        compiler=Fake(), device=Device(threads=0), work=tmp_path, token="t", inherited=inherited
    )
    assert not {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"} & set(free)
    assert got["HF_HOME"] == "/home/user/.cache/huggingface"
    assert got["TORCH_HOME"] == "/home/user/.cache/torch"


def test_no_credentials_reach_a_worker(tmp_path):
    names = ("PIP_INDEX_URL", "HTTPS_PROXY", "HF_TOKEN", "TORCH_API_KEY", "OV_PASSWORD")
    got = worker_environment(
        compiler=Fake(),
        device=Device(),
        work=tmp_path,
        token="t",
        inherited=dict.fromkeys(names, "planted"),
    )
    assert "planted" not in "".join(got.values())


def test_every_launch_has_an_environment_of_another_size(tmp_path):
    sizes = [len(padding(seed=0, epoch=epoch, key="a")) for epoch in range(8)]
    assert len(set(sizes)) > 4 and max(sizes) <= 4096
    assert sizes == [len(padding(seed=0, epoch=epoch, key="a")) for epoch in range(8)]
    assert sizes != [len(padding(seed=1, epoch=epoch, key="a")) for epoch in range(8)]
    assert sizes != [len(padding(seed=0, epoch=epoch, key="b")) for epoch in range(8)]
    got = worker_environment(
        compiler=Fake(), device=Device(), work=tmp_path, token="t", padding="xxx", inherited={}
    )
    assert got["NGB_PADDING"] == "xxx"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_facts_are_none_where_nothing_is_told(tmp_path):
    facts = host.host_facts(root=tmp_path)
    for key in ("physical_cores", "smt", "numa_nodes", "governor", "frequency_khz", "quota_cpus"):
        assert facts[key] is None
    assert facts["thp"] is None and facts["memory_bytes"] is None
    assert set(facts) == set(host.host_facts())
    assert host.disturbances(root=tmp_path) == []


def test_facts_of_a_made_host(tmp_path):
    cpu = "sys/devices/system/cpu"
    write(
        tmp_path,
        {
            "proc/cpuinfo": "processor : 0\nmodel name : Fast One\nflags : sse hypervisor avx\n",
            "proc/meminfo": "MemTotal:  1024 kB\n",
            f"{cpu}/cpu0/topology/core_id": "0\n",
            f"{cpu}/cpu0/topology/thread_siblings_list": "0-1\n",
            f"{cpu}/cpu1/topology/core_id": "0\n",
            f"{cpu}/cpu1/topology/thread_siblings_list": "0-1\n",
            f"{cpu}/cpu0/cpufreq/scaling_governor": "powersave\n",
            f"{cpu}/cpu0/cpufreq/cpuinfo_min_freq": "800000\n",
            f"{cpu}/cpu0/cpufreq/cpuinfo_max_freq": "3000000\n",
            "sys/devices/system/node/node0/x": "",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            "etc/os-release": 'PRETTY_NAME="Some Linux"\n',
            "proc/loadavg": "9999.5 1 1 2/300 4\n",
            "proc/pressure/cpu": "some avg10=31.50 avg60=0.02 avg300=0.63 total=7\n",
        },
    )
    facts = host.host_facts(root=tmp_path)
    assert facts["cpu_model"] == "Fast One" and facts["cpu_flags"] == ["avx", "hypervisor", "sse"]
    assert facts["physical_cores"] == 1 and facts["smt"] is True and facts["hypervisor"] is True
    assert facts["governor"] == "powersave" and facts["thp"] == "madvise"
    assert facts["frequency_khz"] == {"min": 800000, "max": 3000000}
    assert facts["memory_bytes"] == 1 << 20 and facts["os"] == "Some Linux"
    told = "\n".join(host.disturbances(root=tmp_path))
    assert "9999.5" in told and "31.50" in told and "powersave" in told


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "150000 100000\n"}, 1.5),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/docker/x\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
    ],
)
def test_quotas_of_both_cgroup_versions(tmp_path, files, quota):
    write(tmp_path, files)
    assert quota_cpus(root=tmp_path) == quota
    usable = len(os.sched_getaffinity(0))
    expected = usable if quota is None else max(1, min(usable, int(quota)))
    assert default_threads(root=tmp_path) == expected


def test_the_host_id_is_stable(tmp_path):
    assert host.host_id() == host.host_id()
    write(tmp_path, {"etc/machine-id": "abc\n", "proc/cpuinfo": "model name : One\n"})
    first = host.host_id(root=tmp_path)
    write(tmp_path, {"proc/cpuinfo": "model name : Two\n"})
    assert len(first) == 16 and host.host_id(root=tmp_path) != first
