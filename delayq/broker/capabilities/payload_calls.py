"""The calls of a delay queue that replace stored payloads by the same ones under another key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from delayq.broker.capabilities.script_calls import ScriptCalls
from delayq.broker.replies.replies import statuses
from delayq.broker.requests import ScriptCall, flat


class RekeyPage(NamedTuple):
    """A page of stored texts."""

    cursor: str
    """Of the next page; 0 at the end."""
    already: int
    """Messages of the page that need no change; they are left out."""
    rows: list[tuple[str, bytes]]
    """Id, entry or schedule, and text."""


class PayloadCalls(ScriptCalls):
    """One function per script, as `Calls`."""

    __slots__ = ()

    def rekey_page(self, part: str, *, cursor: str, limit: int, head: bytes) -> ScriptCall[RekeyPage]:
        """Read a page of the texts of a part, without the messages whose payload begins with `head`."""
        return self._call("rekey_page", [part, cursor, limit, head], _read_page)

    def rekey(self, part: str, rows: Iterable[tuple[str, bytes, bytes]]) -> ScriptCall[str]:
        """Replace texts of a part (id, before, after): the first ones, if they are large.

        A status each: 1 replaced, 2 being processed, 0 changed or gone.
        """
        return self._call("rekey", [self._now, part, *flat(rows)], statuses)


def _read_page(reply: list[bytes]) -> RekeyPage:
    cursor, already, *cells = reply
    ids = [id.decode("utf-8", "surrogateescape") for id in cells[::2]]
    return RekeyPage(cursor.decode(), int(already), list(zip(ids, cells[1::2], strict=True)))
