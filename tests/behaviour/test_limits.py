"""Limits: how many messages of the queue or of a name start in a time, or run at a time, over all consumers."""

from __future__ import annotations

import threading
from datetime import timedelta
from time import monotonic

import pytest

from delayq import ConfigurationError, DeclaredLimit, FindingKind, NewMessage, RateLimited, Snooze, StopWorker
from delayq.streams import StreamQueue
from delayq.values.states import State
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until


def healthy(queue) -> bool:
    return all(finding.kind is FindingKind.SERVER for finding in queue.examine(deep=True).findings)


def claimed(queue, n: int = 100) -> list[str]:
    return [message.id for message in queue.lease(n=n)]


def test_a_rate_holds_back_what_is_over_it_and_nobody_else(open_queue):
    queue = open_queue()
    queue.limits.set("mail", rate_limit="1/h")
    queue.send_many([NewMessage(n, id=f"m{n}", name="mail") for n in range(3)])
    queue.send_many([NewMessage("other", id="o", name="sms"), NewMessage("without a name", id="w")])
    assert sorted(claimed(queue)) == ["m0", "o", "w"]
    counts = queue.counts()
    assert (counts.throttled, counts.ready, counts.living, counts.overdue) == (2, 0, 5, 0)
    assert [message.id for message in queue.list("throttled").messages] == ["m1", "m2"]
    assert queue.get("m1").state is State.THROTTLED
    assert healthy(queue)


def test_rate_is_kept_by_several_consumers(open_queue):
    started = []
    sender = open_queue()
    sender.limits.set("mail", rate_limit="50/s", burst=5)
    sender.send_many([NewMessage(n, name="mail") for n in range(40)])
    consumers = [open_queue(callback=lambda _: started.append(monotonic())) for _ in range(3)]
    for queue in consumers:
        queue.start_consume()
    wait_until(lambda: len(started) == 40)
    took = max(started) - min(started)
    assert took >= 34 / 50 - 0.1  # all but those of the burst, and those claimed before their callbacks


@pytest.mark.parametrize("limit", [{"running": 2}, {"rate_limit": "1/h", "burst": 2}])
def test_what_a_limit_holds_back_starts_by_priority(open_queue, limit):
    queue = open_queue()
    queue.limits.set("mail", **limit)
    queue.send_many([NewMessage(n, id=f"m{n}", name="mail", priority=n) for n in range(5)])
    assert claimed(queue) == ["m4", "m3"]
    assert [message.id for message in queue.list("throttled").messages] == ["m2", "m1", "m0"]
    queue.send_delay_msg("now", id="urgent", name="mail", priority=10)
    assert claimed(queue) == []
    assert healthy(queue)
    queue.limits.remove("mail")
    assert claimed(queue) == ["urgent", "m2", "m1", "m0"]


def test_place_goes_to_the_next_by_priority(open_queue):
    queue = open_queue()
    queue.limits.set("mail", running=1)
    queue.send_many([NewMessage(n, id=f"m{n}", name="mail", priority=n) for n in range(3)])
    order = []
    for _ in range(3):
        with queue.lease(n=2) as lease:
            order += [message.id for message in lease]
    assert order == ["m2", "m1", "m0"]


def test_name_that_was_paused_goes_on_by_priority(open_queue):
    queue = open_queue()
    queue.pause(name="mail")
    queue.send_many([NewMessage(n, id=f"m{n}", name="mail", priority=n) for n in (0, 2, -1)])
    queue.send_delay_msg("other", id="o")
    assert claimed(queue) == ["o"]
    queue.resume(name="mail")
    assert claimed(queue) == ["m2", "m0", "m-1"]


def test_as_many_run_as_have_a_place_and_the_next_starts_when_one_ends(open_queue):
    gate, running, most, lock, done = threading.Semaphore(0), 0, 0, threading.Lock(), []

    def work(message):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.acquire(timeout=20)
        with lock:
            running -= 1
        done.append(message.id)

    queue = open_queue(callback=work, concurrency=6)
    queue.limits.set("report", running=2)
    queue.send_many([NewMessage(n, name="report") for n in range(5)])
    queue.start_consume()
    wait_until(lambda: running == 2 and queue.counts().throttled == 3)
    assert [(limit.name, limit.running, limit.throttled, limit.active) for limit in queue.limits.list()] == [
        ("report", 2, 3, 2)
    ]
    for _ in range(5):
        gate.release()
    wait_until(lambda: len(done) == 5)
    assert most == 2
    wait_until(lambda: queue.counts().living == 0)
    assert queue.limits.list()[0].active == 0


