"""Finds and repairs defects of a queue: the work of `delayq doctor`.

The scripts cause no defects. They come from a key deleted by hand, a restored backup, or a server that lost writes. A
light examination checks the messages that have become due, a deep one checks everything. Both use calls of limited
size. Each call checks and repairs its messages atomically, so consumers and producers can go on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from delayq.broker.batches import batched
from delayq.broker.calls import Calls
from delayq.broker.context import QueueContext
from delayq.broker.event_log import offset_of
from delayq.broker.foreign import are_headers, shown_id
from delayq.broker.keys import META_FIELDS, META_PARTITIONS, whole_name
from delayq.broker.message.attributes import Attributes
from delayq.broker.partition_calls import ways_call
from delayq.broker.replies import CountsReply, integers, pairs, statuses
from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.broker.results import KeptRecord
from delayq.broker.scripts import MAX_IDS, MAX_MOVED
from delayq.broker.staged import forget_reader, read_readers
from delayq.broker.transport.operation import Operation
from delayq.errors import ServerError
from delayq.queue.inspecting.cold_tier import read_cold
from delayq.queue.inspecting.counts import stats_of, waiting_text
from delayq.queue.inspecting.event_log import MAX_OFFSET
from delayq.queue.inspecting.lateness_report import read_slo_report, slo_text
from delayq.queue.repairing.repair_report import (
    DEAD_DEFECTS,
    LISTS,
    MESSAGE_DEFECTS,
    RESULT_DEFECTS,
    SHOWN,
    Checkup,
    FindingCollector,
    FindingKind,
)
from delayq.queue.server_check import newer, survey
from delayq.values.checks import check_bool
from delayq.values.times import from_millis

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


LIGHT = ("deliveries", "ready", "ranked", "retry", "unack", "garbage")
"""What a light examination reads. The lists come after the records that name them."""
DEEP = (
    *LIGHT,
    "throttled",
    "running",
    "messages",
    "pending",
    "retries",
    "headers",
    "attributes",
    "errors",
    "successors",
)
DEAD = ("dead_messages", "dead", "dead_ids")
STUCK = 60_000
"""Milliseconds on the way to another partition, which takes a few."""
AT_ONCE = 100
"""Messages whose headers one call reads: another program may have stored large ones."""
SEARCHED = 1_000_000
"""Entries of lists that one call may search."""
FIELDS = {name.encode() for name in (*META_FIELDS, *META_PARTITIONS)}
"""The fields that `meta` may have, beside those of call slots."""


class _Examination:
    """One examination of a queue."""

    def __init__(self, context: QueueContext, *, deep: bool, fix: bool) -> None:
        self._context = context
        self._deep = deep
        self._fix = fix
        self._collector = FindingCollector(fix=fix)
        self._unseen: dict[str, set[bytes]] = {"ready": set(), "retry": set()}
        self._search_batch = MAX_MOVED
        self._unreadable: dict[bytes, None] = {}

    def run(self, queue: str) -> Operation[Checkup]:
        """Examine the server and the queue."""
        keys = self._context.calls.keys
        surveyed = yield from survey(keys)
        meta = surveyed.meta
        for text, count in surveyed.findings():
            self._collector.add(FindingKind.SERVER, text, count=count)
        if unknown := newer(queue, meta.get(b"schema")):
            self._collector.add(FindingKind.SCHEMA, unknown)
            return Checkup(queue, self._collector.findings())
        strange = [name for name in meta.keys() - FIELDS if b"." not in name]
        if unknown_fields := sorted(name.decode("utf-8", "backslashreplace") for name in strange):
            self._collector.add(FindingKind.FIELD, ", ".join(unknown_fields[:SHOWN]), count=len(unknown_fields))
        lengths = yield [RedisCommand(("LLEN", key), int) for key in (keys.ready, keys.retry)]
        (self._headed,) = yield [RedisCommand(("HLEN", keys.headers), int)]
        self._search_batch = max(1, min(MAX_MOVED, SEARCHED // max(sum(lengths), 1)))
        for part in DEEP if self._deep else LIGHT:
            yield from self._messages(part)
        for unseen in self._unseen.values():
            for ids in batched(unseen, self._search_batch):
                statuses = yield from self._statuses(ids, search=True)
                self._collector.add_ids(MESSAGE_DEFECTS, ids, statuses)
        if self._deep:
            yield from self._deeper()
        yield from self._counters()
        if problem := (yield from examine_log(self._context, meta, fix=self._fix)):
            self._collector.add(FindingKind.EVENTS, problem, fixed=self._fix)
        return Checkup(queue, self._collector.findings())

    def _deeper(self) -> Operation[None]:
        if self._unreadable:
            ids = ", ".join(map(shown_id, list(self._unreadable)[:SHOWN]))
            self._collector.add(FindingKind.UNREADABLE_HEADERS, ids, count=len(self._unreadable))
        for part in DEAD:
            yield from self._dead(part)
        unlisted = yield from unlisted_results(self._context, fix=self._fix)
        self._collector.add_ids(RESULT_DEFECTS, unlisted, "1" * len(unlisted))

    def _messages(self, part: str) -> Operation[None]:
        cursor, ids = "", dict[bytes, None]()
        while cursor != "0":
            cursor, found = yield from self._page(part, cursor)
            ids.update(dict.fromkeys(found))
            if len(ids) >= MAX_MOVED or cursor == "0":
                for batch in batched(ids, MAX_MOVED):
                    yield from self._examine(part, batch)
                ids.clear()

    def _examine(self, part: str, ids: list[bytes]) -> Operation[None]:
        statuses = yield from self._statuses(ids, search=False)
        for id, status in zip(ids, statuses, strict=True):
            if part == "deliveries" and status in LISTS:
                self._unseen[LISTS[status]].add(id)
            elif LISTS.get(status) == part:
                self._unseen[part].discard(id)
        for batch in batched(ids, AT_ONCE) if part == "messages" and self._headed else ():
            (stored,) = yield [RedisCommand(("HMGET", self._context.calls.keys.headers, *batch), list)]
            odd = [id for id, text in zip(batch, stored, strict=True) if text and not are_headers(text)]
            self._unreadable.update(dict.fromkeys(odd))
        defective = self._collector.add_ids(MESSAGE_DEFECTS, ids, statuses)
        for batch in batched(defective, self._search_batch) if self._fix else ():
            yield [self._repair(batch, fix=True, search=False)]

    def _statuses(self, ids: list[bytes], *, search: bool) -> Operation[str]:
        (statuses,) = yield [self._repair(ids, fix=self._fix and search, search=search)]
        return str(statuses)

    def _dead(self, part: str) -> Operation[None]:
        cursor = ""
        while cursor != "0":
            cursor, found = yield from self._page(part, cursor)
            entries = list(dict.fromkeys(found))
            while entries:  # one call reads a limited number of bytes
                (statuses,) = yield [repair_dead_call(self._context.calls, entries[:MAX_MOVED], fix=self._fix)]
                self._collector.add_ids(DEAD_DEFECTS, entries[: len(statuses)], statuses)
                del entries[: len(statuses)]

    def _counters(self) -> Operation[None]:
        (differences,) = yield [recount_call(self._context.calls, fix=self._fix)]
        *counters, wake, lines = differences
        for name, difference in zip(("stale_ready", "stale_retry", "backoffs"), counters, strict=True):
            if difference:
                self._collector.add(FindingKind.COUNTER, f"{name} by {difference:+d}", fixed=self._fix)
        if lines:
            self._collector.add(FindingKind.GATE, "", count=lines, fixed=self._fix)
        if wake:
            self._collector.add(FindingKind.WAKE, "", count=wake, fixed=self._fix)
        yield from self._readers()
        counted, ways = yield [self._context.calls.counts(), ways_call(self._context.calls)]
        stuck = sum(number < (counted.now - STUCK) * 1000 for way in ways for number in way.numbers)
        if stuck:
            text = f"run `delayq partitions {whole_name(self._context.queue)} --to N` again, with its number N"
            self._collector.add(FindingKind.ON_ITS_WAY, text, count=stuck)
        placed = stats_of(counted).counts.living
        if placed != counted.messages and (self._fix or not self._collector.anything):
            why = "a list is too long to be counted" if self._deep else "run a deep examination"
            text = f"{counted.messages} messages, {placed} of them in a state: {why}"
            self._collector.add(FindingKind.BALANCE, text)
        yield from self._waiting(counted)

    def _waiting(self, counted: CountsReply) -> Operation[None]:
        """Tell what keeps messages waiting: a pause, nobody who consumes or brings them back; how late they were."""
        stats = stats_of(counted)
        if paused := stats.counts.paused:
            end = "until it is resumed" if paused.until is None else f"until {paused.until.isoformat()}"
            self._collector.add(FindingKind.PAUSED, f"{end}{paused.reason and f': {paused.reason}'}", count=0)
        if slo := (yield from read_slo_report(self._context, counted)):
            self._collector.add(FindingKind.SLO, slo_text(slo), count=slo.late if slo.missed else 0)
        if stats.counts.cold:
            (tier,) = yield [read_cold(self._context.calls)]
            if text := tier.told(counted.now):
                self._collector.add(FindingKind.COLD, text, count=sum(tier.late(counted.now).values()))
        if stats.nobody_consumes:
            self._collector.add(FindingKind.UNCONSUMED, waiting_text(stats), count=stats.counts.overdue)

    def _readers(self) -> Operation[None]:
        calls = self._context.calls
        now, readers = yield [calls.time(), read_readers(calls)]
        for name, state in readers.items():
            if state.last < state.first or state.heard + state.lease >= now:
                continue
            text = f"{name} was last heard of at {from_millis(state.heard).isoformat()}: start its query again"
            self._collector.add(FindingKind.READER, text, fixed=self._fix)
            if self._fix:
                yield forget_reader(calls, name, range(state.first, state.last + 1))

    def _page(self, part: str, cursor: str) -> Operation[tuple[str, list[bytes]]]:
        """Read the next ids of a structure; the cursor is '' at the start and '0' at the end."""
        (page,) = yield [self._context.calls.walk(part, cursor=cursor or "0", limit=MAX_IDS)]
        return page  # type: ignore[no-any-return]  # the reply of `walk`

    def _repair(self, ids: list[bytes], *, fix: bool, search: bool) -> ScriptCall[str]:
        return repair_call(
            self._context.calls, ids, fix=fix, search=search, retries=self._context.settings.default_retries
        )


def examine(context: QueueContext, queue: str, *, deep: bool, fix: bool) -> Operation[Checkup]:
    """Check a queue for defects, and repair them with `fix`."""
    return _Examination(context, deep=check_bool(deep, "deep"), fix=fix).run(queue)


def repair_call(calls: Calls, ids: Iterable[bytes], *, fix: bool, search: bool, retries: int) -> ScriptCall[str]:
    """Examine messages, and `fix` defects; a status each, see `queue.repairing.repair`. `search` includes lists."""
    return calls.script("repair", [calls.now, int(fix), int(search), retries, *ids], statuses)


def repair_dead_call(calls: Calls, entries: Iterable[bytes], *, fix: bool) -> ScriptCall[str]:
    """Examine entries of the dead letter, and `fix` defects; a status each."""
    return calls.script("repair_dead", [calls.now, int(fix), *entries], statuses)


def recount_call(calls: Calls, *, fix: bool, limit: int = MAX_IDS) -> ScriptCall[tuple[int, ...]]:
    """Return how far the counters of ready, retry and backoff are off, surplus wake-ups, lines without a gate."""
    return calls.script("recount", [calls.now, int(fix), limit], integers)
