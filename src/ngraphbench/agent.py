"""The agent: runs one session on this device, in its own process, and returns its records.

``python -m ngraphbench.agent`` reads a message from the file named first, writes events as
JSON lines to the descriptor named second, and leaves the records in the spool. Only one
measurement runs on a machine at a time: the host lock sees to that, and is inherited by the
workers, so that it holds for as long as any of them lives.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import secrets
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import IO, Any

from ngraphbench.case import Case, Session
from ngraphbench.environments.capture import padding, worker_environment
from ngraphbench.environments.host import host_facts
from ngraphbench.environments.kit import build_kit, plugin_folder, worker_command
from ngraphbench.errors import EnvironmentFailed, NGraphBenchError, WorkerFailed
from ngraphbench.plugin import StartsItsWorker, discover, load_compiler
from ngraphbench.redaction import own_redaction
from ngraphbench.session.conductor import Conductor, Emit, Spawn
from ngraphbench.session.entrants import SENTINEL
from ngraphbench.session.guard import TOKEN_VARIABLE, become_subreaper, start_guard, sweep
from ngraphbench.session.launches import believed, learn, learn_from_twins
from ngraphbench.session.memorygroup import groups_folder
from ngraphbench.session.process import FD, WorkerProcess
from ngraphbench.session.provision import Provision
from ngraphbench.session.recording import make_records
from ngraphbench.session.state import Site
from ngraphbench.stats import Launch
from ngraphbench.store.disk import make_folders, trouble, write_whole
from ngraphbench.store.samples import block_file, read_samples, sample_file
from ngraphbench.summary import compare, launch_of
from ngraphbench.types import Json
from ngraphbench.worker.__main__ import die_with_parent

__all__ = ["EXIT_INTERRUPTED", "RECORDS", "host_lock", "main", "open_lock", "run", "spool_folder"]

RECORDS = "records.jsonl"
LOCK_PATH = "/tmp/ngraphbench-host.lock"
"""Not under TMPDIR: users with different ones share the machine all the same."""
LOCK_VARIABLE = "NGRAPHBENCH_LOCK"
EXIT_FAILED, EXIT_INTERRUPTED = 3, 130
LOCK_EVERY_S = 0.5
TWINS_CONFIDENCE = 0.95


def spool_folder(run: Path, session: Session) -> Path:
    """Return the folder a session works in until its records are collected."""
    return run / "spool" / session.session_id


@contextmanager
def host_lock(emit: Emit, stop: Callable[[], bool] = lambda: False) -> Iterator[int]:
    """Hold the lock that lets one measurement run on this machine; yields its descriptor.

    Waits for the holder, and tells ``emit`` who that is. Raises KeyboardInterrupt when
    ``stop()`` comes true meanwhile, EnvironmentFailed when the lock cannot be opened.
    """
    descriptor = open_lock(Path(os.environ.get(LOCK_VARIABLE, LOCK_PATH)))
    told = False
    try:
        while not _locked(descriptor):
            if stop():
                raise KeyboardInterrupt
            if not told:
                holder = os.pread(descriptor, 64, 0).decode("ascii", "replace").strip()
                emit({"event": "waiting", "text": f"another measurement runs here ({holder})"})
                told = True
            time.sleep(LOCK_EVERY_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()}".encode("ascii"), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def open_lock(path: Path) -> int:
    """Return a descriptor of the lock's file, made if need be, which all users may write.

    Raises EnvironmentFailed where that cannot be, as for a link.
    """
    # Anyone may put a link there, and whoever holds the lock writes into the file.
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        descriptor = os.open(path, flags | os.O_CREAT, 0o666)
    except OSError as error:
        raise EnvironmentFailed(
            f"The lock {path}, which lets one measurement run on this machine, cannot be"
            f" opened: {error.strerror}.",
            reason="host-lock",
            hint=f"Remove it, or set {LOCK_VARIABLE} to a file that all users here can write.",
        ) from error
    with suppress(OSError):
        # Whoever measures here next may be another user, and the umask another one's too.
        os.fchmod(descriptor, 0o666)
    return descriptor


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(slots=True)
class Stop:
    """Set by the first interrupt; the conductor asks it between slots."""

    asked: bool = False

    def __call__(self) -> bool:
        return self.asked

    def ask(self, *_: object) -> None:
        if self.asked:
            # The second interrupt: stop at once. Finished epochs are on disk already.
            raise KeyboardInterrupt
        self.asked = True


def run(message: str, *, emit: Emit, stop: Callable[[], bool] = lambda: False) -> str:
    """Return the session's outcome as JSON: ``{"finished", "records", "deferred"}``.

    ``message`` is JSON: ``{"run": folder, "session": Session}``, and ``folders`` of ``Site``
    where there are some. ``finished`` is false when an interrupt ended it; then no record is
    made, and the next run goes on after the last finished epoch.
    """
    order = json.loads(message)
    session, folder = Session.from_json(order["session"]), Path(order["run"])
    spool = spool_folder(folder, session)
    make_folders(spool)
    done = spool / RECORDS
    if done.exists():
        return done.read_text(encoding="utf-8")
    with host_lock(emit, stop) as lock_fd, _guarded() as token:
        site = Site(folder, spool, build_kit(spool), token, lock_fd, order.get("folders", {}))
        if not site.state.exists():
            # The first launch says what a cold compile costs: no caches of a broken-off one.
            shutil.rmtree(site.work(""), ignore_errors=True)
        known = believed(session.method.claim, launches=session.profile.epochs)
        mark = {TOKEN_VARIABLE: token}
        with Provision(session, emit, stop, mark, site.logs) as provision:
            conductor = Conductor(
                session,
                site,
                _spawner(site, session, provision),
                emit,
                stop,
                launch_prior=known.launch(session.method.claim),
                ready=provision.provide,
            )
            if not conductor.run():
                return json.dumps({"finished": False, "records": [], "deferred": []})
        for case in session.cases if session.keep_artifacts else ():
            site.keep_artifact(case.case_id[:16])
        shutil.rmtree(site.work(""), ignore_errors=True)
    made = make_records(
        session,
        conductor.state,
        read=lambda key: _samples(site, sample_file(key)),
        read_blocks=lambda key: _samples(site, block_file(key)),
        host=host_facts(),
    )
    records = own_redaction().value(made)
    outcome = json.dumps(
        {"finished": True, "records": records, "deferred": conductor.state.deferred}
    )
    write_whole(done, outcome)
    _learn_from(session, conductor, site)
    return outcome


def _learn_from(session: Session, conductor: Conductor, site: Site) -> None:
    """Keep what the session's own launches say of this host, with nothing believed before."""
    # The self-test's spinner is no compiler; its launches say nothing of theirs.
    taught = set(discover().values())
    cells = conductor.state.cases
    samples = {
        case.case_id: found
        for case in session.cases
        if case.compiler.target in taught
        and cells[case.case_id].status == "ok"
        and (found := _samples(site, sample_file(case.case_id))) is not None
    }
    seen = launch_of(list(samples.values()), Launch(sd=0.0, degrees=0.0))
    learn(seen, session.method.claim)
    twin, other = samples.get(conductor.state.sentinel), _samples(site, sample_file(SENTINEL))
    if session.profile.epochs > 1 or twin is None or other is None:
        return
    found = compare(twin, other, confidence=TWINS_CONFIDENCE)
    if found is not None:
        width = math.log(found.within_high / found.within_low)
        error = width / (2 * NormalDist().inv_cdf((1 + TWINS_CONFIDENCE) / 2))
        learn_from_twins(math.log(found.estimate), error, session.method.claim)


