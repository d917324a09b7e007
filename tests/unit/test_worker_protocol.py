from __future__ import annotations

import os
import socket
import struct

import numpy as np
import pytest

from ngraphbench.worker import protocol


@pytest.fixture
def pair():
    left, right = socket.socketpair()
    yield left, right
    left.close()
    right.close()


def test_messages_arrive_in_order(pair):
    left, right = pair
    protocol.send(left, {"id": 1, "text": "ü\ud800"})
    protocol.send(left, {"id": 2, "n": np.int64(7), "x": np.float32(0.5)})
    assert protocol.receive(right) == {"id": 1, "text": "ü\ud800"}
    assert protocol.receive(right) == {"id": 2, "n": 7, "x": 0.5}


@pytest.mark.parametrize("length", [0, 0xFFFFFFFF, protocol.MAX_MESSAGE_BYTES + 1])
def test_an_absurd_length_is_refused(pair, length):
    left, right = pair
    left.sendall(struct.pack(">I", length) + b"{}")
    with pytest.raises(protocol.ProtocolError, match="bytes long"):
        protocol.receive(right)
    with pytest.raises(protocol.ProtocolError, match="bytes long"):
        protocol.take_message(bytearray(struct.pack(">I", length)))


@pytest.mark.parametrize("body", [b"not json", b"[1]", b"\xff\xfe"])
def test_what_is_not_an_object_is_refused(pair, body):
    left, right = pair
    left.sendall(struct.pack(">I", len(body)) + body)
    with pytest.raises(protocol.ProtocolError):
        protocol.receive(right)


def test_the_end_is_told_apart(pair):
    left, right = pair
    left.sendall(b"\0\0\0\x09{")
    left.close()
    with pytest.raises(protocol.ConnectionClosed, match="inside a message"):
        protocol.receive(right)
    with pytest.raises(protocol.ConnectionClosed, match="between messages"):
        protocol.receive(right)
    with pytest.raises(protocol.ConnectionClosed):
        protocol.send(right, {"id": 1})


def test_messages_are_taken_from_any_split():
    left, right = socket.socketpair()
    protocol.send(left, {"id": 1})
    protocol.send(left, {"id": 2})
    left.close()
    whole = right.recv(4096)
    right.close()
    for cut in range(len(whole)):
        buffer = bytearray(whole[:cut])
        found = []
        while (message := protocol.take_message(buffer)) is not None:
            found.append(message)
        buffer += whole[cut:]
        while (message := protocol.take_message(buffer)) is not None:
            found.append(message)
        assert found == [{"id": 1}, {"id": 2}]
        assert not buffer


def test_an_adopted_descriptor_is_private():
    left, right = socket.socketpair()
    fd = os.dup(right.fileno())
    right.close()
    os.set_inheritable(fd, True)
    adopted = protocol.adopt(fd)
    assert adopted.fileno() > 2
    assert not os.get_inheritable(adopted.fileno())
    if (pid := os.fork()) == 0:
        os._exit(0 if adopted.fileno() == -1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    adopted.close()
    assert left.recv(1) == b""
    left.close()
