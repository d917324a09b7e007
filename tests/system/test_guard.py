from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ngraphbench.session import proctree
from ngraphbench.session.guard import become_subreaper, processes_with, start_guard, sweep

DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
time.sleep(600)
"""
AGENT = """
import os, subprocess, sys, time
from ngraphbench.session.guard import start_guard
token = sys.argv[1]
guard = start_guard(token)
env = {**os.environ, "NGB_SESSION": token}
subprocess.run([sys.executable, "-c", sys.argv[2]], env=env, check=True)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=env)
print(guard.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def token():
    name = f"test-{secrets.token_hex(8)}"
    yield name
    sweep(name)


def spawn(token: str, code: str = "import time; time.sleep(600)") -> subprocess.Popen[bytes]:
    env = {**os.environ, "NGB_SESSION": token}
    return subprocess.Popen([sys.executable, "-c", code], env=env)


def wait_until(condition, patience_s: float = 20) -> bool:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_daemons_go_when_the_agent_is_killed(token):
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, token, DAEMON], stdout=subprocess.PIPE, text=True
    )
    assert agent.stdout is not None
    guard = int(agent.stdout.readline())
    assert wait_until(lambda: len(processes_with("NGB_SESSION", token)) == 2)
    assert os.getsid(guard) == guard
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if wait_until(lambda: ignores(guard, signal.SIGHUP)):
            os.kill(guard, number)
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    agent.stdout.close()
    assert wait_until(lambda: not processes_with("NGB_SESSION", token))
    assert wait_until(lambda: proctree.state(guard) in ("", "Z"))


def test_stop_sweeps_and_ends(token):
    guard = start_guard(token)
    assert guard.pid not in processes_with("NGB_SESSION", token)
    process = spawn(token)
    assert wait_until(lambda: processes_with("NGB_SESSION", token) == [process.pid])
    guard.stop()
    guard.stop()
    assert process.wait(10) == -signal.SIGKILL


def test_a_sweep_takes_stopped_processes_and_only_its_own(token):
    mine, other = spawn(token), spawn(token + "0")
    try:
        assert wait_until(lambda: len(processes_with("NGB_SESSION", token)) == 1)
        mine.send_signal(signal.SIGSTOP)
        assert sweep(token) == 1
        assert mine.wait(10) == -signal.SIGKILL
        assert other.poll() is None
        assert sweep(token) == 0
    finally:
        other.kill()
        other.wait()


def test_orphans_come_to_a_subreaper():
    code = f"""
import os, subprocess, sys
from ngraphbench.session.guard import become_subreaper
assert become_subreaper()
code = "import os, time; pid = os.fork(); pid or time.sleep(600); pid and print(pid, flush=True)"
done = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
pid = int(done.stdout.readline()); done.wait()
parent = open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[1]
os.kill(pid, {int(signal.SIGKILL)})
sys.exit(0 if int(parent) == os.getpid() else 1)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert callable(become_subreaper)


def ignores(pid: int, number: signal.Signals) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigIgn:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
