"""Finds results that nothing would ever delete, since no entry of `completed` names them: a part of `delayq doctor`.

An entry without a result is none of them: it goes with the time that it has.
"""

from __future__ import annotations

from itertools import chain

from delayq.broker.attributes import Attributes
from delayq.broker.batches import batched
from delayq.broker.context import QueueContext
from delayq.broker.requests import RedisCommand
from delayq.broker.results import KeptRecord
from delayq.broker.scripts import MAX_IDS
from delayq.broker.transport.operation import Operation

AT_ONCE = 100
"""Results that one call reads: each may have a mebibyte."""


def unlisted_results(context: QueueContext, *, fix: bool) -> Operation[list[bytes]]:
    """Return the ids of these results; with `fix`, list each until its retention is over."""
    keys, cursor, found = context.calls.keys, "", dict[bytes, None]()
    while cursor != "0":
        ((cursor, ids),) = yield [context.calls.walk("results", cursor=cursor or "0", limit=MAX_IDS)]
        found.update(dict.fromkeys(ids))
        for part in batched(ids, AT_ONCE) if fix else ():
            (stored,) = yield [RedisCommand(("HMGET", keys.results, *part), list)]
            # NX: an id may have been completed again since it was found, or its result may be gone.
            ends = [(_end_of(text), id) for text, id in zip(stored, part, strict=True) if text is not None]
            if ends:
                yield [RedisCommand(("ZADD", keys.completed, "NX", *chain(*ends)), int)]
    return list(found)


def _end_of(stored: bytes) -> int:
    """Return until when a result is kept (ms); 0 for one that another program has written."""
    record = KeptRecord.read(stored)
    if record is None:
        return 0
    return record.completed + Attributes.of(record.attributes).retention
