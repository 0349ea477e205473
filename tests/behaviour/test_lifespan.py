"""Lifespans: what a consumer enters before its first claim, for its callbacks, and leaves at its end."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import pytest

from delayq import (
    AsyncDelayQueue,
    AsyncWorker,
    ConfigurationError,
    DelayQueue,
    StoppedByCallbackError,
    StopWorker,
    current_message,
)
from delayq.worker.drivers.drivers import ThreadDriver
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until


class Pool:
    """A resource that tells what happens to it."""

    def __init__(self, name="pool", *, fails_in=()):
        self.name, self.log = name, []
        self._fails_in = fails_in

    def __enter__(self):
        self.log.append("enter")
        if "enter" in self._fails_in:
            raise OSError(f"no {self.name}")
        return self

    def __exit__(self, *error):
        self.log.append("leave" if error == (None, None, None) else "leave with an error")
        if "leave" in self._fails_in:
            raise OSError(f"{self.name} is stuck")


@everywhere
class TestOfAQueue:
    def test_callbacks_find_what_it_yields_between_its_start_and_its_end(self, open_queue):
        seen = []

        def connect():
            seen.append("connected")
            yield "connection"
            seen.append("closed")

        queue = open_queue(lifespan=connect, callback=lambda message: seen.append(message.resources))
        queue.send_delay_msg(1)
        queue.send_delay_msg(2)
        queue.run(burst=True)

        assert seen == ["connected", "connection", "connection", "closed"]

    def test_each_run_enters_anew(self, open_queue):
        pool = Pool()
        queue = open_queue(lifespan=lambda: pool, callback=lambda _: None)
        queue.run(burst=True)
        queue.run(burst=True)

        assert pool.log == ["enter", "leave"] * 2

    def test_batches_have_it(self, open_queue):
        seen, pool = [], Pool()
        queue = open_queue(lifespan=lambda: pool)
        queue.batch_callback(lambda messages: seen.extend(message.resources for message in messages))
        queue.send_delay_msg(1)
        queue.run(burst=True)

        assert seen == [pool]

    def test_tasks_and_hooks_have_it(self, url):
        seen, pool = [], Pool()
        queue = DelayQueue("reminders", url=url, lifespan=lambda: pool)

        @queue.hooks.around_callback
        def hook(message):
            seen.append(message.resources)
            yield

        @queue.task
        def remind(number):
            seen.append(current_message().resources)

        remind.send(1)
        queue.run(burst=True, concurrency=2)
        queue.close()

        assert seen == [pool, pool]

    def test_a_lease_has_no_resources(self, open_queue):
        pool = Pool()
        queue = open_queue(lifespan=lambda: pool, callback=lambda _: None)
        queue.send_delay_msg(1)
        with queue.lease() as message:
            assert message.resources is None
        assert not pool.log

    def test_without_a_lifespan_there_are_none(self, open_queue):
        seen = []
        queue = open_queue(callback=lambda message: seen.append(message.resources))
        queue.send_delay_msg(1)
        queue.run(burst=True)

        assert seen == [None]

    def test_it_is_entered_before_the_first_claim_and_left_when_all_is_settled(self, open_queue, url):
        states = []

        def connect():
            states.append(other.get("m").state)
            yield
            states.append(other.get("m"))

        queue, other = open_queue(lifespan=connect, callback=lambda _: None), DelayQueue("reminders", url=url)
        queue.send_delay_msg(1, id="m")
        queue.run(burst=True)
        other.close()

        assert states == ["ready", None]

    def test_a_stop_leaves_it_after_the_running_callbacks(self, open_queue, gate):
        log, started = [], threading.Event()

        def connect():
            yield
            log.append("left")

        def work(_):
            started.set()
            gate.wait(30)
            log.append("worked")

        queue = open_queue(lifespan=connect, callback=work)
        queue.send_delay_msg(1)
        consuming = queue.start_consume()
        assert started.wait(30)
        consuming.stop()
        gate.set()
        consuming.wait()

        assert log == ["worked", "left"]

    def test_a_callback_that_stops_the_consumer_leaves_it_in_peace(self, open_queue):
        pool = Pool()

        def stop(_):
            raise StopWorker("enough")

        queue = open_queue(lifespan=lambda: pool, callback=stop)
        queue.send_delay_msg(1)
        with pytest.raises(StoppedByCallbackError):
            queue.run()

        assert pool.log == ["enter", "leave"]

    def test_an_error_at_the_start_is_that_of_the_start_and_nothing_is_claimed(self, open_queue):
        seen, pool = [], Pool(fails_in=["enter"])
        queue = open_queue(lifespan=lambda: pool, callback=seen.append)
        queue.send_delay_msg(1, id="m")
        for start in (queue.start_consume, queue.run):
            with pytest.raises(OSError, match="no pool"):
                start()

        assert pool.log == ["enter", "enter"]
        assert not seen
        assert queue.get("m").state == "ready"
        assert not queue.workers()

    def test_a_start_that_failed_can_be_tried_again(self, open_queue):
        tries, seen = [], []

        def connect():
            tries.append(1)
            if len(tries) == 1:
                raise OSError("not yet")
            yield "connection"

        queue = open_queue(lifespan=connect, callback=lambda message: seen.append(message.resources))
        queue.send_delay_msg(1)
        with pytest.raises(OSError, match="not yet"):
            queue.start_consume()
        queue.run(burst=True)

        assert seen == ["connection"]

    def test_an_error_at_the_end_is_raised_by_the_stop_and_logged_with_the_name(self, open_queue, caplog):
        queue = open_queue(lifespan=lambda: Pool(fails_in=["leave"]), callback=lambda _: None)
        queue.send_delay_msg(1, id="m")
        with pytest.raises(OSError, match="pool is stuck"):
            queue.run(burst=True)

        assert queue.get("m") is None
        assert f"the lifespan of {queue.name} failed at its end" in caplog.text


@everywhere
class TestOfAWorker:
    def test_each_queue_has_its_own(self, face, open_queue):
        seen, pools = {}, {name: Pool(name) for name in ("a", "b")}

        def opened(name):
            return open_queue(
                name, lifespan=lambda: pools[name], callback=lambda message: seen.update({name: message.resources})
            )

        queues = {opened("a"): 1, opened("b"): 1, open_queue("c", callback=lambda m: seen.update(c=m.resources)): 1}
        for queue in queues:
            queue.send_delay_msg(1)
        face.worker(queues).run(burst=True)

        assert seen == {**pools, "c": None}
        assert [pool.log for pool in pools.values()] == [["enter", "leave"]] * 2

    def test_if_one_cannot_start_those_before_it_are_left(self, face, open_queue):
        good, bad = Pool("a"), Pool("b", fails_in=["enter"])
        queues = {
            open_queue(pool.name, lifespan=partial(lambda pool: pool, pool), callback=lambda _: None): 1
            for pool in (good, bad)
        }
        with pytest.raises(OSError, match="no b"):
            face.worker(queues).run(burst=True)

        assert good.log == ["enter", "leave"]

    def test_if_one_cannot_end_the_others_are_left(self, face, open_queue):
        pools = [Pool("a"), Pool("b", fails_in=["leave"])]
        queues = {
            open_queue(pool.name, lifespan=partial(lambda pool: pool, pool), callback=lambda _: None): 1
            for pool in pools
        }
        with pytest.raises(OSError, match="b is stuck"):
            face.worker(queues).run(burst=True)

        assert [pool.log for pool in pools] == [["enter", "leave"]] * 2

    def test_the_queues_of_a_pattern_share_one(self, face, open_queue):
        seen, pool = [], Pool()
        like = open_queue("tenant-a", lifespan=lambda: pool, callback=lambda message: seen.append(message.resources))
        for queue in (like, open_queue("tenant-b")):
            queue.send_delay_msg(1)
        face.matching("tenant-*", like).run(burst=True)

        assert seen == [pool, pool]
        assert pool.log == ["enter", "leave"]


class TestAsync:
    @pytest.mark.parametrize("kind", ["generator function", "context manager", "blocking"])
    def test_asyncio_takes_every_kind(self, url, kind):
        log = []

        async def connect():
            log.append(asyncio.current_task())
            yield "connection"
            log.append(asyncio.current_task())

        def blocking():
            log.append(asyncio.current_task())
            yield "connection"
            log.append(asyncio.current_task())

        lifespan = {"context manager": asynccontextmanager(connect), "blocking": blocking}.get(kind, connect)

        async def work(message):
            log.append(message.resources)

        async def main():
            async with AsyncDelayQueue("mail", url=url, lifespan=lifespan, callback=work) as queue:
                await queue.send_delay_msg(1)
                await queue.run(burst=True)

        asyncio.run(main())
        assert log[1] == "connection"
        assert log[0] is log[2]  # one task, as cancel scopes of libraries need it

    def test_a_cancelled_start_ends_the_consumer(self, url):
        log, connecting = [], asyncio.Event()

        async def connect():
            try:
                connecting.set()
                await asyncio.sleep(60)
                yield
            finally:
                log.append("gives up")

        async def main():
            async with AsyncDelayQueue("mail", url=url, lifespan=connect, callback=print) as queue:
                starting = asyncio.create_task(queue.run())
                await connecting.wait()
                starting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await starting
                assert log == ["gives up"]
                assert not await queue.workers()

        asyncio.run(main())

    @pytest.mark.parametrize("url", ["memory"], indirect=True)  # no connection stays open
    def test_the_end_of_asyncio_run_leaves_it(self, url):
        log = []

        async def connect():
            yield
            await asyncio.sleep(0)
            log.append("left")

        async def main():
            queue = AsyncDelayQueue("mail", url=url, lifespan=connect, callback=print)
            await AsyncWorker({queue: 1}).start_consume()

        asyncio.run(main())
        assert log == ["left"]


class TestSignals:
    def test_sigterm_leaves_it(self, url):
        pool = Pool()
        queue = DelayQueue("mail", url=url, lifespan=lambda: pool)
        queue.callback(lambda _: os.kill(os.getpid(), signal.SIGTERM))
        queue.send_delay_msg(1)
        queue.run()
        queue.close()

        assert pool.log == ["enter", "leave"]


class TestRefused:
    def test_a_blocking_queue_refuses_async_ones(self, url):
        async def connect():
            yield

        with pytest.raises(ConfigurationError, match=r"the lifespan of mail is asynchronous .* AsyncDelayQueue"):
            DelayQueue("mail", url=url, lifespan=connect)

        queue = DelayQueue("mail", url=url, lifespan=asynccontextmanager(connect), callback=print)
        with pytest.raises(ConfigurationError, match="the lifespan of mail is asynchronous"):
            queue.run(burst=True)
        queue.close()

    def test_what_is_no_function_or_needs_arguments_is_refused(self, url):
        async def connect():
            return None

        for lifespan in (3, connect, contextmanager):
            with pytest.raises(ConfigurationError, match="lifespan"):
                DelayQueue("mail", url=url, lifespan=lifespan)

    def test_it_must_return_a_context_manager(self, open_queue):
        queue = open_queue(lifespan=lambda: 3, callback=lambda _: None)
        with pytest.raises(ConfigurationError, match="returned 3: it must return a context manager"):
            queue.run(burst=True)


def test_a_lifespan_may_start_its_own_consumer(url):
    seen = []

    def connect():
        seen.append(queue.start_consume().running)
        yield "connection"

    queue = DelayQueue("mail", url=url, lifespan=connect, callback=lambda message: seen.append(message.resources))
    queue.send_delay_msg(1)
    queue.start_consume()
    wait_until(lambda: len(seen) == 2)
    queue.close()
    assert seen == [True, "connection"]


def test_a_queue_without_one_asks_nothing_of_it():
    assert ThreadDriver.lifespans is None
