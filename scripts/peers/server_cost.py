"""Reads from the server what some work cost it. Adapters run it in the environments of their peers: no redis-py."""

from __future__ import annotations

import re
import socket
from typing import NamedTuple
from urllib.parse import urlsplit

CPU = re.compile(r"^used_cpu_(?:user|sys):([\d.]+)", re.MULTILINE)
CALLS = re.compile(r"^cmdstat_(?!info:)[^:]+:calls=(\d+)", re.MULTILINE)
"""All commands but the one that reads them."""


class ServerCost(NamedTuple):
    """What the server has done so far, or what some work has added."""

    cpu: float
    """Seconds of CPU time, system calls included."""
    commands: int
    """Commands, those inside scripts included."""

    @classmethod
    def now(cls, url: str) -> ServerCost:
        """Read it at an address like `redis://127.0.0.1:7000/0`."""
        address = urlsplit(url)
        with (
            socket.create_connection((address.hostname, address.port), timeout=10) as connection,
            connection.makefile("rb") as replies,
        ):
            connection.sendall(b"INFO all\r\n")
            info = replies.read(int(replies.readline()[1:])).decode().replace("\r\n", "\n")
        return cls(sum(map(float, CPU.findall(info))), sum(map(int, CALLS.findall(info))))

    def since(self, before: ServerCost) -> dict[str, float]:
        """Return what was added, as a reply has it."""
        return {"cpu": self.cpu - before.cpu, "commands": self.commands - before.commands}
