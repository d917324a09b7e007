"""What is fuzzed: for each way in, inputs that are almost right, and what must hold of any.

No input leads to a traceback, a hang or a lost record; what is wrong is told as an error of this
package, with file, line and key where there are such.
"""

from __future__ import annotations

import atexit
import io
import json
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import strategies as st
from mutations import mutated_bytes, mutated_tree
from run_fixture import full_run
from stored_runs import stored

from ngraphbench.cli.app import run as command
from ngraphbench.errors import NGraphBenchError, SpecError, StoreError
from ngraphbench.spec import load_experiment
from ngraphbench.store.journal import Journal
from ngraphbench.testing.workloads import write_onnx
from ngraphbench.types import Json
from ngraphbench.worker.loop import serve
from ngraphbench.worker.protocol import ConnectionClosed, ProtocolError, receive, take_message

CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Target:
    """One way in: how inputs are drawn, and the check that must return for each of them."""

    name: str
    inputs: st.SearchStrategy[Any]
    check: Callable[[Any], None]


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ngb-fuzz-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _corpus(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def _said(arguments: Sequence[str]) -> tuple[int, str]:
    """Return exit code and output of a command line, run here."""
    # As strict about characters as a terminal is.
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="utf-8")
    with redirect_stdout(stream), redirect_stderr(stream):
        code = command(arguments)
    stream.flush()
    return code, written.getvalue().decode()


# -- the experiment file

_OVERRIDES = (
    *("name=y", "measure.profile=quick", "limits.cell=1", "models.0.label=x", "batch_sizes=[1"),
    *("=", "a=b=c", "models.9=1", "..=1", "shapes=", "compilers.0={a: b}", "name.x=1", "\x00=1"),
)


def _as_text(tree: Any) -> bytes:
    # What JSON writes is YAML, but for surrogates, which no file in UTF-8 holds.
    return json.dumps(tree).encode("ascii")


@st.composite
def _experiments(draw: st.DrawFn) -> tuple[bytes, list[str], bool]:
    from ruamel.yaml import YAML

    seeds = _corpus("experiment")
    trees = [YAML(typ="safe", pure=True).load(seed) for seed in seeds if b"measure" in seed]
    text = draw(mutated_bytes(seeds) | mutated_tree(trees).map(_as_text))
    overrides = draw(st.lists(st.sampled_from(_OVERRIDES), max_size=2))
    # A whole command line takes longer than all the rest.
    return text, overrides, draw(st.integers(0, 9)) == 0


def check_experiment(drawn: tuple[bytes, list[str], bool]) -> None:
    text, overrides, by_command = drawn
    with _folder() as folder:
        write_onnx(folder / "a.onnx", "fake")
        path = folder / "experiment.yaml"
        path.write_bytes(text)
        wrong = False
        try:
            load_experiment(path, overrides=overrides)
        except SpecError as error:
            wrong = True
            assert error.file == str(path) or error.file.startswith("--set"), error.file
            assert (
                error.line is None or 1 <= error.line <= text.count(b"\n") + text.count(b"\r") + 2
            )
            assert str(error)
        if wrong and by_command:
            sets = [part for override in overrides for part in ("--set", override)]
            code, said = _said(["run", str(path), "--dry-run", *sets])
            assert code == 2, (code, said)
            assert "Traceback" not in said, said


# -- the record reader


@cache
def _run_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="ngb-fuzz-run-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return stored(full_run(), folder / "run")


@cache
def _lines() -> tuple[bytes, ...]:
    lines = (_run_folder() / "journal.jsonl").read_bytes().splitlines(keepends=True)
    return tuple(lines[:3] + lines[-3:] + lines[8:12])


_LOOKS = (
    *(("show", "RUN"), ("show", "RUN", "--json"), ("show", "RUN", "--metrics"), ("report", "RUN")),
    *(("show", "RUN", "--csv", "OUT"), ("reversals", "RUN"), ("compare", "RUN", "RUN")),
    ("compare", "--save", "OUT/base.json", "RUN"),
)


@st.composite
def _journals(draw: st.DrawFn) -> tuple[list[bytes], bool, tuple[str, ...], bytes | None]:
    lines = list(_lines())
    at = draw(st.integers(0, len(lines) - 1))
    if draw(st.booleans()):
        tree = draw(mutated_tree([json.loads(lines[at])]))
        changed, is_tree = _as_text(tree) + b"\n", True
    else:
        changed, is_tree = draw(mutated_bytes([lines[at]])), False
    lines[at] = changed
    samples = draw(st.none() | mutated_bytes([_samples()]))
    return lines, is_tree, draw(st.sampled_from(_LOOKS)), samples


