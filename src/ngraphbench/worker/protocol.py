"""The worker protocol: four bytes of big-endian length, then UTF-8 JSON, over a stream socket.

A request is ``{"id": n, "op": "...", ...}``, its answer ``{"id": n, "ok": true, ...}`` or
``{"id": n, "ok": false, "error": {"type", "message", "reason", "hint", "traceback"}}``.
Any program that speaks it can be a worker. Arrays travel as ``.npz`` paths.

Operations are ``hello import probe compile signature save_artifact load_artifact load run
outputs slot block predict busy close``. A ``block`` is timed solo: ``{kind, seconds, folder}`` with
``rate_per_s`` for ``paced``, ``in_flight`` for ``concurrent``, ``slot_s`` for ``sustained``. Its
rows (``due_ns start_ns end_ns calls``) are left in ``folder`` as ``block.npz``, what each lane
computed as ``lane-N.npz``; the answer is ``{requests, stopped, note, window_ns, cpu_ns,
lanes}``. ``predict`` runs the arrays of the file ``inputs`` through the program, ``batch`` items
at a time along ``axes`` (an axis or null for each input), and leaves the outputs in ``path``.
``busy {on: true}`` answers at once and then runs the program between requests, until
``busy {on: false}``, which answers ``{calls, seconds, error}``.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
from typing import Any

from ngraphbench.types import Json

__all__ = [
    "MAX_MESSAGE_BYTES",
    "ConnectionClosed",
    "ProtocolError",
    "adopt",
    "packed",
    "receive",
    "send",
    "send_packed",
    "take_message",
]

MAX_MESSAGE_BYTES = 64 * 1024**2

_LENGTH = struct.Struct(">I")


class ProtocolError(Exception):
    """The other side sent something that is not a message."""


class ConnectionClosed(EOFError):
    """The other side closed the connection, or died."""


def send(sock: socket.socket, message: Json) -> None:
    """Send one message. Raises ConnectionClosed when nobody is left to read it."""
    send_packed(sock, packed(message))


def packed(message: Json) -> bytes:
    """Return a message as it travels. Raises ProtocolError for one that is too long."""
    body = json.dumps(message, default=_plain).encode()
    if len(body) > MAX_MESSAGE_BYTES:
        raise ProtocolError(f"A message of {len(body)} bytes is over {MAX_MESSAGE_BYTES}.")
    return _LENGTH.pack(len(body)) + body


def send_packed(sock: socket.socket, packet: bytes) -> None:
    """Send what ``packed`` returned. Raises ConnectionClosed when nobody is left to read it."""
    try:
        sock.sendall(packet)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ConnectionClosed("The other side closed the connection.") from error


def receive(sock: socket.socket) -> Json:
    """Return the next message, waiting for it.

    Raises ConnectionClosed at the end of the stream, ProtocolError for anything that is
    not a JSON object of a sane length.
    """
    (length,) = _LENGTH.unpack(_exactly(sock, _LENGTH.size))
    _check(length)
    return _decoded(_exactly(sock, length))


def take_message(buffer: bytearray) -> Json | None:
    """Return the first whole message of ``buffer`` and remove it; None when there is none yet.

    >>> buffer = bytearray(b'\\x00\\x00\\x00\\x08{"id":1}\\x00')
    >>> take_message(buffer), take_message(buffer), len(buffer)
    ({'id': 1}, None, 1)
    """
    if len(buffer) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(buffer)
    _check(length)
    end = _LENGTH.size + length
    if len(buffer) < end:
        return None
    body = bytes(buffer[_LENGTH.size : end])
    del buffer[:end]
    return _decoded(body)


def adopt(fd: int) -> socket.socket:
    """Return the socket of an inherited descriptor, close-on-exec and never 0, 1 or 2.

    A child made by ``fork`` closes its copy, so that the end of this process is seen.
    """
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    if fd > 2:
        os.close(fd)
    else:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, fd)
        if null != fd:
            os.close(null)
    sock = socket.socket(fileno=moved)
    sock.setblocking(True)
    os.register_at_fork(after_in_child=sock.close)
    return sock


def _exactly(sock: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        try:
            part = sock.recv(min(count - len(parts), 1 << 20))
        except ConnectionResetError as error:
            raise ConnectionClosed("The other side closed the connection.") from error
        if not part:
            where = "inside a message" if parts else "between messages"
            raise ConnectionClosed(f"The other side closed the connection {where}.")
        parts += part
    return bytes(parts)


def _check(length: int) -> None:
    if not 0 < length <= MAX_MESSAGE_BYTES:
        raise ProtocolError(
            f"A message cannot be {length} bytes long (1 to {MAX_MESSAGE_BYTES}):"
            " something else writes to the protocol's descriptor."
        )


def _decoded(body: bytes) -> Json:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"A message is not JSON: {body[:60]!r}.") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"A message is a {type(message).__name__}, not an object.")
    return message


def _plain(value: Any) -> Any:
    # Vendors report numpy scalars, paths and enums.
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)
