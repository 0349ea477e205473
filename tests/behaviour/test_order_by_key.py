"""Templates of limits: the messages of each key run one after another, and in order also after failures."""

from __future__ import annotations

import threading
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from delayq import ConfigurationError, DelayQueue, FindingKind, NewMessage, Snooze, Worker
from delayq.streams import StreamQueue
from delayq.values.states import State
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until

BEGIN, NUMBERS = datetime.now(UTC) - timedelta(hours=1), count()
KEYED = "delayq:{{{}}}:{}"


def healthy(queue) -> bool:
    return all(finding.kind is FindingKind.SERVER for finding in queue.examine(deep=True).findings)


def claim(queue, n: int = 100) -> list[Any]:
    return list(queue.lease("60s", n=n))


def claimed(queue, n: int = 100) -> list[str]:
    return [message.id for message in claim(queue, n)]


def wait_for(queue) -> list[Any]:
    """Claim until there is something."""
    found: list[Any] = []
    wait_until(lambda: found.extend(claim(queue)) or found)
    return found


def send(queue, *ids: str, key: str = "account:7", **options: Any) -> None:
    """Send messages of a key, each due a millisecond after all that were sent before."""
    for id in ids:
        at = BEGIN + timedelta(milliseconds=next(NUMBERS))
        queue.send_schedule_msg(id, at, id=id, key=key, **options)


def in_order(queue) -> Any:
    queue.limits.set("account:*", in_order=True)
    return queue


@everywhere
def test_messages_of_a_key_run_one_at_a_time(open_queue):
    queue = open_queue()
    queue.limits.set("account:*", running=1)
    send(queue, "a1", "a2")
    send(queue, "b1", key="account:8")
    send(queue, "c1", "c2", key="customer:1")  # which no template limits
    first = claim(queue)
    assert sorted(message.id for message in first) == ["a1", "b1", "c1", "c2"]
    assert queue.get("a2").state is State.THROTTLED
    next(message for message in first if message.id == "a1").ack()
    assert claimed(queue) == ["a2"]
    assert healthy(queue)


@everywhere
def test_template_may_let_several_of_a_key_run(open_queue):
    queue = open_queue()
    queue.limits.set("account:*", running=2)
    send(queue, "a1", "a2", "a3")
    assert claimed(queue) == ["a1", "a2"]
    assert claimed(queue) == []


@everywhere
def test_failed_message_in_order_is_not_overtaken(open_queue):
    queue = in_order(open_queue())
    send(queue, "a1", "a2")
    send(queue, "b1", key="account:8")
    a1, b1 = claim(queue)
    a1.nack(delay=0.05, error="busy")
    b1.ack()
    assert claimed(queue) == []
    assert (queue.get("a1").state, queue.get("a2").state) == (State.BACKOFF, State.THROTTLED)
    (again,) = wait_for(queue)
    assert again.id == "a1"
    again.ack()
    assert claimed(queue) == ["a2"]
    assert healthy(queue)


def test_failed_message_that_is_not_in_order_gives_its_place_back(open_queue):
    queue = open_queue()
    queue.limits.set("account:*", running=1)
    send(queue, "a1", "a2")
    claim(queue)[0].nack(delay=60, error="busy")
    assert claimed(queue) == ["a2"]


@pytest.mark.parametrize("ending", ["release", "lease"])
def test_message_that_comes_back_in_order_is_the_first_of_its_key(open_queue, ending):
    queue = in_order(open_queue())
    send(queue, "a1", "a2")
    (a1,) = queue.lease("60s" if ending == "release" else "100ms", n=10)
    if ending == "release":
        a1.release()
    (again,) = wait_for(queue)
    assert again.id == "a1"
    assert claimed(queue) == []


@pytest.mark.parametrize(
    "end",
    [
        lambda queue, message: message.ack(),
        lambda queue, message: message.reject("wrong"),
        lambda queue, message: (message.nack(delay=60), queue.cancel("a1")),
        lambda queue, message: (message.nack(delay=60), queue.kill("a1")),
        lambda queue, message: (queue.cancel("a1", running=True), message.nack(delay=60)),
    ],
    ids=["ack", "reject", "cancel in backoff", "kill in backoff", "stop"],
)
def test_each_end_lets_the_next_of_the_key_start(open_queue, end):
    queue = in_order(open_queue())
    send(queue, "a1", "a2")
    (a1,) = claim(queue)
    end(queue, a1)
    assert claimed(queue) == ["a2"]
    assert healthy(queue)


def test_dead_message_lets_the_next_of_the_key_start_and_redriven_comes_after_it(open_queue):
    queue = in_order(open_queue())
    send(queue, "a1", "a2", "a3", retries=0)
    claim(queue)[0].nack(error="no such account")
    (a2,) = claim(queue)
    assert a2.id == "a2"
    queue.dead.redrive(all=True)
    a2.ack()
    (next_one,) = claim(queue)
    assert next_one.id == "a3"
    next_one.ack()
    wait_until(lambda: queue.counts().living == 1)
    assert claimed(queue) == ["a1"]