def test_limit_of_the_queue(open_queue):
    queue = open_queue()
    queue.limits.set(running=2)
    queue.send_many([NewMessage(n, id=f"m{n}") for n in range(4)])
    first = queue.lease(n=4)
    assert [message.id for message in first] == ["m0", "m1"]
    assert claimed(queue) == []
    assert queue.counts().ready == 2
    first.messages[0].ack()
    assert claimed(queue) == ["m2"]


@pytest.mark.parametrize("name", [None, "mail"], ids=["queue", "name"])
@pytest.mark.parametrize("limit", [{"rate_limit": "1/h"}, {"running": 1}], ids=["rate", "running"])
def test_burst_ends_while_a_limit_holds_back_what_is_due(open_queue, name, limit):
    queue = open_queue(callback=lambda message: None)
    queue.limits.set(name, **limit)
    queue.send_many([NewMessage(n, id=f"m{n}", name="mail") for n in range(3)])
    held = claimed(queue)
    queue.run(burst=True)
    assert held == ["m0"]
    assert queue.counts().overdue + queue.counts().throttled == 2


def test_burst_goes_on_as_long_as_starts_are_less_than_a_tick_apart(open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.payload))
    queue.limits.set(rate_limit="20/s", burst=1)
    queue.send_many(range(6))
    queue.run(burst=True)
    assert sorted(seen) == [*range(6)]


def test_consumer_waits_for_a_place_of_the_queue_without_asking_again_and_again(open_queue, redis_client):
    seen = []
    queue, holder = open_queue(callback=lambda message: seen.append(message.id)), open_queue()
    queue.limits.set(running=1)
    queue.send_many([NewMessage(n, id=f"m{n}") for n in range(3)])
    held = holder.lease()
    queue.start_consume()
    wait_until(lambda: queue.counts().ready == 2)
    before, began = redis_client.info("commandstats")["cmdstat_evalsha"]["calls"], monotonic()
    wait_until(lambda: monotonic() - began > 1)
    assert redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] - before < 60
    assert seen == []
    with held as message:
        assert message.id == "m0"
    wait_until(lambda: sorted(seen) == ["m1", "m2"])


def test_changed_limit_counts_at_once_for_what_waits(open_queue):
    queue = open_queue()
    queue.limits.set("mail", rate_limit="1/d")
    queue.send_many([NewMessage(n, id=f"m{n}", name="mail") for n in range(4)])
    assert claimed(queue) == ["m0"]
    queue.limits.set("mail", rate_limit="1000/s", burst=2)
    with queue.lease(block=5) as message:
        assert message.id == "m1"
    assert queue.limits.remove("mail")
    assert set(claimed(queue)) >= {"m3"}
    assert queue.counts().throttled == 0
    assert queue.limits.list() == []
    assert not queue.limits.remove("mail")


def test_removed_limit_wakes_an_idle_consumer(open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.id), tick=30)
    queue.limits.set("mail", rate_limit="1/d")
    queue.send_many([NewMessage(n, id=f"m{n}", name="mail") for n in range(3)])
    queue.start_consume()
    wait_until(lambda: queue.counts().throttled == 2)
    open_queue().limits.remove("mail")
    wait_until(lambda: len(seen) == 3)


def test_limits_of_the_program(open_queue):
    queue = open_queue()

    @queue.task(rate_limit="5/m", running=3)
    def mail(user: int) -> None:
        """Send nothing."""

    queue.start_consume()
    (limit,) = queue.limits.list()
    assert (limit.name, limit.rate_limit, limit.burst, limit.running) == ("mail", "5/m", 1, 3)


def test_limits_of_the_queue_in_its_options(open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.id), rate_limit="2/h", burst=3, running=5)
    queue.send_many(range(5))
    assert queue.limits.list() == []  # nothing is stored before it consumes
    queue.run(burst=True)
    (limit,) = queue.limits.list()
    assert (limit.name, limit.rate_limit, limit.burst, limit.running) == (None, "2/h", 3, 5)
    assert (len(seen), queue.counts().ready) == (3, 2)


def test_options_of_a_queue_leave_other_limits_and_replace_what_was_set(open_queue):
    admin = open_queue()
    admin.limits.set(rate_limit="1/h", running=1)
    admin.limits.set("mail", running=7)
    queue = open_queue(callback=lambda message: None, running=9)
    queue.run(burst=True)
    assert [(limit.name, limit.rate_limit, limit.running) for limit in queue.limits.list()] == [
        (None, "1/h", 9),
        ("mail", None, 7),
    ]
    admin.limits.set(running=2)
    open_queue(callback=lambda message: None).run(burst=True)  # without options, nothing changes
    assert admin.limits.list()[0].running == 2


