"""A network of a device's own: one cable to this machine, which can be cut. Needs root."""

from __future__ import annotations

import os
import socket
import subprocess

__all__ = ["Network"]


class Network:
    """A network namespace. This machine is ``here`` in it, the device ``there``.

    ``within`` is what starts a command inside, in the same process.
    """

    def __init__(self) -> None:
        self.name = f"ngb{os.getpid()}"
        place = f"10.213.{os.getpid() % 250}"
        self.here, self.there = f"{place}.1", f"{place}.2"
        self.within = ("nsenter", f"--net=/run/netns/{self.name}")
        ours = f"{self.name}h"
        inside = ("-n", self.name)
        _ip("netns", "add", self.name)
        try:
            _ip("link", "add", ours, "type", "veth", "peer", "name", "cable", "netns", self.name)
            _ip("addr", "add", f"{self.here}/30", "dev", ours)
            _ip("link", "set", ours, "up")
            _ip(*inside, "addr", "add", f"{self.there}/30", "dev", "cable")
            _ip(*inside, "link", "set", "lo", "up")
            self.mend()
        except subprocess.CalledProcessError:
            self.close()
            raise

    def cut(self) -> None:
        """Pull the cable; connections stay open on both sides, and carry nothing."""
        _ip("-n", self.name, "link", "set", "cable", "down")

    def mend(self) -> None:
        _ip("-n", self.name, "link", "set", "cable", "up")

    def carries(self) -> bool:
        """Return whether the device's side answers, if only that nobody listens there."""
        try:
            socket.create_connection((self.there, 9), timeout=2).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Remove the network; processes in it should have ended."""
        _ip("netns", "del", self.name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