def test_order_of_a_key_is_by_due_time_then_as_sent(open_queue):
    queue = in_order(open_queue())
    queue.send_many([NewMessage(n, delay=delay, key="account:7") for n, delay in enumerate([0.3, 0.1, 0.2, 0.1])])
    seen: list[Any] = []
    queue.callback(lambda message: seen.append(message.payload))
    queue.start_consume()
    wait_until(lambda: len(seen) == 4)
    assert seen == [1, 3, 2, 0]


def test_rescheduled_and_replaced_messages_keep_the_place_of_their_key(open_queue):
    queue = in_order(open_queue())
    send(queue, "a1", "a2")
    (a1,) = claim(queue)
    a1.nack(delay=60)
    queue.reschedule("a1", "1h")
    assert claimed(queue) == []
    queue.send_delay_msg("new", id="a1", key="account:7", replace=True)
    assert claimed(queue) == ["a1"]


def test_message_that_is_replaced_with_another_key_gives_the_place_back(open_queue):
    queue = in_order(open_queue())
    send(queue, "a1", "a2")
    claim(queue)[0].nack(delay=60)
    queue.send_delay_msg("new", id="a1", key="account:8", replace=True)
    assert claimed(queue) == ["a1"]
    assert claimed(queue) == ["a2"]


def test_limits_of_the_name_and_of_the_key_both_count(open_queue):
    queue = in_order(open_queue())
    queue.limits.set("mail", running=1)
    send(queue, "a1", "a2", name="mail")
    send(queue, "b1", key="account:8", name="mail")
    (a1,) = claim(queue)
    assert a1.id == "a1"
    a1.nack(delay=60)  # its name is free, its key is not
    (b1,) = claim(queue)
    assert b1.id == "b1"
    b1.ack()
    assert claimed(queue) == []
    queue.cancel("a1")
    assert claimed(queue) == ["a2"]
    assert healthy(queue)


def test_what_waits_for_its_name_keeps_the_order_of_its_key(open_queue):
    queue = in_order(open_queue())
    queue.limits.set("mail", running=1)
    send(queue, "b1", key="account:8", name="mail")
    send(queue, "a1", name="mail")
    send(queue, "a2")  # without the name
    (b1,) = claim(queue)
    assert claimed(queue) == []
    b1.ack()
    (a1,) = claim(queue)
    assert a1.id == "a1"
    a1.ack()
    assert claimed(queue) == ["a2"]
    assert healthy(queue)


def test_template_counts_for_what_runs_and_waits_when_it_is_set(open_queue):
    queue = open_queue()
    send(queue, "a1", "a2", "a3")
    (a1,) = claim(queue, 1)
    in_order(queue)
    assert claimed(queue) == []
    a1.ack()
    assert claimed(queue) == ["a2"]


def test_removed_template_lets_all_start_and_leaves_nothing_behind(open_queue, redis_client):
    queue = in_order(open_queue())
    send(queue, *(f"a{n}" for n in range(9)))
    (a0,) = claim(queue)
    assert queue.limits.remove("account:*")
    rest = claim(queue)
    assert [message.id for message in rest] == [f"a{n}" for n in range(1, 9)]
    for message in (a0, *rest):
        message.ack()
    assert claimed(queue) == []
    claimed(queue)
    assert not queue.limits.list()
    parts = ("limits", "gates", "running", "throttled", "key_lines")
    assert redis_client.exists(*(KEYED.format(queue.name, part) for part in parts)) == 0
    assert queue.limits.remove("account:*") is False
    assert healthy(queue)


def test_keys_leave_nothing_behind(open_queue, redis_client):
    seen: dict[str, list[int]] = defaultdict(list)
    queue = in_order(open_queue(callback=lambda message: seen[message.key].append(message.payload)))
    queue.send_many([NewMessage(n, key=f"account:{n % 50}") for n in range(500)])
    queue.run(burst=True)
    assert len(seen) == 50
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    parts = ("gates", "running", "throttled", "key_lines")
    assert redis_client.exists(*(KEYED.format(queue.name, part) for part in parts)) == 0
    assert redis_client.hlen(KEYED.format(queue.name, "limits")) == 1