def test_what_was_set_since_stays_when_a_worker_starts_until_the_program_declares_another(open_queue):
    def started(**limit):
        queue = open_queue()

        @queue.task(**limit)
        def mail(user: int) -> None:
            """Send nothing."""

        queue.run(burst=True)
        (found,) = queue.limits.list()
        return found.rate_limit, found.running, found.is_declared

    admin = open_queue()
    assert started(rate_limit="5/m", running=3) == ("5/m", 3, True)
    admin.limits.set("mail", rate_limit="1/h", running=9)
    assert started(rate_limit="5/m", running=3) == ("1/h", 9, False)
    assert started(rate_limit="7/m", running=3) == ("7/m", 9, False)
    assert started(rate_limit="7/m") == ("7/m", None, True)
    admin.limits.remove("mail")
    assert started(rate_limit="7/m") == (None, None, False)
    (removed,) = admin.limits.list()
    assert (removed.name, removed.active, removed.declared) == ("mail", 0, DeclaredLimit("7/m", 1, None))
    assert started(rate_limit="8/m") == ("8/m", None, True)


def test_worker_of_several_queues_stores_the_limits_of_each(open_queue, face):
    queues = [open_queue(name, callback=lambda message: None, running=n) for n, name in enumerate("ab", 1)]
    queues.append(open_queue("c", callback=lambda message: None))
    face.worker(dict.fromkeys(queues, 1)).run(burst=True)
    assert [[limit.running for limit in queue.limits.list()] for queue in queues] == [[1], [2], []]


def test_worker_of_matching_queues_stores_the_limits_of_each(open_queue, face):
    like = open_queue("tenant", callback=lambda message: None, rate_limit="3/m")
    queues = [open_queue(f"tenant-{n}") for n in range(2)]
    for queue in queues:
        queue.send_delay_msg("x")
    face.matching("tenant-*", like).run(burst=True)
    assert [[limit.rate_limit for limit in queue.limits.list()] for queue in [like, *queues]] == [[], ["3/m"], ["3/m"]]


def test_limits_of_the_options_are_stored_again_when_redis_has_lost_the_queue(open_queue, redis_client):
    queue = open_queue(callback=lambda message: None, running=3)
    queue.run(burst=True)
    redis_client.flushall()
    queue.run(burst=True)
    assert [limit.running for limit in queue.limits.list()] == [3]


@pytest.mark.parametrize("option", [{"rate_limit": "1/s"}, {"burst": 3}, {"running": 3}], ids=lambda one: min(one))
def test_streams_have_no_limits(option):
    with pytest.raises(ConfigurationError, match=f"the streams engine has no option '{min(option)}'"):
        StreamQueue("s", url="redis://nowhere.invalid", **option)


def test_what_is_throttled_is_cancelled_rescheduled_and_replaced_like_what_is_ready(open_queue):
    queue = open_queue()
    queue.limits.set("mail", rate_limit="1/d")
    queue.send_many([NewMessage(n, id=f"m{n}", name="mail") for n in range(4)])
    assert claimed(queue) == ["m0"]
    assert queue.cancel("m1").value == "cancelled"
    assert queue.reschedule("m2", "1h").value == "rescheduled"
    assert queue.send_delay_msg("new", "2h", id="m3", replace=True).status.value == "replaced"
    counts = queue.counts()
    assert (counts.throttled, counts.pending) == (0, 2)
    assert healthy(queue)


def test_what_another_program_writes_into_limits_and_gates_holds_up_nothing(open_queue, redis_client):
    queue = open_queue()
    redis_client.hset("delayq:{reminders}:limits", "foreign", "no limit")
    redis_client.zadd("delayq:{reminders}:gates", {"foreign": 0})
    queue.limits.set("mail", rate_limit="1/h")
    queue.send_many([NewMessage(n, id=f"m{n}", name="mail") for n in range(2)])
    queue.send_delay_msg("other", id="o")
    assert sorted(claimed(queue)) == ["m0", "o"]
    queue.limits.remove("mail")
    assert claimed(queue) == ["m1"]
    assert [limit.name for limit in queue.limits.list()] == []


def test_paused_name_waits_and_others_overtake_it(open_queue):
    queue = open_queue()
    made = queue.pause(name="mail", reason="the provider is down")
    assert (made.until, made.reason) == (None, "the provider is down")
    queue.send_many([NewMessage(n, id=f"m{n}", name="mail") for n in range(2)])
    queue.send_delay_msg("other", id="o")
    assert claimed(queue) == ["o"]
    assert queue.limits.list()[0].paused == made
    assert queue.counts().paused is None
    assert queue.resume(name="mail")
    assert not queue.resume(name="mail")
    assert sorted(claimed(queue)) == ["m0", "m1"]