@contextmanager
def _guarded() -> Iterator[str]:
    """Yield a token that marks every child; when this ends, however, they are gone."""
    token = secrets.token_hex(8)
    become_subreaper()
    guard = start_guard(token, groups_folder())
    try:
        yield token
    finally:
        sweep(token)
        guard.stop()


def _samples(site: Site, name: str) -> Any:
    path = site.samples / name
    return read_samples(path) if path.exists() else None


def _spawner(site: Site, session: Session, provision: Provision) -> Spawn:
    """Return how workers start here: from the kit, with clean variables, in this interpreter or
    in an environment of their own.
    """
    plugins: Path | None = None
    if session.environments:
        refs = [case.compiler for case in session.cases]
        elsewhere = {ref.target for ref in refs if ref.head in session.environments}
        plugins = plugin_folder(site.spool, elsewhere)

    def spawn(case: Case | None, key: str, epoch: int) -> WorkerProcess:
        log = site.logs / f"{key[:16]}.log"
        pass_fds = () if site.lock_fd is None else (site.lock_fd,)
        if case is None:
            return WorkerProcess.spawn(
                [sys.executable, "-m", "ngraphbench.models.exporter", FD],
                env={**os.environ, TOKEN_VARIABLE: site.token},
                log=log,
                cwd=site.run,
                memory_bytes=session.limits.memory_bytes,
                pass_fds=pass_fds,
            )
        compiler = load_compiler(case.compiler.target)
        work, home = site.work(key[:16]), provision.home(case)
        variables = worker_environment(
            compiler=compiler,
            device=case.device,
            work=work,
            token=site.token,
            padding=padding(seed=session.seed, epoch=epoch, key=key),
        )
        command = worker_command(sys.executable, site.kit, FD)
        if home is not None:
            command = worker_command(str(home.python), site.kit, FD, plugins=plugins)
            variables = home.variables(variables)
        if isinstance(compiler, StartsItsWorker):
            command = [*compiler.worker_command(case.compiler.options), FD]
        worker = WorkerProcess.spawn(
            command,
            env=variables,
            log=log,
            cwd=work,
            memory_bytes=session.limits.memory_bytes,
            pass_fds=pass_fds,
        )
        if home is not None:
            worker.origin = {"environment": home.facts, "environment_s": home.made_s}
        return worker

    return spawn


