"""Reads a queue of rq, its scheduled jobs and those of rq-scheduler: jobs that the `JSONSerializer` has written.

A queue is a list of ids; a job is a hash, whose `data` is compressed JSON of function, instance, args and kwargs.
Pickled jobs, which are the default of rq, stay: nothing is unpickled.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from delayq.broker.keys import check_id
from delayq.broker.transport.executor import Executor
from delayq.migrate.migration import WhyLeft
from delayq.migrate.sources import FoundEntry, Parameters, StaysError, ask, bind, found_entry, number
from delayq.queue.sending.message_options import NewMessage

QUEUED, SCHEDULED, SCHEDULER = "queued", "scheduled", "rq-scheduler"
MAX_DATA = 1 << 20
"""Bytes of a call, without compression."""
_FIELDS = ("data", "origin", "retries_left", "timeout", "meta")
_PERIODIC = ("interval", "cron_string")
"""What rq-scheduler notes in the `meta` of a job that it enqueues again and again."""


class RqQueue:
    """A queue of rq."""

    def __init__(self, executor: Executor, name: str, parameters: Parameters) -> None:
        """Read the queue `name`."""
        self._executor, self._name, self._parameters = executor, name, parameters
        self._keys = {
            QUEUED: f"rq:queue:{name}",
            SCHEDULED: f"rq:scheduled:{name}",
            SCHEDULER: "rq:scheduler:scheduled_jobs",
        }

    def count(self) -> Counter[str]:
        """Return how many jobs each place has."""
        commands = [("LLEN", self._keys[QUEUED]), ("ZCARD", self._keys[SCHEDULED])]
        queued, scheduled = ask(self._executor, commands, number)
        found = Counter({QUEUED: queued, SCHEDULED: scheduled, SCHEDULER: len(self._of_scheduler())})
        return +found

    def leased(self) -> int:
        """Return how many jobs workers are running."""
        (running,) = ask(self._executor, [("ZCARD", f"rq:wip:{self._name}")], number)
        return int(running)

    def _of_scheduler(self) -> list[tuple[bytes, bytes]]:
        """Return the jobs that rq-scheduler has for this queue, each with its time."""
        found: list[tuple[bytes, bytes]] = []
        offset = 0
        while entries := self._scored(SCHEDULER, offset, 500):
            origins = ask(self._executor, [("HGET", b"rq:job:" + id, "origin") for id, _ in entries])
            pairs = zip(entries, origins, strict=True)
            found += [entry for entry, origin in pairs if origin == self._name.encode()]
            offset += len(entries)
        return found

    def _scored(self, place: str, offset: int, limit: int) -> list[tuple[bytes, bytes]]:
        (reply,) = ask(self._executor, [("ZRANGE", self._keys[place], offset, offset + limit - 1, "WITHSCORES")])
        if reply and isinstance(reply[0], list | tuple):  # with RESP3
            return [(id, str(score).encode()) for id, score in reply]
        return list(zip(reply[::2], reply[1::2], strict=True))

    def page(self, place: str, offset: int, limit: int) -> list[FoundEntry]:
        """Return jobs, those first that workers would take next."""
        if place == QUEUED:
            (ids,) = ask(self._executor, [("LRANGE", self._keys[QUEUED], offset, offset + limit - 1)])
            entries = [(id, b"") for id in ids]
        elif place == SCHEDULED:
            entries = self._scored(SCHEDULED, offset, limit)
        else:
            entries = self._of_scheduler()[offset : offset + limit]
        jobs = ask(self._executor, [("HMGET", b"rq:job:" + id, *_FIELDS) for id, _ in entries])
        followed = ask(self._executor, [("EXISTS", b"rq:job:" + id + b":dependents") for id, _ in entries], number)
        rows = zip(entries, jobs, followed, strict=True)
        return [
            found_entry(id, id, partial(self._message, id, score, job, follows)) for (id, score), job, follows in rows
        ]

    def remove(self, place: str, entries: Sequence[FoundEntry]) -> int:
        """Remove jobs with their hashes; returns how many were still there."""
        key = self._keys[place]
        takes = [("LREM", key, 1, one.raw) if place == QUEUED else ("ZREM", key, one.raw) for one in entries]
        removed = ask(self._executor, takes, number)
        gone = [one for one, count in zip(entries, removed, strict=True) if count]
        ask(self._executor, [("UNLINK", b"rq:job:" + one.raw) for one in gone], number)
        return sum(removed)

    def _message(self, id: bytes, score: bytes, job: Sequence[bytes | None], follows: int) -> NewMessage[Any]:
        data, _, retries, timeout, meta = job
        if data is None:
            raise StaysError(WhyLeft.NO_PAYLOAD)
        if follows:
            raise StaysError(WhyLeft.WORKFLOW)
        name, instance, args, kwargs = _loaded(_decompressed(data))
        noted = _loaded(meta) if meta else {}
        if instance is not None:
            raise StaysError(WhyLeft.UNREADABLE)
        if any(noted.get(part) for part in _PERIODIC):
            raise StaysError(WhyLeft.PERIODIC)
        return NewMessage(
            bind(name, args, kwargs, self._parameters),
            at=datetime.fromtimestamp(float(score), UTC) if score else None,
            retries=int(retries) if retries else None,
            id=check_id(id.decode()),
            name=name,
            timeout=float(timeout) if timeout and float(timeout) > 0 else None,
        )


def _loaded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise StaysError(WhyLeft.NOT_JSON) from None


def _decompressed(data: bytes) -> bytes:
    """Return the data of a job, which old versions of rq have not compressed."""
    try:
        return zlib.decompressobj().decompress(data, MAX_DATA)
    except zlib.error:
        return data
