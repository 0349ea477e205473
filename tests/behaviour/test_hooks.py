"""Hooks: what a program has done around its sends and callbacks, and when its messages end."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from contextlib import contextmanager

import pytest

from delayq import (
    AsyncDelayQueue,
    ConfigurationError,
    DelayQueue,
    Discard,
    NewMessage,
    QueueFullError,
    Reject,
    Retry,
    Snooze,
)
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until

TENANT = contextvars.ContextVar("tenant", default="")


@pytest.fixture
def told(queue):
    """Hooks for all endings, and what they were told."""
    told = []
    for event in ("acked", "failed", "dead", "discarded"):
        queue.hooks.on(event)(told.append)
    return told


def endings(told):
    return [(ended.event, ended.id, ended.attempt, ended.error) for ended in told]


def abandoned(queue):
    """Lease a message, as somebody does who is lost then; tell whether there was one."""
    return next(iter(queue.lease()), None) is not None


@everywhere
class TestAroundCallback:
    def test_hooks_surround_each_call_the_first_is_outermost(self, queue):
        seen = []

        @queue.hooks.around_callback
        def outer(message):
            seen.append(f"outer {message.id}")
            yield
            seen.append("outer after")

        @queue.hooks.around_callback
        @contextmanager
        def inner(message):
            seen.append(f"inner {message.attempt}")
            yield
            seen.append("inner after")

        queue.callback(lambda message: seen.append(message.payload))
        queue.send_delay_msg("hello", id="m")
        queue.run(burst=True)

        assert seen == ["outer m", "inner 1", "hello", "inner after", "outer after"]

    def test_context_variables_of_a_hook_are_those_of_the_callback(self, url):
        queue, seen = DelayQueue("reminders", url=url), []

        @queue.hooks.around_callback
        def tenant(message):
            token = TENANT.set(message.headers["tenant"])
            yield
            TENANT.reset(token)

        queue.callback(lambda _: seen.append(TENANT.get()))
        for name in ("a", "b"):
            queue.send_delay_msg(0, headers={"tenant": name})
        queue.run(burst=True)

        queue.close()
        assert sorted(seen) == ["a", "b"]
        assert TENANT.get() == ""

    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize(
        ("outcome", "state"),
        [
            (ValueError("no"), "backoff"),
            (Retry(delay=60), "backoff"),
            (Snooze(60), "backoff"),
            (Reject("no"), "dead"),
            (Discard(), None),
        ],
    )
    def test_a_hook_may_raise_what_a_callback_may(self, open_queue, outcome, state, when):
        queue, called = open_queue(nack_delay=60), []

        @queue.hooks.around_callback
        def refusing(_):
            if when == "before":
                raise outcome
            yield
            raise outcome

        queue.callback(called.append)
        queue.send_delay_msg("hello", id="m")
        queue.run(burst=True)

        stored = queue.get("m")
        assert (stored and stored.state) == state
        assert len(called) == (when == "after")

    def test_a_hook_sees_the_exception_and_may_keep_it(self, queue):
        seen = []

        @queue.hooks.around_callback
        def forgiving(_):
            try:
                yield
            except ValueError as error:
                seen.append(str(error))

        def fail(_):
            raise ValueError("no")

        queue.callback(fail)
        queue.send_delay_msg("hello", id="m")
        queue.run(burst=True)

        assert seen == ["no"]
        assert queue.stats().totals["acked"] == 1

    def test_a_batch_and_a_task_have_hooks_too(self, open_queue):
        batches, tasks, seen = open_queue("batches"), open_queue("tasks"), []
        for queue in (batches, tasks):

            @queue.hooks.around_callback
            def hook(argument):
                seen.append(len(argument) if isinstance(argument, list) else argument.name)
                yield

        batches.batch_callback(lambda messages: None)
        batches.send_many([1, 2, 3])

        @tasks.task(name="remind")
        def remind(user):
            seen.append(user)

        remind.send(42)
        batches.run(burst=True)
        tasks.run(burst=True)

        assert seen == [3, "remind", 42]


@everywhere
class TestAroundSend:
    def test_headers_are_added_and_outcomes_read(self, queue):
        seen = []

        @queue.hooks.around_send
        def stamp(sending):
            for message in sending.messages:
                message.headers["tenant"] = "acme"
            yield
            seen.append(
                (sending.queue, [message.name for message in sending.messages], [s.status for s in sending.sent])
            )

        queue.send_delay_msg("a", 60, id="a", name="bill")
        queue.send_delay_msg("a", 60, id="a", name="bill")
        queue.send_many(["b", NewMessage("c", id="c", headers={"own": "1"})], delay=60)

        assert seen == [
            ("reminders", ["bill"], ["new"]),
            ("reminders", ["bill"], ["exists"]),
            ("reminders", ["", ""], ["new", "new"]),
        ]
        assert queue.get("a").headers == {"tenant": "acme"}
        assert queue.get("c").headers == {"own": "1", "tenant": "acme"}

    def test_many_plain_payloads_get_their_headers(self, queue):
        @queue.hooks.around_send
        def stamp(sending):
            for message in sending.messages:
                message.headers["n"] = message.id
            yield

        sent = queue.send_many(list(range(1500)), delay=60)

        assert all(queue.get(id).headers == {"n": id} for id in sent.ids[::300])
        assert queue.counts().pending == 1500

    def test_what_a_hook_raises_before_the_send_refuses_it(self, queue):
        @queue.hooks.around_send
        def refuse(_):
            raise PermissionError("not now")
            yield

        for send in (lambda: queue.send_delay_msg(1), lambda: queue.send_many([1, 2])):
            with pytest.raises(PermissionError):
                send()
        assert queue.counts().living == 0

    def test_headers_that_cannot_be_stored_refuse_the_send_and_leave_the_hook(self, queue):
        left = []

        @queue.hooks.around_send
        def stamp(sending):
            sending.messages[0].headers["n"] = 1
            try:
                yield
            finally:
                left.append(True)

        with pytest.raises(ConfigurationError, match="headers must map str to str"):
            queue.send_delay_msg(1)
        assert left == [True]
        assert queue.counts().living == 0

    def test_a_hook_sees_why_a_send_has_failed(self, open_queue):
        queue, seen = open_queue(max_length=1), []

        @queue.hooks.around_send
        def watch(sending):
            try:
                yield
            except Exception as error:
                seen.append(type(error).__name__)
                raise

        queue.send_delay_msg(1, 60)
        with pytest.raises(QueueFullError):
            queue.send_delay_msg(2, 60)
        assert seen == ["QueueFullError"]


@everywhere
class TestOn:
    def test_each_ending_is_told_once_it_is_stored(self, open_queue):
        queue, told = open_queue(nack_delay=0, default_retries=1), []
        stored = []
        for event in ("acked", "failed", "dead", "discarded"):
            queue.hooks.on(event)(told.append)
        queue.hooks.on("acked")(lambda ended: stored.append(queue.get(ended.id)))

        def act(message):
            outcomes = {"fails": ValueError("no"), "rejected": Reject("bad"), "discarded": Discard("old")}
            if message.id in outcomes:
                raise outcomes[message.id]

        queue.callback(act)
        for id in ("done", "fails", "rejected", "discarded"):
            queue.send_delay_msg(0, id=id, name="n")
        queue.run(burst=True)

        assert stored == [None]
        assert sorted(endings(told)) == [
            ("acked", "done", 1, ""),
            ("dead", "fails", 2, "ValueError: no"),
            ("dead", "rejected", 1, "bad"),
            ("discarded", "discarded", 1, ""),
            ("failed", "fails", 1, "ValueError: no"),
        ]
        assert {(ended.queue, ended.name) for ended in told} == {("reminders", "n")}

    def test_what_is_settled_by_hand_is_told(self, queue, told):
        def act(message):
            {"ack": message.ack, "nack": lambda: message.nack(delay=60), "reject": lambda: message.reject("no")}.get(
                message.id, lambda: message.release(delay=60)
            )()

        queue.callback(act)
        for id in ("ack", "nack", "reject", "release"):
            queue.send_delay_msg(0, id=id)
        queue.run(burst=True)

        assert sorted(endings(told)) == [("acked", "ack", 1, ""), ("dead", "reject", 1, ""), ("failed", "nack", 1, "")]

    def test_expired_messages_are_told(self, queue, told):
        queue.callback(lambda _: None)
        for missed in ("drop", "dead"):
            queue.send_delay_msg(0, id=missed, expires=0.001, missed=missed)
        time.sleep(0.01)  # the time of an expiry is that of the server
        queue.run(burst=True)

        assert {(ended.event, ended.id) for ended in told} == {("discarded", "drop"), ("dead", "dead")}

    def test_a_lost_worker_is_told_of(self, open_queue):
        queue, told = open_queue(lease=0.1, default_retries=1), []
        for event in ("failed", "dead"):
            queue.hooks.on(event)(told.append)
        queue.send_delay_msg(0, id="m")
        for attempt in (1, 2):
            wait_until(lambda: abandoned(queue), message=f"attempt {attempt}")
        queue.callback(lambda _: None)
        queue.start_consume()
        wait_until(lambda: any(ended.event == "dead" for ended in told), message="the death")

        assert endings(told)[-1] == ("dead", "m", 2, "lease expired")

    def test_a_hook_that_raises_is_logged_and_touches_nothing(self, queue, told, caplog):
        @queue.hooks.on("acked")
        def broken(_):
            raise RuntimeError("hook")

        queue.callback(lambda _: None)
        queue.send_many([1, 2])
        with caplog.at_level(logging.ERROR, "delayq"):
            queue.run(burst=True)

        assert len(told) == 2
        failures = [record.exc_info[0] for record in caplog.records if record.exc_info]
        assert failures == [RuntimeError] * 2
        assert queue.stats().totals["acked"] == 2

    def test_a_slow_hook_holds_up_no_message(self, queue, gate):
        seen = []
        queue.hooks.on("acked")(lambda _: gate.wait(30))
        queue.callback(lambda message: seen.append(message.payload))
        queue.start_consume()
        queue.send_many([1, 2, 3])

        wait_until(lambda: len(seen) == 3 and queue.counts().living == 0, message="all are done")
        gate.set()


def test_calls_that_are_too_many_are_left_out_and_logged(redis_url, monkeypatch, caplog):
    monkeypatch.setattr("delayq.queue.hooks.hook_calls.MAX_WAITING", 2)
    monkeypatch.setattr("delayq.queue.hooks.hook_calls.LAST_CALLS", 0.01)
    gate = threading.Event()
    with DelayQueue("reminders", url=redis_url, callback=lambda _: None) as queue:
        queue.hooks.on("acked")(lambda _: gate.wait(30))
        queue.send_many(list(range(10)))
        queue.run(burst=True)
    gate.set()

    assert "the hooks of queue reminders are too slow: 2 calls wait" in caplog.text
    assert "calls of hooks of queue reminders were not made" in caplog.text


def test_coroutine_hooks_run_in_the_event_loop(redis_url):
    seen = []

    async def main():
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        async with AsyncDelayQueue("reminders", url=redis_url) as queue:

            @queue.hooks.around_callback
            async def around(message):
                await asyncio.sleep(0)
                yield
                seen.append(("around", asyncio.get_running_loop() is loop))

            @queue.hooks.on("acked")
            async def acked(ended):
                seen.append((ended.event, asyncio.get_running_loop() is loop))
                told.set()

            @queue.callback
            async def callback(message):
                await asyncio.sleep(0)

            await queue.send_delay_msg(1)
            await queue.run(burst=True)
            await told.wait()

    asyncio.run(asyncio.wait_for(main(), 20))
    assert sorted(seen) == [("acked", True), ("around", True)]


def test_a_coroutine_hook_around_a_plain_function_is_a_failure_by_name(redis_url, caplog):
    async def main():
        async with AsyncDelayQueue("reminders", url=redis_url, callback=lambda _: None, default_retries=0) as queue:

            @queue.hooks.around_callback
            async def around(message):
                yield

            await queue.send_delay_msg(1)
            await queue.run(burst=True)
            return await queue.counts()

    assert asyncio.run(main()).dead == 1
    assert "context manager" in caplog.text


@pytest.mark.parametrize(
    ("kind", "register", "text"),
    [
        (DelayQueue, lambda hooks: hooks.on("done"), "the event of a hook is one of acked, failed, dead, discarded"),
        (DelayQueue, lambda hooks: hooks.on("dead")(1), "must be callable, not 1"),
        (DelayQueue, lambda hooks: hooks.around_callback(1), "must be callable, not 1"),
        (DelayQueue, lambda hooks: hooks.around_callback(asyncio.sleep), "has no yield"),
        (DelayQueue, lambda hooks: hooks.on("dead")(asyncio.sleep), "use it with an AsyncDelayQueue"),
        (AsyncDelayQueue, lambda hooks: hooks.around_send(asyncio.sleep), "takes a plain function"),
    ],
)
def test_bad_hooks_are_refused(kind, register, text):
    with pytest.raises(ConfigurationError, match=text):
        register(kind("reminders", url="memory://").hooks)


def test_hooks_are_of_all_queues_that_a_worker_makes(redis_url, face):
    told, around = [], []
    like = face.open("tenant-a", url=redis_url)
    like.hooks.on("acked")(told.append)

    @like.hooks.around_callback
    def watch(message):
        around.append(message.queue)
        yield

    like.callback(lambda _: None)
    other = face.open("tenant-b", url=redis_url)
    for queue in (like, other):
        queue.send_delay_msg(1)
    worker = face.matching("tenant-*", like)
    worker.run(burst=True)
    wait_until(lambda: len(told) == 2, message="both are told of")

    assert sorted(around) == sorted(ended.queue for ended in told) == ["tenant-a", "tenant-b"]
    for queue in (like, other):
        queue.close()


def test_streams_have_hooks(redis_url):
    from delayq.streams import StreamQueue

    told = []
    with StreamQueue("orders", url=redis_url, callback=lambda message: told.append(message.headers)) as queue:

        @queue.hooks.around_send
        def stamp(sending):
            sending.messages[0].headers["tenant"] = "acme"
            yield

        queue.hooks.on("acked")(lambda ended: told.append(ended.event))
        queue.send(1)
        queue.run(burst=True)

    assert told == [{"tenant": "acme"}, "acked"]
