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
from ngraphbench.session.endings import death, late, over_memory
from ngraphbench.session.guard import TOKEN_VARIABLE, processes_with
from ngraphbench.session.memorygroup import MemoryGroup, group_name
from ngraphbench.session.replies import check_reply
from ngraphbench.session.residue import SharedMemory
from ngraphbench.session.wording import leftovers
from ngraphbench.session.workerlog import WorkerLog
from ngraphbench.types import Json
from ngraphbench.worker.failures import error_told
from ngraphbench.worker.protocol import (
    ConnectionClosed,
    ProtocolError,
    packed,
    send_packed,
    take_message,
)

__all__ = ["FD", "WorkerProcess"]

FD = "{fd}"
WORKER_VARIABLE = "NGB_WORKER"

TIMED = ("slot", "run", "block")
SLEEPY = ("slot", "block")
"""While these run, this process wakes up seldom."""
WATCH_S = 0.05
WATCH_IN_SLOT_S = 0.2
WATCH_IN_GROUP_S = 1.0  # in a slot too, where the kernel keeps the limit
TREE_EVERY_S = 0.5
STOP_PATIENCE_S = 5.0
END_PATIENCE_S = 5.0
CLOSE_S = 5.0
LINGER_S = 1.0
"""For so long a worker's own processes may outlive it."""


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
        group: MemoryGroup | None = None,
    ) -> None:
        self._process = process
        self._sock = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
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
        self._group = group
        self._shared = SharedMemory()
        self._seen: set[int] = {process.pid}
        self.origin: Json = {}
        self._closed = False
        self._left_processes = 0
        self._left_bytes = 0

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
        group = MemoryGroup.make(group_name(env.get(TOKEN_VARIABLE, ""), mark), memory_bytes)
        with ExitStack() as undo:
            if group is not None:
                undo.callback(group.remove)
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
        if group is not None:
            group.add(process.pid)
        return cls(process, ours, mark=mark, log=kept, memory_bytes=memory_bytes, group=group)

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

    @property
    def leftovers(self) -> str:
        """What it left when it had ended in good order, in words; empty for next to nothing."""
        return leftovers(self._left_processes, self._left_bytes)

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
            message = {**fields, "id": self._requests, "op": op}
            answer = self._exchange(op, packed(message), deadline_s)
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
        check_reply(op, answer)
        return answer

    def suspend(self) -> None:
        """Stop the worker and all below it; returns when it has stopped. Idempotent.

        Raises WorkerFailed when it does not stop within seconds; one that is gone is left
        for the next request to tell.
        """
        if self._ended or self._stopped:
            return
        self._find_below()
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
        # Who is stopped starts nothing: the tree is as it was found then.
        self._below_read_at = time.monotonic()
        self._signal_group(signal.SIGCONT)
        proctree.send_signal(stopped[1:], signal.SIGCONT)

    def close(self) -> None:
        """Ask the worker to end, and make it if it does not. Idempotent; raises nothing."""
        if not self._ended:
            self._shared.note([self.pid, *proctree.descendants(self.pid)])
            with suppress(NGraphBenchError):
                self.request("close", deadline_s=CLOSE_S)
            deadline = time.monotonic() + CLOSE_S
            while not self._ended and self._fate() is None and time.monotonic() < deadline:
                time.sleep(0.005)
        if not self._ended and self._fate() is not None:
            self._closed = True
            deadline = time.monotonic() + LINGER_S
            while (left := self._others()) and time.monotonic() < deadline:
                time.sleep(0.02)
            self._left_processes = len(left)
        self.kill()

    def kill(self) -> None:
        """End the worker and everything it started, daemons too. Idempotent."""
        if self._ended:
            return
        self._ended = True
        self._note_peak()
        self._shared.note([self.pid, *proctree.descendants(self.pid)])
        known: set[int] = set()
        deadline = time.monotonic() + END_PATIENCE_S
        while True:
            # Until it is reaped, the worker's id, and so its group's, cannot be reused.
            below, others = proctree.descendants(self.pid), self._others()
            known.update(below, others)
            self._signal_group(signal.SIGKILL)
            proctree.send_signal({*below, *others}, signal.SIGKILL)
            left = self._fate() is None or bool(others)
            if not left or time.monotonic() > deadline:
                break
            time.sleep(0.005)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_PATIENCE_S)
        for pid in known:
            proctree.reap(pid)
        if self._group is not None:
            self._group.remove()
        left_bytes = self._shared.clear(self._seen | known)
        # Who was killed could not clear up.
        self._left_bytes = left_bytes if self._closed else 0
        self._log.trim()
        self._sock.close()
        self._log.close()

    def _others(self) -> set[int]:
        """Return the ids of all that is left of the worker but itself, also of what broke away."""
        members = self._group.members() if self._group is not None else []
        return {*processes_with(WORKER_VARIABLE, self._mark), *members} - {self.pid}

    def _exchange(self, op: str, packet: bytes, deadline_s: float) -> Json:
        seldom_s = WATCH_IN_SLOT_S if self._group is None else WATCH_IN_GROUP_S
        watch_s = seldom_s if op in SLEEPY else WATCH_S
        began = time.monotonic()
        deadline, next_watch = began + deadline_s, began + watch_s
        wait_ms = min(watch_s, deadline_s) * 1000 + 1
        send_packed(self._sock, packet)
        # The worker computes from here on: this process does nothing more before it sleeps.
        while True:
            if self._poll.poll(wait_ms):
                answer = self._taken()
                if answer is not None:
                    return answer
            now = time.monotonic()
            if now >= deadline:
                self._raise_late(op, deadline_s)
            if now >= next_watch:
                self._log.trim()
                self._watch_memory(op)
                next_watch = time.monotonic() + watch_s
                if self._fate() is not None and not self._poll.poll(0):
                    # A process it forked may keep the socket open: no end of stream comes.
                    raise ConnectionClosed("The worker is gone.")
            wait_ms = max(0.0, min(next_watch, deadline) - time.monotonic()) * 1000 + 1

    def _taken(self) -> Json | None:
        """Return the answer if it is whole by now."""
        try:
            part = self._sock.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except ConnectionResetError as error:
            raise ConnectionClosed("The worker is gone.") from error
        if not part:
            raise ConnectionClosed("The worker closed the connection.")
        self._buffer += part
        answer = take_message(self._buffer)
        if answer is not None and answer.get("id") != self._requests:
            raise ProtocolError(f"answer {answer.get('id')!r} came for request {self._requests}")
        return answer

    def _find_below(self) -> None:
        self._below = proctree.descendants(self.pid)
        self._seen.update(self._below)
        self._below_read_at = time.monotonic()

    def _watch_memory(self, op: str) -> None:
        read_tree = time.monotonic() - self._below_read_at >= TREE_EVERY_S
        if read_tree:
            self._find_below()
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
        raise over_memory(op, found_bytes=found_bytes, limit_bytes=self._memory_bytes)

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
        raise late(op, deadline_s, log_tail=self._log.tail())

    def _raise_death(self, op: str) -> NoReturn:
        deadline = time.monotonic() + 2.0
        while (fate := self._fate()) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        limited = self._group is not None and self._group.kills() > 0
        self.kill()
        raise death(
            op,
            fate,
            limit_bytes=self._memory_bytes if limited else None,
            starved=proctree.kernel_oom_kills() > self._oom_kills,
            log_tail=self._log.tail(),
        )


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    if theirs.fileno() < 3:  # standard streams of this process are closed
        moved = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 3)
        theirs.close()
        theirs = socket.socket(fileno=moved)
    return ours, theirs
