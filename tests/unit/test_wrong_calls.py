"""Calls of somebody who is new, or comes from another library: each error says what is wrong, and what to write."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from delayq import (
    AsyncDelayQueue,
    Backoff,
    Breaker,
    ConfigurationError,
    DelayQueue,
    InvalidValueError,
    NewMessage,
    PayloadError,
    RateLimited,
    Retry,
    Worker,
)

NOWHERE = "redis://127.0.0.1:1/0"
"""No server listens there: these calls send nothing."""
NOW = datetime(2099, 1, 1, tzinfo=UTC)
OPTION, VALUE = ConfigurationError, InvalidValueError


def one(user): ...


def no_arguments(): ...


async def awaited(message): ...


CALLS = [
    (lambda q: DelayQueue("my queue"), VALUE, "queue name must be 1 to 128 of A-Z a-z 0-9 . _ -, not 'my queue'"),
    (lambda q: DelayQueue("jobs", broker="redis://localhost"), OPTION, "unknown option 'broker': here it is url"),
    (lambda q: DelayQueue("jobs", host="localhost"), OPTION, "unknown option 'host': here it is url"),
    (lambda q: DelayQueue("jobs", url="localhost:6379"), OPTION, "url must begin with redis://, rediss://,"),
    (lambda q: DelayQueue("jobs", redis="redis://localhost"), OPTION, "redis must be a redis.client.Redis, not str"),
    (lambda q: DelayQueue("jobs", connection=object()), OPTION, "here it is redis, or url"),
    (lambda q: DelayQueue("jobs", visibility_timeout=30), OPTION, "here it is lease"),
    (lambda q: DelayQueue("jobs", serializer="pickle"), OPTION, "unknown option 'serializer': here it is codec"),
    (lambda q: DelayQueue("jobs", codec="msgpack"), OPTION, "codec must be 'json', 'text', 'bytes' or have encode"),
    (lambda q: DelayQueue("jobs", concurrency="4"), VALUE, "concurrency must be a whole number from 1 to 10000,"),
    (lambda q: DelayQueue("jobs", max_retries=3), OPTION, "here it is retries, and default_retries of a queue"),
    (lambda q: DelayQueue("jobs", lease="5 minutes"), VALUE, "lease must look like '1h30m', '45s' or '7d'"),
    (lambda q: DelayQueue("jobs", rate_limit=10), VALUE, "rate_limit must look like '200/s', '5/m' or '3/10s',"),
    (lambda q: DelayQueue("jobs", burst=5), OPTION, "burst goes with rate_limit: say how many may start in a"),
    (lambda q: DelayQueue("jobs", durability="fsync"), VALUE, "durability must be 'stored' or 'replicated', not"),
    (
        lambda q: DelayQueue("jobs", default_timeout=30),
        OPTION,
        "here it is timeout, of a task or a message; max_consume_duration of a queue",
    ),
    (lambda q: DelayQueue("jobs", lateness_slo="fast"), OPTION, "lateness_slo must look like '99% within 1s', not"),
    (lambda q: DelayQueue("jobs", breaker=0.5), OPTION, "breaker must be a Breaker, such as Breaker(share=0.5,"),
    (lambda q: DelayQueue("jobs", redact="email"), OPTION, "redact must be a list of at most 100 paths, such as"),
    (lambda q: DelayQueue("jobs", callback=awaited), OPTION, "callback is a coroutine function: use it with an"),
    (lambda q: AsyncDelayQueue("jobs", concurrency=None), VALUE, "concurrency must be a whole number from 1 to"),
    (
        lambda q: AsyncDelayQueue("jobs", soft_time_limit=5),
        OPTION,
        "here it is timeout, and max_consume_duration of a queue",
    ),
    (lambda q: q.send(1, "1 hour"), VALUE, "delay must look like '1h30m', '45s' or '7d' (units: w d h m s ms),"),
    (lambda q: q.send(1, countdown=5), OPTION, "unknown option 'countdown': here it is delay"),
    (lambda q: q.send(1, delay=-5), VALUE, "delay must be between 0s and 100 years, not -5"),
    (lambda q: q.send(1, delay=True), VALUE, "delay must be a timedelta, a number of seconds or a text like"),
    (lambda q: q.send(1, delay="5m", at=NOW), OPTION, "give delay or at, but not both"),
    (lambda q: q.send(1, at="2027-01-01T09:00"), VALUE, "at must be a datetime, not '2027-01-01T09:00'"),
    (lambda q: q.send(1, at=NOW.replace(tzinfo=None)), VALUE, "at must carry a time zone; 2099-01-01T00:00:00 is"),
    (lambda q: q.send(1, at=NOW.date()), VALUE, "at must be a datetime, not datetime.date(2099, 1, 1)"),
    (lambda q: q.send(object()), PayloadError, "payload cannot be encoded as JSON: Encoding objects of type object is"),
    (lambda q: q.send({1, 2}), PayloadError, "payload cannot be encoded as JSON: a set would come back as list: send"),
    (lambda q: q.send(1, id=42), VALUE, "id must be 1 to 128 of A-Z a-z 0-9 . _ : @ / + = -, not 42"),
    (lambda q: q.send(1, task_id="a"), OPTION, "unknown option 'task_id': here it is id"),
    (lambda q: q.send(1, headers={"tries": 3}), VALUE, "headers must map str to str"),
    (lambda q: q.send(1, max_attempts=5), OPTION, "here it is retries, without the first attempt"),
    (lambda q: q.send(1, priority="high"), VALUE, "priority must be a whole number from -100 to 100, not 'high'"),
    (lambda q: q.send(1, expires="yesterday"), VALUE, "expires must look like '1h30m', '45s' or '7d' (units: w d"),
    (lambda q: q.send(1, hours="9-5"), VALUE, "hours must look like '08:00-21:00', 'MON-FRI"),
    (lambda q: q.send(1, hours="08:00-21:00", tz="Mars"), VALUE, "unknown time zone 'Mars': give a name such as"),
    (lambda q: q.send(1, tz="Europe/Berlin"), OPTION, "tz goes with hours: say when the message may be delivered"),
    (lambda q: q.send(1, collect=10), OPTION, "collect goes with debounce: say how long to wait for another"),
    (lambda q: q.send(1, group="a"), OPTION, "group goes with debounce and collect: say how long it waits, and"),
    (lambda q: q.send(1, debounce="5s"), OPTION, "debounce needs an id, or unique='payload'"),
    (lambda q: q.send(1, replace=True), OPTION, "replace needs the id of the message to replace"),
    (lambda q: q.send(1, id="a", replace="before"), OPTION, "replace must be True, False or 'after', not 'before'"),
    (lambda q: q.send(1, queue="other"), OPTION, "unknown option 'queue': known are missed, priority, unique,"),
    (lambda q: q.send(1, key="a b"), VALUE, "key must be 1 to 128 of A-Z a-z 0-9 . _ : @ / + = -, not 'a b'"),
    (lambda q: q.send(1, missed="drop"), OPTION, "missed goes with expires: say when the message is missed"),
    (lambda q: q.send_many("abc"), OPTION, "messages must be an iterable of payloads, such as a list, not one str"),
    (lambda q: q.send_many([NewMessage(1, delay=1, at=NOW)]), OPTION, "give delay or at, but not both"),
    (lambda q: q.send_many([1, 2], countdown=5), OPTION, "unknown option 'countdown': here it is delay"),
    (lambda q: q.enqueue(print, 1), AttributeError, "'DelayQueue' object has no attribute 'enqueue': here it is send"),
    (lambda q: q.get_message(), AttributeError, "here it is lease() or a callback"),
    (lambda q: q.qsize(), AttributeError, "'DelayQueue' object has no attribute 'qsize': here it is counts"),
    (lambda q: q.delete("a"), AttributeError, "'DelayQueue' object has no attribute 'delete': here it is cancel"),
    (lambda q: q.dequeue(), AttributeError, "here it is lease() or a callback"),
    (lambda q: q.peek(), AttributeError, "'DelayQueue' object has no attribute 'peek': here it is list"),
    (lambda q: q.cancel(7), VALUE, "id must be 1 to 128 of A-Z a-z 0-9 . _ : @ / + = -, not 7"),
    (lambda q: q.revoke("a"), AttributeError, "'DelayQueue' object has no attribute 'revoke': here it is cancel"),
    (lambda q: q.reschedule("a"), OPTION, "give delay or at: when the message is due"),
    (lambda q: q.reschedule("a", 5, at=NOW), OPTION, "give delay or at, but not both"),
    (lambda q: q.result("a", timeout="soon"), VALUE, "timeout must look like '1h30m', '45s' or '7d' (units: w d"),
    (lambda q: q.list("failed"), OPTION, "state must be one of pending, ready, active, backoff, retry, throttled,"),
    (lambda q: q.list("pending", limit=10000), VALUE, "limit must be a whole number from 1 to 1000, not 10000"),
    (lambda q: q.search("x", where="body"), OPTION, "where must be one or several of payload, error, headers, not"),
    (lambda q: q.edit("a"), OPTION, "say what to change: give a payload, headers, a name, a priority or expires"),
    (lambda q: q.edit("a", delay=5), OPTION, "unknown option 'delay': known are headers, name, priority, expires"),
    (lambda q: q.forget(), OPTION, "say what to forget: give ids, or id_prefix, or name; one of them"),
    (lambda q: q.forget("a", name="mail"), OPTION, "give ids, or id_prefix, or name; one of them"),
    (lambda q: q.forget("a", dry_run="yes"), VALUE, "dry_run must be True or False, not 'yes'"),
    (lambda q: q.select("failed"), OPTION, "the state of a selection must be one of pending, ready, throttled,"),
    (lambda q: q.select().cancel(), OPTION, "say which messages: give a state, name, id_prefix, due_from or due_to"),
    (lambda q: q.select(name="mail").reschedule(), OPTION, "give delay or at: when the message is due"),
    (lambda q: q.memory_usage("all"), VALUE, "samples must be a whole number from 0 to 1000, not 'all'"),
    (lambda q: q.pause(reason="x" * 500), OPTION, "reason must be one line of at most 200 characters"),
    (lambda q: q.history(days=1000), VALUE, "days must be a whole number from 1 to 90, not 1000"),
    (lambda q: q.lease("forever"), VALUE, "lease must look like '1h30m', '45s' or '7d' (units: w d h m s ms),"),
    (lambda q: q.lease(n=0), VALUE, "n must be a whole number from 1 to 1000, not 0"),
    (lambda q: q.run(processes=4), OPTION, "unknown option 'processes': known are burst, concurrency, grace"),
    (lambda q: q.run(concurency=4), OPTION, "unknown option 'concurency', did you mean 'concurrency'?"),
    (lambda q: q.work(), AttributeError, "'DelayQueue' object has no attribute 'work': here it is run"),
    (lambda q: q.callback(5), OPTION, "callback must be callable, not 5"),
    (lambda q: q.callback(no_arguments), OPTION, "callback must take one argument, not (): no_arguments"),
    (lambda q: q.batch_callback(most=0)(print), VALUE, "most must be a whole number from 1 to 1000, not 0"),
    (lambda q: q.task(max_retries=3)(one), OPTION, "here it is retries, and default_retries of a queue"),
    (lambda q: q.task(lambda user: user), VALUE, "name must be 1 to 128 of A-Z a-z 0-9 . _ : / -, not '<lambda>'"),
    (lambda q: q.task(one).delay(1), AttributeError, "'Task' object has no attribute 'delay': here it is send"),
    (
        lambda q: q.task(one).send(1, 2),
        PayloadError,
        "task one cannot be called like this: too many positional arguments",
    ),
    (lambda q: q.task(one).options(countdown=5), OPTION, "unknown option 'countdown': here it is delay"),
    (lambda q: q.cron("0 25 * * *")(one), VALUE, "schedule one: cron '0 25 * * *' is not valid: bad hour: 0 to 23"),
    (lambda q: q.every("5 minutes")(one), VALUE, "schedule one: every must look like '1h30m', '45s' or '7d'"),
    (lambda q: q.schedules.add("daily"), OPTION, "schedule daily: give cron, every or rrule: one of them"),
    (lambda q: q.schedules.add("daily", crontab="0 9 * * *"), OPTION, "did you mean 'cron'?"),
    (lambda q: q.schedules.add("daily", cron="0 9 * *"), VALUE, "give five, minute hour day month"),
    (lambda q: q.schedules.add("daily", every="1h", misfire="catchup"), VALUE, "schedule daily: misfire must be"),
    (lambda q: q.schedules.create("daily", cron="0 9 * * *"), AttributeError, "here it is add"),
    (lambda q: q.schedules.delete("daily"), AttributeError, "here it is remove"),
    (lambda q: q.schedules.pause(), OPTION, "select schedules: give a name, or a label, a prefix or both"),
    (lambda q: q.schedules.sync(["a"], owner="x"), OPTION, "schedules must be Schedule objects, not 'a'"),
    (lambda q: q.limits.set(), OPTION, "say what to limit: rate_limit='200/s', running=5, or both"),
    (lambda q: q.limits.set("mail", running=0), VALUE, "running must be a whole number from 1 to 1000000, not 0"),
    (lambda q: q.limits.add("mail", rate_limit="5/s"), AttributeError, "here it is set"),
    (lambda q: q.dead.redrive(), OPTION, "select entries: give an id or entry, a reason, error or group to match,"),
    (lambda q: q.dead.retry("a"), AttributeError, "'DeadLetter' object has no attribute 'retry': here it is redrive"),
    (lambda q: q.dead.redrive("a", all=True), OPTION, "error or group to match, or all=True; one of them"),
    (lambda q: Worker([q]), OPTION, "give the queues of a Worker with their weights, as in {critical: 6, low: 1},"),
    (lambda q: Worker({q: 0}), VALUE, "the weight of jobs must be a whole number from 1 to 1000, not 0"),
    (lambda q: Breaker(share=50), OPTION, "Breaker: share must be above 0 and at most 1, not 50"),
    (lambda q: Backoff.linear("soon"), VALUE, "step must look like '1h30m', '45s' or '7d' (units: w d h m s ms),"),
    (lambda q: Retry(delay="soon"), VALUE, "delay must look like '1h30m', '45s' or '7d' (units: w d h m s ms),"),
    (lambda q: RateLimited("5s", scope="all"), OPTION, "scope must be 'name', 'queue' or 'message', not 'all'"),
    (lambda q: q.hooks.on("success"), OPTION, "the event of a hook is one of acked, failed, dead"),
]
"""A call of a queue with a callback, its error, and what that says."""
MESSAGE_CALLS = [
    (lambda m: m.nack(delay="soon"), VALUE, "delay must look like '1h30m', '45s' or '7d' (units: w d h m"),
    (lambda m: m.extend("forever"), VALUE, "lease must look like '1h30m', '45s' or '7d' (units: w d h m"),
    (lambda m: m.reject(5), OPTION, "reason must be a str, not 5"),
    (lambda m: m.retry(countdown=5), AttributeError, "here it is nack, or raise Retry"),
    (lambda m: m.body, AttributeError, "'Message' object has no attribute 'body': here it is payload"),
    (lambda m: m.requeue(), AttributeError, "here it is release, or nack"),
    (lambda m: m.touch(), AttributeError, "'Message' object has no attribute 'touch': here it is extend"),
    (lambda m: m.delivery_count, AttributeError, "here it is attempt"),
]
AWAITED = [
    (lambda q: q.send(1, countdown=5), OPTION, "unknown option 'countdown': here it is delay"),
    (lambda q: q.send(1, at=NOW.replace(tzinfo=None)), VALUE, "at must carry a time zone"),
    (lambda q: q.reschedule("a"), OPTION, "give delay or at: when the message is due"),
    (lambda q: q.dead.retry("a"), AttributeError, "has no attribute 'retry': here it is redrive"),
    (lambda q: q.schedules.create("a"), AttributeError, "has no attribute 'create': here it is add"),
    (lambda q: q.limits.add("a"), AttributeError, "has no attribute 'add': here it is set"),
]


def named(row):
    return row if isinstance(row, str) else ""


@pytest.mark.table(("act", "kind", "says"), CALLS, ids=named)
def test_a_wrong_call_is_told_what_to_write(act, kind, says):
    queue = DelayQueue("jobs", url=NOWHERE, callback=print)
    with pytest.raises(kind) as caught:
        act(queue)
    assert says in str(caught.value)
    assert type(caught.value) is kind


@pytest.mark.table(("act", "kind", "says"), AWAITED, ids=named)
def test_a_wrong_call_in_asyncio_is_told_the_same(act, kind, says):
    async def main():
        await act(AsyncDelayQueue("jobs", url=NOWHERE))

    with pytest.raises(kind) as caught:
        asyncio.run(main())
    assert says in str(caught.value)


def test_a_wrong_call_of_a_message_is_told_what_to_write(redis_url):
    with DelayQueue("jobs", url=redis_url) as queue:
        queue.send(1)
        with queue.lease() as message:
            for act, kind, says in MESSAGE_CALLS:
                with pytest.raises(kind) as caught:
                    act(message)
                assert says in str(caught.value)
            assert message.ack()
