"""Finds out whether the event log of a queue lost entries, and makes it writable again: a part of `delayq doctor`.

No transition depends on the log: an entry that cannot be written is only counted. Most often another program has
written to its key, since the next entry must have a higher id than the last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from delayq.broker.context import QueueContext
from delayq.broker.log_entries import offset_of
from delayq.broker.replies import pairs
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.operation import Operation
from delayq.errors import ServerError
from delayq.queue.event_log import MAX_OFFSET

LOST = b"events_lost"
"""The field of `meta` that counts the entries which could not be written."""
_SETTING = re.compile(rb"(?:0-)?\* ([0-9]{1,15})")


class _Defect(NamedTuple):
    """Why a log cannot be written, and what a repair does."""

    text: str
    deletes: bool = False
    """Whether the repair deletes the key, because no entry can follow what it contains."""


def examine_log(context: QueueContext, meta: Mapping[bytes, bytes], *, fix: bool) -> Operation[str]:
    """Return what is wrong with the event log, '' if nothing is; make it writable again with `fix`."""
    setting, lost = meta.get(b"events"), meta.get(LOST)
    defect = (yield from _find_defect(context, setting)) if setting else None
    if not lost and not defect:
        return ""
    if fix:
        yield from _repair(context, setting, defect)
    missing = lost.decode() if lost and lost.isdigit() else "some"
    problem = f"{missing} missing" if lost else "cannot be written"
    if defect:
        return f"{problem}; {defect.text}"
    now = "it can be written now, unless a Redis user lacks +xadd (see delayq acl)" if setting else "it is off now"
    return f"{problem}; {now}: --repair resets the count"


def _find_defect(context: QueueContext, setting: bytes) -> Operation[_Defect | None]:
    if not _SETTING.fullmatch(setting):
        return _Defect("its setting is not one of delayq's: --repair switches it off")
    key = context.calls.keys.events
    try:
        (info,) = yield [RedisCommand(("XINFO", "STREAM", key), pairs)]
    except ServerError as error:
        if "WRONGTYPE" not in str(error):  # there is no log yet
            return None
        return _Defect(f"{key} is not a stream: --repair deletes it", deletes=True)
    last: bytes = info[b"last-generated-id"]
    found = f"another program added entry {last.decode()}"
    if offset_of(last) >= MAX_OFFSET:
        return _Defect(f"{found}, which leaves no higher id: --repair deletes the log", deletes=True)
    is_foreign = setting.startswith(b"0-") and not last.startswith(b"0-")
    return _Defect(f"{found}: --repair continues after it") if is_foreign else None


def _repair(context: QueueContext, setting: bytes | None, defect: _Defect | None) -> Operation[None]:
    calls = context.calls
    if setting and defect:
        match = _SETTING.fullmatch(setting)
        yield [calls.configure(events=int(match[1]) if match else 0, dedupe_window=None, dedupe_max=None)]
        if defect.deletes:  # now that the next entries get ids above those of the deleted ones
            yield [RedisCommand(("UNLINK", calls.keys.events), int)]
    yield [RedisCommand(("HDEL", calls.keys.meta, LOST), int)]
