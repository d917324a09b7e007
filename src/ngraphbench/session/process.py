"""The parent's side of a worker: start it, ask it, watch it, stop it, end it.

A worker is its own process group. While a request waits, the parent sleeps in ``poll`` and
looks at the worker's memory and log between times.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NoReturn

from ngraphbench.errors import NGraphBenchError, WorkerFailed
from ngraphbench.session import proctree
from ngraphbench.session.guard import processes_with
from ngraphbench.session.workerlog import WorkerLog
from ngraphbench.types import Json
from ngraphbench.worker.failures import error_told
from ngraphbench.worker.protocol import ConnectionClosed, ProtocolError, send, take_message

__all__ = ["FD", "WorkerProcess"]

FD = "{fd}"
WORKER_VARIABLE = "NGB_WORKER"

TIMED = ("slot", "run", "block")
SLEEPY = ("slot", "block")
"""While these run, this process wakes up seldom."""
WATCH_S = 0.05
WATCH_IN_SLOT_S = 0.2
TREE_EVERY_S = 0.5
STOP_PATIENCE_S = 5.0
END_PATIENCE_S = 5.0
CLOSE_S = 5.0


class WorkerProcess:
    """A running worker. Made by ``spawn``; ends by ``close`` or ``kill``, or a failed request.

    The worker dies with the *thread* that spawned it (that is how Linux's parent-death
    signal works), so spawn from a thread that outlives it. ``origin`` is what a record says of
    an environment of its own, none for the interpreter at hand.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        sock: socket.socket,
        *,
        mark: str,
        log: WorkerLog,
        memory_bytes: int,
    ) -> None:
        self._process = process
        self._sock = sock
        self._mark = mark
        self._log = log
        self._memory_bytes = memory_bytes
        self._buffer = bytearray()
        self._requests = 0
        self._peak_bytes = 0
        self._below: list[int] = []
        self._below_read_at = 0.0
        self._stopped: list[int] = []
        self._ended = False
        self._oom_kills = proctree.kernel_oom_kills()
        self.origin: Json = {}

    @classmethod
    def spawn(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        log: Path,
        cwd: Path,
        memory_bytes: int,
        pass_fds: Sequence[int] = (),
    ) -> WorkerProcess:
        """Return a worker started with ``command``, in which ``{fd}`` stands for its socket.

        stdout and stderr are added to ``log``. Raises WorkerFailed when the command cannot
        be started.
        """
        mark = secrets.token_hex(8)
        with ExitStack() as undo:
            try:
                kept = WorkerLog(log)
                undo.callback(kept.close)
                ours, theirs = _socket_pair()
                undo.callback(ours.close)
                with theirs:
                    process = subprocess.Popen(
                        [part.replace(FD, str(theirs.fileno())) for part in command],
                        stdin=subprocess.DEVNULL,
                        stdout=kept.descriptor,
                        stderr=subprocess.STDOUT,
                        env={**env, WORKER_VARIABLE: mark},
                        cwd=cwd,
                        pass_fds=(theirs.fileno(), *pass_fds),
                        start_new_session=True,
                    )
            except OSError as error:
                raise WorkerFailed(
                    f"The worker cannot be started with {command[0]}: {error}.",
                    status="failed",
                    reason="spawn",
                    hint="Check the Python of the compiler's environment.",
                ) from error
            undo.pop_all()
        return cls(process, ours, mark=mark, log=kept, memory_bytes=memory_bytes)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def peak_rss_bytes(self) -> int:
        """The most memory seen in use by the worker and all below it."""
        return self._peak_bytes

    @property
    def log_truncated(self) -> bool:
        """Whether it printed so much that a part of its log was cut out."""
        return self._log.truncated

    def request(self, op: str, *, deadline_s: float, **fields: object) -> Json:
        """Return the worker's answer to ``op``; a stopped worker is resumed first.

        Raises the error the worker names (its traceback is the cause), or WorkerFailed,
        after which the worker is gone when its status is ``crashed`` or ``timeout``, or its
        reason ``memory`` was found from here (``detail["found_bytes"]``).
        """
        if self._ended:
            raise WorkerFailed(
                f"The worker was asked for {op} after its end.", status="crashed", reason="ended"
            )
        self.resume()
        self._requests += 1
        try:
            send(self._sock, {**fields, "id": self._requests, "op": op})
            answer = self._wait(op, deadline_s)
        except ConnectionClosed:
            self._raise_death(op)
        except ProtocolError as error:
            self.kill()
            raise WorkerFailed(
                f"{op}: the worker does not speak the protocol: {error}",
                status="failed",
                reason="protocol",
                detail={"log_tail": self._log.tail()},
            ) from error
        except BaseException:
            # Half a conversation cannot be gone on with: an interrupt ends the worker too.
            self.kill()
            raise
        if op != "slot":
            self._note_peak()
        if not answer.get("ok"):
            raise error_told(answer, op)
        return answer

    def suspend(self) -> None:
        """Stop the worker and all below it; returns when it has stopped. Idempotent.

        Raises WorkerFailed when it does not stop within seconds; one that is gone is left
        for the next request to tell.
        """
        if self._ended or self._stopped:
            return
        self._below = proctree.descendants(self.pid)
        self._signal_group(signal.SIGSTOP)
        proctree.send_signal(self._below, signal.SIGSTOP)
        self._stopped = [self.pid, *self._below]
        deadline = time.monotonic() + STOP_PATIENCE_S
        pause_s = 0.0002
        while proctree.state(self.pid) not in ("T", "t", "Z", "X", ""):
            if time.monotonic() > deadline:
                raise WorkerFailed(
                    f"The worker {self.pid} did not stop within {STOP_PATIENCE_S:g} s.",
                    status="failed",
                    reason="suspend",
                    hint="A driver may hold it; measure this compiler alone.",
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.01)

    def resume(self) -> None:
        """Let a stopped worker go on. Idempotent."""
        if self._ended or not self._stopped:
            return
        stopped, self._stopped = self._stopped, []
        self._signal_group(signal.SIGCONT)
        proctree.send_signal(stopped[1:], signal.SIGCONT)

    def close(self) -> None:
        """Ask the worker to end, and make it if it does not. Idempotent; raises nothing."""
        if not self._ended:
            with suppress(NGraphBenchError):
                self.request("close", deadline_s=CLOSE_S)
            deadline = time.monotonic() + CLOSE_S
            while not self._ended and self._fate() is None and time.monotonic() < deadline:
                time.sleep(0.005)
        self.kill()

    def kill(self) -> None:
        """End the worker and everything it started, daemons too. Idempotent."""
        if self._ended:
            return
        self._ended = True
        self._note_peak()
        known: set[int] = set()
        deadline = time.monotonic() + END_PATIENCE_S
        while True:
            # Until it is reaped, the worker's id, and so its group's, cannot be reused.
            below = proctree.descendants(self.pid)
            marked = processes_with(WORKER_VARIABLE, self._mark)
            known.update(below, marked)
            self._signal_group(signal.SIGKILL)
            proctree.send_signal({*below, *marked}, signal.SIGKILL)
            left = self._fate() is None or bool(marked)
            if not left or time.monotonic() > deadline:
                break
            time.sleep(0.005)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_PATIENCE_S)
        for pid in known:
            _reap_orphan(pid)
        self._log.trim()
        self._sock.close()
        self._log.close()

    def _wait(self, op: str, deadline_s: float) -> Json:
        deadline = time.monotonic() + deadline_s
        watch_s = WATCH_IN_SLOT_S if op in SLEEPY else WATCH_S
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        next_watch = time.monotonic() + watch_s
        while True:
            now = time.monotonic()
            if now >= deadline:
                self._raise_late(op, deadline_s)
            if now >= next_watch:
                self._log.trim()
                self._watch_memory(op)
                next_watch = time.monotonic() + watch_s
                if self._fate() is not None and not poll.poll(0):
                    # A process it forked may keep the socket open: no end of stream comes.
                    raise ConnectionClosed("The worker is gone.")
            if not poll.poll(max(0.0, min(next_watch, deadline) - time.monotonic()) * 1000 + 1):
                continue
            try:
                part = self._sock.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            except ConnectionResetError as error:
                raise ConnectionClosed("The worker is gone.") from error
            if not part:
                raise ConnectionClosed("The worker closed the connection.")
            self._buffer += part
            answer = take_message(self._buffer)
            if answer is not None:
                if answer.get("id") != self._requests:
                    raise ProtocolError(
                        f"answer {answer.get('id')!r} came for request {self._requests}"
                    )
                return answer

    def _watch_memory(self, op: str) -> None:
        now = time.monotonic()
        read_tree = now - self._below_read_at >= TREE_EVERY_S
        if read_tree:
            self._below = proctree.descendants(self.pid)
            self._below_read_at = now
        found_bytes = proctree.rss_bytes(self.pid)
        if self._below:
            found_bytes += sum(map(proctree.rss_bytes, self._below))
            if found_bytes <= self._memory_bytes and (op in TIMED or not read_tree):
                return
            # Forked children share pages, which RSS counts once for each of them; PSS does
            # not, but reading it holds up a process that is being timed.
            found_bytes = sum(map(proctree.pss_bytes, (self.pid, *self._below)))
        self._peak_bytes = max(self._peak_bytes, found_bytes)
        if found_bytes <= self._memory_bytes:
            return
        self.kill()
        raise WorkerFailed(
            f"{_said(op)} used {_mib(found_bytes)} MiB of memory; the limit is"
            f" {_mib(self._memory_bytes)} MiB.",
            status="oom",
            reason="memory",
            hint="Raise the memory limit, or use a smaller batch.",
            detail={"found_bytes": found_bytes, "limit_bytes": self._memory_bytes},
        )

    def _note_peak(self) -> None:
        self._peak_bytes = max(self._peak_bytes, proctree.peak_rss_bytes(self.pid))

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(OSError):
            os.killpg(self.pid, number)

    def _fate(self) -> tuple[int, int] | None:
        """Return (si_code, si_status) of a dead worker, leaving it unreaped; None if it lives."""
        try:
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:
            return (os.CLD_EXITED, self._process.returncode or 0)
        return None if found is None else (found.si_code, found.si_status)

    def _raise_late(self, op: str, deadline_s: float) -> NoReturn:
        self.kill()
        raise WorkerFailed(
            f"{_said(op)} did not finish within {round(deadline_s, 1):g} s.",
            status="timeout",
            reason="deadline",
            hint="Raise the time limit, if that may be a matter of patience.",
            detail={"log_tail": self._log.tail()},
        )

    def _raise_death(self, op: str) -> NoReturn:
        deadline = time.monotonic() + 2.0
        while (fate := self._fate()) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        self.kill()
        status, reason, hint = "crashed", "closed", "Its log may tell why."
        if fate is not None and fate[0] == os.CLD_EXITED:
            reason = f"exit:{fate[1]}"
        elif fate is not None:
            reason = f"signal:{proctree.signal_name(fate[1])}"
        if reason == "signal:SIGKILL":
            hint = "It was killed from outside, or by the kernel for memory."
            if proctree.kernel_oom_kills() > self._oom_kills:
                status, reason, hint = "oom", "kernel-oom", "Use a smaller batch or limit."
        raise WorkerFailed(
            f"{_said(op)} ended the process: {_told(reason)}.",
            status=status,
            reason=reason,
            hint=hint,
            detail={"log_tail": self._log.tail()},
        )


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    if theirs.fileno() < 3:  # standard streams of this process are closed
        moved = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 3)
        theirs.close()
        theirs = socket.socket(fileno=moved)
    return ours, theirs


def _reap_orphan(pid: int) -> None:
    # Orphans of a worker are this process's children when it is a subreaper.
    deadline = time.monotonic() + 0.2
    with suppress(OSError):
        while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.002)


_SAID = {
    "open": "Opening the model",
    "batch": "The reference run or the export",
    "import": "Importing the compiler",
    "compile": "Compiling",
    "load": "Loading inputs",
    "run": "Running",
    "outputs": "Reading outputs",
    "slot": "Running in a timed slot",
    "block": "Running in a solo block",
}


def _said(op: str) -> str:
    """Return what a worker does in ``op``, as the start of a sentence."""
    return _SAID.get(op, f"The operation {op}")


def _told(reason: str) -> str:
    kind, _, value = reason.partition(":")
    return {"exit": f"exit code {value}", "signal": f"signal {value}"}.get(kind, reason)


def _mib(size_bytes: int) -> int:
    return round(size_bytes / 1024**2)
