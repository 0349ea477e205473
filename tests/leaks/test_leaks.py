"""A worker that runs for ever holds no more at the end than at the beginning: memory, keys, descriptors, threads."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import linear_regression
from typing import Any, NamedTuple

import pytest
import redis

from delayq import Reject, Retry
from tests.support.faces import Asyncio, Blocking
from tests.support.waiting import wait_until

ROUNDS = 20
WARMING = 6
"""Rounds after which all that is kept once has been made."""
PAGE = os.sysconf("SC_PAGESIZE")
STAYING = {b"delayq:queues", *(b"delayq:{leaks}:" + part for part in (b"meta", b"history"))}


class Sample(NamedTuple):
    """What is held when so many messages have been processed and none is left."""

    messages: int
    resident: int
    """Bytes of the process in memory."""
    blocks: int
    """Small objects that Python has allocated."""
    descriptors: int
    threads: int
    slots: int
    """Call slots that Redis remembers."""
    stored: int
    """Bytes of Redis' data."""


@pytest.fixture(params=[Blocking, Asyncio], ids=["blocking", "asyncio"])
def face(request) -> Iterator[Any]:
    made = request.param()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def unlogged() -> Iterator[None]:
    """Log nothing: pytest would keep every record."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def process(number: int, attempt: int) -> object:
    """Do what callbacks do: mostly nothing wrong, and now and then everything."""
    if attempt == 1 and number % 50 == 0:
        raise ValueError("no such user")
    if attempt == 1 and number % 51 == 0:
        raise Retry("busy", delay=0.05)
    if number % 53 == 0:
        raise Reject("no such user")
    return attempt > 1 or number % 59 != 0


def serve(face: Any, queue: Any, done: Callable[[int, int], object]) -> None:
    """Give the queue a callback of its own kind, and start consuming."""
    if isinstance(face, Asyncio):

        async def process_there(message: Any) -> object:
            return done(message.payload["number"], message.attempt)

        queue._subject.callback(process_there)
    else:
        queue.callback(lambda message: done(message.payload["number"], message.attempt))
    queue.start_consume()


def look(client: redis.Redis, messages: int) -> Sample:
    """Take a sample, once the threads of cut connections have ended."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
    return Sample(
        messages,
        resident,
        sys.getallocatedblocks(),
        len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        threading.active_count(),
        client.hlen("delayq:{leaks}:meta"),
        client.info("memory")["used_memory_dataset"],
    )


def run(face: Any, url: str, total: int, done: Callable[[int, int], object] = process) -> list[Sample]:
    """Let one worker process messages in rounds, its connections killed in each; returns a sample of every round."""
    samples = []
    with redis.Redis.from_url(url) as client:
        queue = face.open("leaks", url=url, tick="200ms", concurrency=4, default_retries=3, nack_delay=0)
        serve(face, queue, done)
        for number in range(ROUNDS):
            size = total // ROUNDS
            queue.send_many([{"number": n} for n in range(size)])
            client.client_kill_filter(_type="normal", skipme=True)
            wait_until(lambda: queue.counts().living == 0, 300, every=0.05)
            queue.dead.purge(all=True)
            samples.append(look(client, (number + 1) * size))
        queue.stop_consume()
        queue.close()
        assert set(client.keys("*")) - {b"delayq:{leaks}:wake"} == STAYING
    return samples


def check(samples: list[Sample], most_blocks: float, most_resident: float, most_stored: float) -> None:
    """Fail if anything grows with the messages: a leak of one object is a block and some 50 bytes of each."""
    steady = samples[WARMING:]
    messages = [float(sample.messages) for sample in steady]
    growth = {
        name: linear_regression(messages, [float(getattr(sample, name)) for sample in steady]).slope
        for name in ("resident", "blocks", "stored")
    }
    print({name: f"{slope:.4f} a message" for name, slope in growth.items()}, samples[WARMING], samples[-1], sep="\n")
    assert growth["blocks"] < most_blocks, f"memory: {growth['blocks']:.3f} objects of a message stay"
    assert growth["resident"] < most_resident, f"memory: {growth['resident']:.1f} bytes of a message stay"
    assert growth["stored"] < most_stored, f"redis: {growth['stored']:.1f} bytes of a message stay"
    for name, slack in (("descriptors", 2), ("threads", 2), ("slots", 10)):
        first, last = getattr(steady[0], name), getattr(steady[-1], name)
        assert last <= first + slack, f"{name}: {first} at first, {last} in the end"


