"""The raw limit: what Redis can do with the same scripts and arguments, without delayq.

Uses a bare unix socket, read by hiredis. Commands are packed before the clock starts if possible, although delayq packs
while it runs. Only settlements are packed on the way, because their tokens come from the server.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from typing import Any

import hiredis

from delayq.broker.calls import Calls
from delayq.broker.message.ids import new_ids
from delayq.broker.requests import OutgoingTable, Receipt, ScriptCall
from delayq.broker.scripts import names, script

PAYLOAD = b'"' + b"x" * 62 + b'"'
"""A payload as stored: 64 bytes."""
BATCH = 250
"""Messages per call of the send script, like `send_many`."""
CLAIM, MANY = 100, 500
"""Messages that the raw loop claims at a time; and the maximum that a consumer with empty callbacks claims."""
AHEAD = 60_000
"""Milliseconds until messages are due that must stay pending."""


def packed(*words: Any) -> bytes:
    """Return a command as it is sent."""
    return bytes(hiredis.pack_command(words))


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

    def arguments(self, call: ScriptCall[Any]) -> tuple[Any, ...]:
        """Return the command of a call as an executor sends it once the script is loaded."""
        self._sequence += 1
        fence = ("raw", self._sequence) if call.script.executes_once else ()
        return ("EVALSHA", call.script.sha, len(call.keys), *call.keys, *fence, *call.args)

    def pack(self, call: ScriptCall[Any]) -> bytes:
        """Pack a call."""
        return packed(*self.arguments(call))

    def load_scripts(self) -> None:
        """Load every script."""
        for name in names():
            self.exchange(packed("SCRIPT", "LOAD", script(name).text), 1)

    def call(self, call: ScriptCall[Any]) -> Any:
        """Run a call and return its parsed reply."""
        return call.parse(self.exchange(self.pack(call), 1)[0])

    def stream(self, calls: Iterable[ScriptCall[Any]]) -> None:
        """Run many calls; each is packed and sent while the server works on the previous one."""
        last = 0
        for call in calls:
            self._socket.sendall(self.pack(call))
            self.exchange(b"", last)
            last = 1
        self.exchange(b"", last)

    def exchange(self, data: bytes, expected: int) -> list[Any]:
        """Send bytes and read the expected number of replies."""
        self._socket.sendall(data)
        replies: list[Any] = []
        while len(replies) < expected:
            reply = self._reader.gets()
            if reply is False:
                self._reader.feed(self._socket.recv(1 << 20))
            elif isinstance(reply, Exception):
                raise reply
            else:
                replies.append(reply)
        return replies


def sending(calls: Calls, dues: Iterable[str | int], ids: list[str] | None = None) -> ScriptCall[Any]:
    """Return the call that sends a message of the usual payload for each due time."""
    times = list(dues)
    n = len(times)
    table = OutgoingTable(ids or new_ids(n), times, [3] * n, [PAYLOAD] * n, [b""] * n, [b""] * n)
    return calls.send(table, replace=False, max_length=None)


def batches(calls: Calls, n: int, due: str | int = AHEAD) -> Iterator[ScriptCall[str]]:
    """Yield the calls that send `n` messages in batches."""
    for first in range(0, n, BATCH):
        yield sending(calls, [due] * min(BATCH, n - first))


def claim_and_ack(raw: Raw, calls: Calls, n: int, claim: int = CLAIM) -> None:
    """Settle the previous messages, promote and claim the next, in one round trip, like a consumer does."""
    receipts: list[Receipt] = []
    settled = 0
    end = time.monotonic() + 120
    while settled < n:
        turn = [
            raw.pack(calls.pending_to_ready()),
            raw.pack(calls.ready_to_unack(claim, lease=30_000, consumer_id="raw")),
        ]
        if receipts:
            turn.insert(0, raw.pack(calls.ack(receipts)))
            settled += len(receipts)
        elif time.monotonic() > end:
            raise TimeoutError(f"{n - settled} messages are missing")
        claimed = raw.exchange(b"".join(turn), len(turn))[-1]
        receipts = list(map(Receipt, claimed[6::7], claimed[7::7]))