@cache
def _samples() -> bytes:
    return b"".join(next(_run_folder().glob("samples/*/*.csv")).read_bytes().splitlines(True)[:6])


def check_journal(drawn: tuple[list[bytes], bool, tuple[str, ...], bytes | None]) -> None:
    lines, is_tree, look, samples = drawn
    with _folder() as folder:
        run = folder / "run"
        shutil.copytree(_run_folder(), run)
        (run / "journal.jsonl").write_bytes(b"".join(lines))
        if samples is not None:
            next(run.glob("samples/*/*.csv")).write_bytes(samples)
        try:
            found = Journal(run / "journal.jsonl").read()
        except StoreError as error:
            assert "journal.jsonl:" in str(error), error
        else:
            # Nothing that was whole is lost, but for a last line that is not.
            whole = set(_lines()) & set(b"".join(lines).splitlines(keepends=True))
            kept = {json.dumps(record, sort_keys=True) for record in found}
            assert all(json.dumps(json.loads(line), sort_keys=True) in kept for line in whole)
            assert not is_tree or len(found) == len(lines)
        places = {"RUN": str(run), "OUT": str(folder / "out"), "OUT/base.json": str(folder / "b")}
        code, said = _said([places.get(part, part) for part in look])
        assert code in (0, 1, 2, 4), (code, said)
        assert "Traceback" not in said, said


# -- the worker protocol, from both sides

_REQUESTS = [
    {"id": i, "op": op, "x": [1, {"y": None}]} for i, op in enumerate(("echo", "fail", "no"))
]


