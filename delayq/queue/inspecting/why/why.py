"""`queue.why`: why a message waits, or why a queue gives out nothing, in plain sentences.

It reads what is stored, with the calls of `get`, `counts`, `limits` and `workers` in one round trip. A second one
follows only for what the first has named: who takes the places of a limit, what has a higher rank, or what holds an
unknown id.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from math import floor, nan
from typing import Any

from delayq.broker.calls import scope_of
from delayq.broker.context import QueueContext
from delayq.broker.foreign import stored_id
from delayq.broker.keys import check_stored_id
from delayq.broker.message.attributes import Attributes
from delayq.broker.message.collected import gathered_by
from delayq.broker.replies import CountsReply
from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.broker.stored_presence import WorkersPage, workers_page_call
from delayq.broker.transport.operation import Operation
from delayq.queue.control.limit_calls import LimitsPage, StoredLimit, key_number, limits_page_call
from delayq.queue.control.limits import Limit, limit_of, starts_of
from delayq.queue.inspecting.counts import stats_of
from delayq.queue.inspecting.inspector import Inspector
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.queue.inspecting.why.looked import Looked, Reason, ScopeLimit, Why
from delayq.queue.inspecting.why.message_reasons import reasons_of_message
from delayq.queue.inspecting.why.queue_reasons import reasons_of_queue
from delayq.queue.inspecting.workers import worker_of
from delayq.values.states import State
from delayq.values.times import LATEST, from_millis

PAGE = 500
"""Limits, and consumers, that one call reads."""
MAX_NAMED = 4
"""Ids that are read of those that take the places of a limit."""


def why(context: QueueContext, id: str | None = None) -> Operation[Why]:
    """Say why a message waits, or without an id why the queue gives out nothing, or not everything."""
    if id is None:
        looked, _ = yield from look(context)
        return Why(None, None, looked.at, tuple(reasons_of_queue(looked)))
    calls, check_stored = context.calls, check_stored_id(id)
    keys, key = calls.keys, stored_id(check_stored)
    looked, (found, follower) = yield from look(
        context, calls.get(id), RedisCommand(("HSTRLEN", keys.successors, key), int)
    )
    message = None if found is None else Inspector(context).found(id, found)
    if message is None:
        # An inspector may not read the ids that are held: for them it is only unknown.
        (score,) = yield [RedisCommand(("ZSCORE", keys.done, key), _read_score, expects="NOPERM")]
        return Why(id, None, looked.at, (_absence(looked, score),))
    attributes = Attributes.of(found.attributes)
    since, looked.gathering = attributes.since, gathered_by(attributes)
    looked.debounced = from_millis(int(since)) if since.isdecimal() and len(since) <= 15 else None  # noqa: PLR2004
    looked.followed = follower > 0
    yield from _look_closer(context, looked, message)
    return Why(message.id, message.state, looked.at, tuple(reasons_of_message(looked, message)))


def look(context: QueueContext, *more: ScriptCall[Any] | RedisCommand[Any]) -> Operation[tuple[Looked, list[Any]]]:
    """Read counts, limits and consumers, with other calls in the same round trip, and the replies to these."""
    calls = context.calls
    counted: CountsReply
    limits: LimitsPage
    workers: WorkersPage
    first, rest = limits_page_call(calls, "0", limit=PAGE), workers_page_call(calls, "0", limit=PAGE)
    counted, limits, workers, *others = yield [calls.counts(), first, rest, *more]
    stored, present = {one.scope: one for one in limits.limits}, {one.consumer_id: one for one in workers.workers}
    while limits.cursor != "0":
        (limits,) = yield [limits_page_call(calls, limits.cursor, limit=PAGE)]
        stored.update((one.scope, one) for one in limits.limits)
    while workers.cursor != "0":
        (workers,) = yield [workers_page_call(calls, workers.cursor, limit=PAGE)]
        present.update((one.consumer_id, one) for one in workers.workers)
    scopes = {scope: _scope_limit(one, counted.now) for scope, one in stored.items()}
    found = [worker_of(one, counted.now) for one in present.values()]
    return Looked(stats_of(counted), counted.meta, scopes, found), others


def _scope_limit(stored: StoredLimit, now: int) -> ScopeLimit:
    number, next_start = starts_of(stored, now)
    return ScopeLimit(limit_of(stored, now), next_start, number)


def _look_closer(context: QueueContext, looked: Looked, message: MessageInfo) -> Operation[None]:
    """Read who takes the places of the limits of a message, and how many have a higher rank."""
    calls, one = context.calls, looked.limits.get(scope_of(message.name)) if message.name else None
    requests: list[RedisCommand[Any]] = []
    asks_places = one is not None and one.is_full and message.state is not State.ACTIVE
    if asks_places and one is not None:
        places = ("ZRANGEBYSCORE", calls.keys.running, one.number, one.number, "LIMIT", 0, MAX_NAMED)
        requests.append(RedisCommand(places, _read_ids))
    looked.key_limit = _template_of(looked, message.key)
    asks_key = looked.key_limit is not None and message.state is not State.ACTIVE
    if asks_key:
        number = key_number(message.key)
        places = ("ZRANGEBYSCORE", calls.keys.running, number, number + 1, "LIMIT", 0, MAX_NAMED)
        requests.append(RedisCommand(places, _read_ids))
    step = looked.priority_step
    if step and message.state is State.READY and message.due is not None:
        rank = round(message.due.timestamp() * 1000) - message.priority * step
        requests.append(RedisCommand(("ZCOUNT", calls.keys.ranked, "-inf", f"({rank}"), int))
    if not requests:
        return
    replies: Iterator[Any] = iter((yield requests))
    if asks_places:
        looked.holders = next(replies)
    if asks_key:
        looked.key_holders = [id.removeprefix(" ") for id in next(replies)]
    looked.overtaking = next(replies, 0)


def _template_of(looked: Looked, key: str) -> Limit | None:
    """Return the template that limits a key; None if there is none."""
    limits = (one.limit for one in looked.limits.values() if key)
    return next((one for one in limits if one.prefix is not None and key.startswith(one.prefix)), None)


def _read_score(reply: Any) -> float:
    return nan if reply is None or isinstance(reply, Exception) else float(reply)


def _read_ids(reply: list[bytes]) -> list[str]:
    return [id.decode(errors="backslashreplace") for id in reply]


def _absence(looked: Looked, score: float) -> Reason:
    """Say what is known of an id without a message: whether it is held, so that sending it again is refused."""
    held_until: datetime | None = None
    if 0 <= score <= LATEST:
        window = looked.dedupe_window
        held_until = from_millis(min(floor(score) if score % 1 else int(score) + window, LATEST))
    if held_until is None or held_until <= looked.at:
        cold = looked.stats.counts.cold
        also = f", or is one of {cold:,} in the cold tier (see delayq cold --find)" if cold else ""
        return Reason("unknown", f"there is no such message: it was never sent, or is done, cancelled or expired{also}")
    text = f"it is settled: it has ended, and a send with its id is refused until {looked.time(held_until)}"
    return Reason("settled", text, until=held_until)