def test_events_tell_which_name_is_paused(open_queue):
    queue = open_queue(events=True)
    queue.pause(name="mail", reason="deploy")
    queue.pause(reason="all of it")
    queue.resume(name="mail")
    found = [(event.kind, event.name, event.reason) for event in queue.events()]
    assert found == [("paused", "mail", "deploy"), ("paused", None, "all of it"), ("resumed", "mail", None)]


def test_pause_of_a_name_ends_by_itself(open_queue):
    queue = open_queue()
    queue.pause("300ms", name="mail")
    queue.send_delay_msg("x", id="a", name="mail")
    began = monotonic()
    with queue.lease(block=5) as message:
        assert message.id == "a"
    assert 0.2 < monotonic() - began < 2.5


@pytest.mark.parametrize("name", [None, "mail"])
def test_resume_lets_go_evenly_what_waits(open_queue, name):
    started = []
    queue = open_queue(callback=lambda _: started.append(monotonic()))
    queue.pause(name=name)
    queue.send_many([NewMessage(n, name="mail") for n in range(6)])
    queue.start_consume()
    wait_until(lambda: name is None or queue.counts().throttled == 6)
    assert queue.resume(name=name, spread="1200ms")
    wait_until(lambda: len(started) == 6)
    assert started[-1] - started[0] > 0.9


@everywhere
@pytest.mark.parametrize("between", [[], ["pause"], ["remove"], ["pause", "remove"]], ids="+".join)
@pytest.mark.parametrize("name", [None, "mail"])
def test_resume_without_a_spread_ends_one(open_queue, name, between):
    started = []
    queue = open_queue(callback=lambda message: started.append(message.payload))
    queue.pause(name=name)
    queue.send_many([NewMessage(n, name="mail") for n in range(20)])
    queue.start_consume()
    wait_until(lambda: name is None or queue.counts().throttled == 20)
    assert queue.resume(name=name, spread="1h")
    wait_until(lambda: started)
    for step in between:
        if step == "pause":
            queue.pause(name=name)
        else:
            assert not queue.limits.remove(name)
    assert len(started) < 3
    assert queue.resume(name=name)
    wait_until(lambda: len(started) == 20)
    assert not queue.resume(name=name)
    assert queue.limits.list() == []


def test_rate_limited_callback_closes_its_name_for_a_time(open_queue):
    seen = []
    queue = open_queue()

    @queue.callback
    def work(message):
        seen.append(message.id)
        if message.id == "m0":
            raise RateLimited("1h")

    queue.send_delay_msg(0, id="m0", name="mail")
    queue.start_consume()
    wait_until(lambda: queue.limits.list())
    closed = queue.limits.list()[0].closed_until
    assert timedelta(minutes=59) < closed - queue.stats().at < timedelta(minutes=61)
    queue.send_many([NewMessage(1, id="m1", name="mail"), NewMessage(2, id="o", name="sms")])
    wait_until(lambda: "o" in seen and queue.counts().throttled == 1)
    assert seen == ["m0", "o"]
    assert queue.get("m0").snoozes == 1


def test_rate_limited_callback_closes_the_queue(open_queue):
    queue = open_queue()
    queue.send_many([NewMessage(n, id=f"m{n}") for n in range(2)])
    with queue.lease():
        raise RateLimited("1h", scope="queue")
    assert claimed(queue) == []
    assert queue.limits.list()[0].closed_until is not None


def test_burst_ends_while_the_queue_is_closed_for_longer(open_queue):
    queue = open_queue(callback=lambda _: RateLimited("1h", scope="queue"), prefetch=0)
    queue.preload()  # a script that is not loaded yet runs after the claim beside it
    queue.send_many([NewMessage(n, id=f"m{n}") for n in range(3)])
    queue.run(burst=True)
    assert (queue.counts().ready, queue.counts().backoff) == (2, 1)