@st.composite
def _streams(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    bodies = [_as_text(draw(st.sampled_from(_REQUESTS) | mutated_tree(_REQUESTS)))]
    bodies += draw(st.lists(mutated_bytes([_as_text(one) for one in _REQUESTS]), max_size=3))
    bodies.append(draw(st.sampled_from((b"", b"[" * 5000, b"1" * 5000, b'{"id":' + b"[" * 3000))))
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    stream = draw(st.just(stream) | mutated_bytes([stream]))
    return stream, draw(st.lists(st.integers(1, max(1, len(stream))), max_size=4))


def check_stream(drawn: tuple[bytes, list[int]]) -> None:
    stream, cuts = drawn
    whole = _taken(stream, [])
    assert _taken(stream, cuts) == whole
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for one in (ours, theirs):
            # What is answered must not wait for a reader that comes later.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        ours.sendall(stream)
        ours.shutdown(socket.SHUT_WR)
        try:
            serve(theirs, {"echo": lambda request: {"got": request}, "fail": _fail})
        except ProtocolError:
            assert whole[-1] == "bad"
        theirs.shutdown(socket.SHUT_WR)
        answers = []
        try:
            while True:
                answers.append(receive(ours)["id"])
        except ConnectionClosed:
            pass
    asked = [one.get("id") for one in whole if isinstance(one, dict)]
    closed = [
        i for i, one in enumerate(whole) if isinstance(one, dict) and one.get("op") == "close"
    ]
    asked = asked[: closed[0] + 1] if closed else asked
    assert json.dumps(answers) == json.dumps(asked)


def _fail(request: Json) -> Json:
    raise ValueError(request)


def _taken(stream: bytes, cuts: list[int]) -> list[Any]:
    """Return the messages of a stream that comes in pieces; "bad" ends one that is not theirs."""
    buffer, found = bytearray(), []
    places = sorted({0, *cuts, len(stream)})
    for start, end in pairwise(places):
        buffer += stream[start:end]
        try:
            while (message := take_message(buffer)) is not None:
                found.append(message)
        except ProtocolError:
            return [*found, "bad"]
    return found


# -- what a worker answers

_FIELDS: Json = {
    "hello": {"pid": 1, "python": "3", "binding": {"cpus": [0], "memory": ""}},
    "import": {"version": "1", "packages": {"a": "1"}, "variables": {"OMP": "1"}},
    "compile": {
        "seconds": 1.5,
        "coverage": {"share": 0.5, "unit": "nodes", "products": {"int8": 1}},
        "device_memory_bytes": 9,
        "tuning_s": 0.1,
        "artifact_bytes": 1,
    },
    "load_artifact": {"seconds": 0.1, "coverage": None, "device_memory_bytes": None},
    "save_artifact": {"bytes": 10},
    "load": {"seconds": 0.1},
    "run": {"ns": [10**9]},
    "outputs": {"outputs": []},
    "slot": {
        "calls": 5,
        "slot_ns": 5000,
        "call_ns": 1000.0,
        "first_ns": 1,
        "cpu_ns": 5000,
        "nivcsw": 0,
        "sub_ns": [1000.0] * 5,
        "rss_bytes": 10**6,
    },
    "block": {
        "requests": 2,
        "stopped": "",
        "note": "",
        "window_ns": 9,
        "cpu_ns": 9,
        "lanes": 1,
    },
    "busy": {"calls": 1, "seconds": 1.0, "error": ""},
}
_ERROR = {
    "error": {"type": "RunFailed", "message": "m", "reason": "r", "hint": "h", "traceback": "t"}
}


@st.composite
def _answers(draw: st.DrawFn) -> tuple[str, Json, int, bytes | None]:
    """An op, what is answered to it, from which time on, and the file that is left with it."""
    op = draw(st.sampled_from(sorted(_FIELDS)))
    answer = draw(
        mutated_tree([{**_FIELDS[op], "ok": True}])
        | mutated_tree([{**_ERROR, "ok": False}])
        | st.just({**_FIELDS[op], "ok": True})
    )
    left = draw(st.none() | mutated_bytes([_right_arrays()]) | st.just(b""))
    return op, answer, draw(st.integers(0, 3)), left


@cache
def _right_arrays() -> bytes:
    import numpy as np

    from ngraphbench.workload import write_arrays

    with _folder() as folder:
        write_arrays(folder / "a.npz", {"y": np.ones((1, 4), np.float32)})
        return (folder / "a.npz").read_bytes()


def check_answers(drawn: tuple[str, Json, int, bytes | None]) -> None:
    from answering import session_with

    with _folder() as folder:
        session_with(*drawn, fields=_FIELDS, right=_right_arrays(), folder=folder)


# -- the ONNX front


@cache
def _onnx_seeds() -> tuple[list[bytes], list[Json]]:
    import onnx
    from google.protobuf.json_format import MessageToDict

    from ngraphbench.testing.samples import SAMPLES

    seeds = []
    with _folder() as folder:
        for name in SAMPLES:
            path = write_onnx(folder / f"{name}.onnx", name)
            if path.stat().st_size < 20_000:
                seeds.append(path.read_bytes())
    seeds += _corpus("onnx")
    trees = [
        MessageToDict(onnx.ModelProto.FromString(seed)) for seed in seeds if seed[:1] == b"\x08"
    ]
    return seeds, trees


def _as_onnx(tree: Any) -> bytes:
    import onnx
    from google.protobuf.json_format import ParseDict, ParseError

    try:
        return onnx.ModelProto.SerializeToString(ParseDict(tree, onnx.ModelProto()))
    except (ParseError, ValueError, TypeError, AttributeError, SystemError, OverflowError):
        return b""


@st.composite
def _models(draw: st.DrawFn) -> tuple[bytes, int]:
    seeds, trees = _onnx_seeds()
    data = draw(mutated_bytes(seeds) | mutated_tree(trees).map(_as_onnx))
    return data, draw(st.sampled_from((1, 2, 3)))


def check_model(drawn: tuple[bytes, int]) -> None:
    """Name the model as the client does, then open and export it as the exporter does."""
    from ngraphbench.models.exporter import Exporter
    from ngraphbench.models.sources import check_inputs, input_names, resolve_model

    data, batch = drawn
    with _folder() as folder:
        path = folder / "m.onnx"
        path.write_bytes(data)
        try:
            model = resolve_model(str(path), base=folder)
            input_names(str(path), base=folder)
            check_inputs(path, {"x": {"shape": ["batch", 4]}})
            exporter = Exporter()
            root = str(folder / "root")
            exporter.open({"model": model.to_json(), "root": root, "memory_bytes": 2**30})
            exporter.batch({"batch": batch, "seed": 0, "forms": []})
        except NGraphBenchError as error:
            assert error.message
        except MemoryError:
            # Of sizes without bound; the exporter is a process with a limit.
            pass


def quiet() -> mock._patch[Any]:
    """Keep what a worker prints of an error it answers off the terminal."""
    return mock.patch("ngraphbench.worker.loop.print", lambda *_, **more: None, create=True)


TARGETS = (
    Target("experiment", _experiments(), check_experiment),
    Target("journal", st.deferred(_journals), check_journal),
    Target("stream", _streams(), check_stream),
    Target("answers", st.deferred(_answers), check_answers),
    Target("onnx", st.deferred(_models), check_model),
)