def test_workers_keep_the_order_through_failures_and_snoozes(open_queue):
    lock, running, seen, twice = threading.Lock(), set(), defaultdict(list), []

    def callback(message):
        with lock:
            if message.key in running:
                twice.append(message.id)
            running.add(message.key)
            seen[message.key].append(message.payload)
        try:
            if message.payload % 7 == 0 and message.attempt == 1 and not message.snoozes:
                if message.payload % 2:
                    raise Snooze(0.02)
                raise RuntimeError("fails once")
        finally:
            with lock:
                running.discard(message.key)

    workers = [open_queue(callback=callback, concurrency=8, nack_delay=0.02) for _ in range(3)]
    in_order(workers[0]).send_many([NewMessage(n // 10, key=f"account:{n % 10}") for n in range(300)])
    for worker in workers:
        worker.start_consume()
    wait_until(lambda: workers[0].counts().living == 0)
    assert not twice
    for numbers in seen.values():
        assert numbers == sorted(numbers)
        assert sorted(set(numbers)) == list(range(30))


def test_tasks_have_keys_of_their_arguments(open_queue):
    queue = in_order(open_queue())

    @queue.task(key="account:{account}")
    def book(account: int, amount: int = 0) -> None:
        pass

    @queue.task(key="account:{kind}-1")
    def audit(kind: str = "all") -> None:
        pass

    assert [queue.get(book.send(7, amount=n).id).key for n in range(2)] == ["account:7"] * 2
    assert queue.get(audit.send().id).key == "account:all-1"
    assert queue.get(book.options(key="account:{amount}").send(7, 3).id).key == "account:3"
    (sent,) = queue.send_many([book.message(9)])
    assert queue.get(sent.id).key == "account:9"
    queue.schedules.add("nightly", every="1h", payload=book.message(5))
    with pytest.raises(ConfigurationError, match="key must be 1 to 128 of"):
        audit.send("of all")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("account:{user}", r"key of task book has \{user\}, which is no parameter: it takes account"),
        ("account:{", "key of task book cannot be read"),
        ("of all", "key must be 1 to 128 of"),
    ],
)
def test_key_of_a_task_is_checked_when_it_is_declared(open_queue, key, words):
    queue = open_queue()
    with pytest.raises(ConfigurationError, match=words):

        @queue.task(key=key)
        def book(account: int) -> None:
            pass


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("account:*", {"running": 2, "in_order": True}, "in_order runs one message of a key at a time: leave out"),
        ("account:*", {"rate_limit": "5/s"}, "a template has no rate"),
        ("account:*", {}, "say what to limit"),
        ("mail", {"in_order": True}, "in_order is for the keys of a template"),
        (None, {"in_order": True}, "in_order is for the keys of a template"),
        ("account:*", {"in_order": 1}, "in_order must be True or False"),
        ("acc*unt:*", {"running": 1}, r"a template must be the beginning of keys with a \* at its end"),
        ("account *", {"running": 1}, "a template must be the beginning of keys"),
        ("*account", {"running": 1}, "a template must be the beginning of keys"),
    ],
)
def test_template_that_cannot_be_is_refused(queue, name, options, words):
    with pytest.raises(ConfigurationError, match=words):
        queue.limits.set(name, **options)


@everywhere
@pytest.mark.parametrize("other", ["account:1*", "acc*", "*"])
def test_template_that_overlaps_another_is_refused(queue, other):
    queue.limits.set("account:*", running=1)
    with pytest.raises(ConfigurationError, match=r"overlaps account:\*, and a key has one limit: remove account:\*"):
        queue.limits.set(other, running=1)
    queue.limits.set("customer:*", running=1)
    queue.limits.remove("account:*")
    queue.limits.remove("customer:*")
    queue.limits.set(other, running=1)


@pytest.mark.parametrize("key", ["", "of all", "k" * 129, 7])
def test_key_that_cannot_be_is_refused(queue, key):
    with pytest.raises(ConfigurationError, match="key must be 1 to 128 of"):
        queue.send_delay_msg(1, key=key)


def test_streams_have_no_keys(redis_url):
    with StreamQueue("mail", url=redis_url) as queue, pytest.raises(ConfigurationError, match="limits"):
        queue.send_many([NewMessage(1, key="account:7")])


@everywhere
def test_list_tells_of_templates(queue):
    queue.limits.set("account:*", in_order=True)
    queue.send_many([NewMessage(n, key=f"account:{n % 2}") for n in range(6)])
    assert len(claimed(queue)) == 2
    (limit,) = queue.limits.list()
    assert (limit.name, limit.running, limit.in_order) == ("account:*", 1, True)
    assert (limit.active, limit.throttled) == (2, 4)


@everywhere
def test_why_tells_who_has_the_place_of_the_key(queue):
    queue.limits.set("account:*", in_order=True)
    for id in ("a1", "a2"):
        queue.send_delay_msg(id, id=id, key="account:7")
    (a1,) = queue.lease("60s", n=10)
    reason = next(one for one in queue.why("a2").reasons if one.kind == "key")
    assert reason.text == "it waits behind a1 of its key account:7, until that has ended: account:* limits it"
    assert (reason.ids, reason.name) == (("a1",), "account:*")
    a1.nack(delay=60, error="busy")
    assert "keeps the place of its key account:7" in next(
        one.text for one in queue.why("a1").reasons if one.kind == "key"
    )
    assert any(
        "1 message is held back: each key of account:* has 1 place, and 1 are taken" in one.text
        for one in queue.why().reasons
    )


def test_worker_of_many_queues_keeps_the_order(redis_url):
    seen: list[Any] = []
    with DelayQueue("one", url=redis_url) as one, DelayQueue("other", url=redis_url) as other:
        for queue in (one, other):
            in_order(queue).callback(lambda message: seen.append((message.queue, message.payload)))
            queue.send_many([NewMessage(n, key="account:7") for n in range(20)])
        Worker({one: 1, other: 1}, concurrency=4).run(burst=True)
    for queue in (one, other):
        assert [n for name, n in seen if name == queue.name] == list(range(20))