def test_rate_limited_message_alone(open_queue):
    queue = open_queue()
    queue.send_many([NewMessage(n, id=f"m{n}", name="mail") for n in range(2)])
    with queue.lease():
        raise RateLimited("1h", scope="message")
    assert claimed(queue) == ["m1"]
    assert queue.limits.list() == []


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"rate_limit": "5/fortnight"}, "rate_limit must be per s, m, h or d, or per a duration such as '10s'"),
        ({"rate_limit": "5"}, "rate_limit must look like '200/s', '5/m' or '3/10s', not '5'"),
        ({"rate_limit": 5}, "rate_limit must look like"),
        ({"rate_limit": "0/s"}, "rate_limit must be from 1 to 100000 a second"),
        ({"rate_limit": "1/0s"}, "rate_limit must be per 1ms to 30d, not '1/0s'"),
        ({"rate_limit": "1/31d"}, "rate_limit must be per 1ms to 30d, not '1/31d'"),
        ({"rate_limit": "1/101y"}, "rate_limit must be per s, m, h or d"),
        ({"rate_limit": "-1/s"}, "rate_limit must look like"),
        ({"rate_limit": "200000/s"}, "rate_limit must be from 1 to 100000 a second"),
        ({"rate_limit": "5/s", "burst": 0}, "burst must be a whole number from 1"),
        ({"rate_limit": "5/s", "burst": True}, "burst must be a whole number from 1"),
        ({"burst": 5}, "burst goes with rate_limit"),
        ({"running": 0}, "running must be a whole number from 1"),
        ({"running": -1}, "running must be a whole number from 1"),
        ({"running": True}, "running must be a whole number from 1"),
        ({"running": 1.5}, "running must be a whole number from 1"),
    ],
)
def test_wrong_limits_are_refused(open_queue, wrong, text):
    queue = open_queue()

    def work() -> None:
        pass

    with pytest.raises(ConfigurationError, match=text):
        queue.limits.set("mail", **wrong)
    with pytest.raises(ConfigurationError, match=text):
        queue.task(**wrong)(work)
    with pytest.raises(ConfigurationError, match=text):
        open_queue(**wrong)
    assert queue.limits.list() == []


def test_limit_of_nothing_and_of_an_unknown_scope_are_refused(open_queue):
    queue = open_queue()
    with pytest.raises(ConfigurationError, match="say what to limit"):
        queue.limits.set("mail")
    with pytest.raises(ConfigurationError, match="name must be"):
        queue.limits.set("two words", running=1)
    with pytest.raises(ConfigurationError, match="scope must be 'name', 'queue' or 'message', not 'key'"):
        RateLimited("1s", scope="key")
    with pytest.raises(ConfigurationError, match="name must be"):
        queue.pause(name="two words")


def test_workers_that_do_not_know_a_name_take_nothing_of_its_rate(open_queue):
    sender, done = open_queue(), []
    sender.limits.set("mail", rate_limit="20/s")
    sender.send_many([NewMessage(n, name="mail") for n in range(2000)])
    workers = [open_queue() for _ in range(4)]
    for worker in workers[:3]:
        worker.on("other")(lambda _: None)
    workers[3].on("mail")(lambda _: done.append(monotonic()))
    for worker in workers:
        worker.start_consume()
    wait_until(lambda: len(done) >= 41)
    took = done[40] - done[0]
    assert took >= 37 / 20 - 0.1, "as fast as the rate allows, but for the burst"
    assert took < 7.5, "a quarter of the rate, as if what the others return had started"


def test_name_that_a_worker_does_not_know_starts_in_another_at_once(open_queue):
    old = open_queue()
    old.limits.set("mail", rate_limit="1/h", burst=1)
    old.on("other")(lambda _: None)
    old.send_delay_msg("letter", id="m", name="mail")
    old.run(burst=True)
    assert (old.counts().backoff, claimed(old)) == (1, [])
    old.reschedule("m", 0)
    assert claimed(old) == ["m"]


@pytest.mark.parametrize("limit", [{"name": "mail"}, {"name": None}])
def test_what_waited_for_a_busy_callback_gives_its_start_back(open_queue, limit):
    gate, started = threading.Event(), []

    def work(message):
        started.append(message.id)
        gate.wait(20)

    busy = open_queue(callback=work, prefetch=5)
    busy.limits.set(limit["name"], rate_limit="1/h", burst=4)
    busy.send_many([NewMessage(n, id=f"m{n}", name="mail") for n in range(6)])
    consuming = busy.start_consume()
    wait_until(lambda: started and busy.counts().active == 4)
    assert claimed(busy) == []
    consuming.stop(grace=0)
    gate.set()
    consuming.wait(timeout=20)
    wait_until(lambda: busy.counts().active == 0)
    assert len(claimed(open_queue())) == 3


def test_what_a_callback_returns_does_not_give_its_start_back(open_queue):
    queue = open_queue()
    queue.limits.set("mail", rate_limit="1/h", burst=3)
    queue.send_many([NewMessage(n, id=f"m{n}", name="mail") for n in range(4)])
    with queue.lease() as message:
        message.release()
    with queue.lease():
        raise Snooze("1h")
    with pytest.raises(StopWorker), queue.lease():
        raise StopWorker("no password")
    assert claimed(queue) == []