@pytest.mark.long
@pytest.mark.faults
@pytest.mark.parametrize(
    ("total", "most"),
    [
        pytest.param(5_000, (0.2, 1000, 100), id="5_000", marks=pytest.mark.timeout(300)),
        pytest.param(25_000, (0.2, 100, 100), id="25_000", marks=[pytest.mark.torture, pytest.mark.timeout(600)]),
        pytest.param(1_000_000, (0.01, 10, 10), id="1_000_000", marks=[pytest.mark.torture, pytest.mark.timeout(3600)]),
    ],
)
def test_worker_memory_does_not_grow(face, start_redis, total, most):
    check(run(face, start_redis().url, total), *most)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_planted_leak_is_detected(start_redis):
    kept = []

    def leak(number: int, attempt: int) -> object:
        kept.append(f"{number} {attempt}")
        return process(number, attempt)

    with pytest.raises(AssertionError, match=r"memory: .* objects of a message stay"):
        check(run(Blocking(), start_redis().url, 5_000, leak), 0.2, 1000, 100)


def held(client: redis.Redis) -> tuple[int, int, int]:
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    return descriptors, threading.active_count(), client.info("clients")["connected_clients"]


def assert_no_more(client: redis.Redis, before: tuple[int, int, int], spare: int = 1) -> None:
    """Wait until no more is held than before, but for `spare` of each, which are on their way out or used again."""

    def no_more() -> bool:
        return all(now <= then + spare for now, then in zip(held(client), before, strict=True))

    try:
        wait_until(no_more)
    except AssertionError:
        raise AssertionError(f"descriptors, threads, connections: {before} at first, {held(client)} now") from None


def alive() -> int:
    """Return how many objects of delayq and redis-py are alive."""
    gc.collect()
    return sum(
        str(type(one).__module__).partition(".")[0] in ("delayq", "redis", "hiredis") for one in gc.get_objects()
    )


@pytest.mark.long
@pytest.mark.timeout(300)
def test_opening_and_closing_queues_leaks_nothing(face, start_redis):
    url = start_redis().url

    def use(number: int) -> None:
        queue = face.open(f"q{number % 3}", url=url)
        queue.send_delay_msg(number)
        with queue.lease() as message:
            assert message is not None
        queue.close()

    with redis.Redis.from_url(url) as client:
        for number in range(20):
            use(number)
        before, objects = held(client), alive()
        for number in range(200):
            use(number)
        assert_no_more(client, before)
        assert alive() <= objects
        assert len(client.keys("*:meta")) == 3


@pytest.mark.long
def test_starting_and_stopping_consumers_leaks_nothing(face, start_redis):
    url = start_redis().url
    with redis.Redis.from_url(url) as client:
        queue = face.open("leaks", url=url, tick="50ms", socket_timeout="500ms")
        seen: list[int] = []

        def once() -> None:
            queue.start_consume()
            queue.send_delay_msg({"number": 1})
            wait_until(lambda: queue.counts().living == 0, every=0.002)
            queue.stop_consume()
            # A listener ends with its blocking wait, and until then its connection is not one to be used again.
            wait_until(lambda: client.info("clients")["blocked_clients"] == 0)

        serve(face, queue, lambda number, _: seen.append(number))
        queue.stop_consume()
        for _ in range(3):
            once()
        before = held(client)
        for _ in range(20):
            once()
        assert_no_more(client, before, spare=4)  # a pool keeps as many connections as were ever used at a time
        assert len(seen) == 23
        queue.close()
