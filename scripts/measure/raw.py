"""The raw limit: what Redis itself can do, with the same scripts and arguments and no delayq around them.

A bare unix socket read by hiredis. Where it can be, everything is packed before the clock starts, and delayq, which
packs while it runs, is compared with that: this is the strict reading of "the same bytes". Only a settlement has to be
packed on the way, since its tokens come from the server.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from typing import Any

import hiredis

from delayq.calls import Calls
from delayq.ids import new_ids
from delayq.script import names, script
from delayq.values import Call, OutgoingTable, Receipt

PAYLOAD = b'"' + b"x" * 62 + b'"'
"""A payload as it is stored: 64 bytes."""
BATCH = 500
"""Messages in one call of the send script, as `send_many` slices them."""
CLAIM, MANY = 100, 500
"""Messages the raw loop claims at a time; and as many as a consumer of empty callbacks claims at most."""
AHEAD = 60_000
"""Milliseconds until messages are due that are to stay pending."""


class Raw:
    """A bare connection: packed bytes out, hiredis in."""

    def __init__(self, path: str) -> None:
        """Connect to a unix socket."""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._reader = hiredis.Reader()
        self._sequence = 0

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def arguments(self, call: Call[Any]) -> tuple[Any, ...]:
        """Return the command of a call as an executor would send it, its script loaded before."""
        self._sequence += 1
        fence = ("raw", self._sequence) if call.script.executes_once else ()
        return ("EVALSHA", call.script.sha, len(call.keys), *call.keys, *fence, *call.args)

    def pack(self, call: Call[Any]) -> bytes:
        """Pack a call."""
        return bytes(hiredis.pack_command(self.arguments(call)))

    def load_scripts(self) -> None:
        """Load every script."""
        for name in names():
            self.exchange(bytes(hiredis.pack_command(("SCRIPT", "LOAD", script(name).text))), 1)

    def call(self, call: Call[Any]) -> Any:
        """Carry out a call; returns what the script answers, as it is read."""
        return call.parse(self.exchange(self.pack(call), 1)[0])

    def stream(self, calls: Iterable[Call[Any]]) -> None:
        """Carry out many calls, each packed and sent while the server is at work on the one before."""
        last = 0
        for call in calls:
            self._socket.sendall(self.pack(call))
            self.exchange(b"", last)
            last = 1
        self.exchange(b"", last)

    def exchange(self, data: bytes, answers: int) -> list[Any]:
        """Send bytes and read so many answers."""
        self._socket.sendall(data)
        replies: list[Any] = []
        while len(replies) < answers:
            reply = self._reader.gets()
            if reply is False:
                self._reader.feed(self._socket.recv(1 << 20))
            elif isinstance(reply, Exception):
                raise reply
            else:
                replies.append(reply)
        return replies


def sending(calls: Calls, dues: Iterable[str | int], ids: list[str] | None = None) -> Call[str]:
    """Return the call that sends a message of the usual payload for each due time."""
    times = list(dues)
    n = len(times)
    table = OutgoingTable(ids or new_ids(n), times, [3] * n, [PAYLOAD] * n, [b""] * n)
    return calls.send(table, replace=False, max_length=None)


def batches(calls: Calls, n: int, due: str | int = AHEAD) -> Iterator[Call[str]]:
    """Yield the calls that send `n` messages in batches."""
    for first in range(0, n, BATCH):
        yield sending(calls, [due] * min(BATCH, n - first))


def claim_and_ack(raw: Raw, calls: Calls, n: int, claim: int = CLAIM) -> None:
    """Settle what was claimed before, promote and claim the next, in one round trip, as a consumer's turn does."""
    receipts: list[Receipt] = []
    settled = 0
    end = time.monotonic() + 120
    while settled < n:
        turn = [
            raw.pack(calls.pending_to_ready()),
            raw.pack(calls.ready_to_unack(claim, lease=30_000, holder="raw")),
        ]
        if receipts:
            turn.insert(0, raw.pack(calls.ack(receipts)))
            settled += len(receipts)
        elif time.monotonic() > end:
            raise TimeoutError(f"{n - settled} messages are not there")
        claimed = raw.exchange(b"".join(turn), len(turn))[-1]
        receipts = list(map(Receipt, claimed[3], claimed[4]))