def main(arguments: list[str]) -> int:
    """Return the exit code: 0 finished, 130 interrupted, 3 the tool failed."""
    stop = Stop()
    signal.signal(signal.SIGINT, stop.ask)
    signal.signal(signal.SIGTERM, stop.ask)
    message = Path(arguments[0]).read_text(encoding="utf-8")
    _die_with_client(int(arguments[1]))
    events = os.fdopen(int(arguments[1]), "w", encoding="utf-8")

    def tell(event: Json) -> None:
        _tell(events, own_redaction().value(event))

    emit = _seldom(tell, json.loads(message).get("round_every_s", 0))
    try:
        outcome = json.loads(run(message, emit=emit, stop=stop))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except NGraphBenchError as error:
        return _failed(error, emit)
    except OSError as error:
        # Of the machine, as when its disk is full or the kernel starts no more processes.
        told = trouble(error, what="A file of the run directory")
        return _failed(told or WorkerFailed(str(error), status="failed", reason="machine"), emit)
    emit({"event": "done", "finished": outcome["finished"]})
    return 0 if outcome["finished"] else EXIT_INTERRUPTED


def _failed(error: NGraphBenchError, emit: Emit) -> int:
    emit({"event": "failed", "message": str(error), "reason": error.reason})
    # Its log may lie on the disk that is full.
    with suppress(OSError):
        print(error, file=sys.stderr, flush=True)
    return EXIT_FAILED


def _die_with_client(events: int) -> None:
    """End this process when its parent ends; the guard then ends what it has started."""
    die_with_parent()
    # The client may have been gone before that call: then nobody reads events any more.
    poll = select.poll()
    poll.register(events, 0)
    if any(seen & select.POLLERR for _, seen in poll.poll(0)):
        os.kill(os.getpid(), signal.SIGKILL)


def _seldom(emit: Emit, round_every_s: float) -> Emit:
    """Return what tells of rounds this seldom: whoever hears of one wakes up in the next slot."""
    told_at = -float("inf")

    def tell(event: Json) -> None:
        nonlocal told_at
        if event.get("event") == "round":
            if time.monotonic() < told_at + round_every_s:
                return
            told_at = time.monotonic()
        emit(event)

    return tell


def _tell(events: IO[str], event: Json) -> None:
    try:
        events.write(json.dumps(event) + "\n")
        events.flush()
    except BrokenPipeError:
        # The client is gone: the death signal ends this process.
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
