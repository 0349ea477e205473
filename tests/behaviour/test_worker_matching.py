"""A worker serves every queue whose name matches a pattern: those of now, those to come, and until they go."""

from __future__ import annotations

from collections import Counter

import pytest

from delayq import AsyncDelayQueue, AsyncWorker, ConfigurationError, DelayQueue, NoCallbackError, Worker
from delayq.broker.keys import Keys, registry
from delayq.queue.pooling import matching_queues
from delayq.streams import StreamQueue
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def seen():
    """The queue and payload of each message in the order of their callbacks."""
    return []


@pytest.fixture
def tenants(open_queue, seen):
    """The queue that others are served like; no name of a tenant."""
    queue = open_queue("tenants", concurrency=2)
    queue.callback(lambda message: seen.append((message.queue, message.payload)))
    return queue


@pytest.fixture
def soon(monkeypatch):
    """The registry is read again soon, not after ten seconds."""
    monkeypatch.setattr(matching_queues, "REREAD_EVERY", 0.02)


class Serving:
    """Starts workers of a pattern, which the end of the test stops, and tells what they log."""

    def __init__(self, face, caplog):
        self._face, self._caplog = face, caplog
        self.workers = []

    def __call__(self, pattern, like, **options):
        self.workers.append(self._face.matching(pattern, like, **options))
        return self.workers[-1]

    @property
    def log(self):
        return self._caplog.text

    def says(self, text):
        wait_until(lambda: text in self.log, message=text)


@pytest.fixture
def serve(face, gate, caplog):
    """`serve(pattern, like, **options)` makes a worker of the face."""
    caplog.set_level("INFO")
    serving = Serving(face, caplog)
    yield serving
    gate.set()
    for worker in serving.workers:
        worker.stop_consume(0)


def test_every_queue_that_matches_is_served_alike(open_queue, tenants, seen, serve):
    for name in ("tenant-a", "tenant-b", "other"):
        open_queue(name).send_many([str(number) for number in range(100)])
    serve("tenant-*", tenants, concurrency=1).run(burst=True)
    assert Counter(queue for queue, _ in seen) == {"tenant-a": 100, "tenant-b": 100}
    assert Counter(queue for queue, _ in seen[:100]) == {"tenant-a": 50, "tenant-b": 50}
    assert open_queue("other").counts().ready + open_queue("other").counts().pending == 100


@pytest.mark.usefixtures("soon")
def test_a_new_queue_is_served_once_the_registry_is_read_again(open_queue, tenants, seen, serve):
    serve("tenant-*", tenants).start_consume()
    serve.says("no queue matches tenant-*: waiting for one")
    for name in ("tenant-a", "tenant-b"):
        open_queue(name).send_delay_msg("hello")
        wait_until(lambda name=name: (name, "hello") in seen)
    open_queue("tenant-a").send_delay_msg("again")
    wait_until(lambda: ("tenant-a", "again") in seen)
    assert serve.log.count("no queue matches") == 1


@pytest.mark.usefixtures("soon")
def test_a_queue_that_goes_away_is_drained_and_dropped(open_queue, gate, serve, redis_client):
    begun = []
    tenants = open_queue("tenants", concurrency=2, callback=lambda _: begun.append(1) or (gate.wait(30) and None))
    a, b = open_queue("tenant-a"), open_queue("tenant-b")
    a.send_many(["1", "2", "3"])
    serve("tenant-*", tenants).start_consume()
    wait_until(lambda: len(begun) == 2)
    redis_client.delete(*redis_client.keys("delayq:{tenant-a}:*"))
    redis_client.srem(registry("delayq"), "tenant-a")
    serve.says("not serving 1 queue any more: tenant-a")
    gate.set()
    b.send_delay_msg("hello")
    wait_until(lambda: b.stats().totals.get("acked") == 1)
    a.close()
    open_queue("tenant-a").send_delay_msg("back")  # which registers it again
    wait_until(lambda: a.stats().totals.get("acked") == 1)


@pytest.mark.usefixtures("soon")
def test_a_queue_is_served_whatever_else_is_in_the_registry_or_is_not(open_queue, tenants, seen, serve, redis_client):
    """Programs of other queues write the registry as well; the name of a queue alone makes none."""
    a = open_queue("tenant-a")
    a.send_delay_msg("1")
    serve("tenant-*", tenants).start_consume()
    wait_until(lambda: seen == [("tenant-a", "1")])
    redis_client.srem(registry("delayq"), "tenant-a")
    redis_client.sadd(registry("delayq"), b"tenant-\xff", "tenant-of nobody", "tenant-unmade")
    wait_until(lambda: redis_client.sismember(registry("delayq"), "tenant-a"))
    assert "tenant-a missing in the registry, but in use: added again" in serve.log
    a.send_delay_msg("2")
    wait_until(lambda: seen[1:] == [("tenant-a", "2")])
    open_queue("tenant-b").send_delay_msg("3")
    wait_until(lambda: seen[2:] == [("tenant-b", "3")])
    assert "not serving" not in serve.log
    assert not redis_client.keys("delayq:{tenant-unmade}:*")


def test_a_limit_bounds_the_callbacks_of_each_queue(open_queue, busy, serve):
    tenants = open_queue("tenants")
    tenants.callback(busy)
    for name in ("tenant-a", "tenant-b"):
        open_queue(name).send_many(["x"] * 5)
    serve("tenant-*", tenants, concurrency=8, limit=2).start_consume()
    wait_until(lambda: len(busy.seen) == 4)
    assert [open_queue(name).counts().active for name in ("tenant-a", "tenant-b")] == [2, 2]


@pytest.mark.long
def test_schedules_of_the_template_are_those_of_every_queue(open_queue, serve, seen):
    tenants = open_queue("tenants")

    @tenants.every("1s")
    def tick(message):
        seen.append((message.queue, "tick"))

    for name in ("tenant-a", "tenant-b"):
        open_queue(name).open()
    serve("tenant-[ab]", tenants).start_consume()
    wait_until(lambda: {("tenant-a", "tick"), ("tenant-b", "tick")} <= {*seen})


@pytest.mark.usefixtures("soon")
def test_a_queue_that_redis_has_lost_is_served_again_once_it_is_sent_to(open_queue, tenants, seen, serve, redis_client):
    open_queue("tenant-a").send_delay_msg("1")
    serve("tenant-*", tenants).start_consume()
    wait_until(lambda: seen == [("tenant-a", "1")])
    redis_client.flushall()
    open_queue("tenant-a").send_delay_msg("2")
    wait_until(lambda: seen[1:] == [("tenant-a", "2")])
    assert redis_client.smembers(registry("delayq")) == {b"tenant-a"}


def test_a_queue_that_cannot_be_served_holds_up_no_other(open_queue, tenants, seen, serve, redis_client):
    open_queue("tenant-a").open()
    open_queue("tenant-b").send_delay_msg("hello")
    redis_client.hset(Keys.of("delayq", "tenant-a").meta, "schema", 9)
    serve("tenant-*", tenants).start_consume()
    wait_until(lambda: seen == [("tenant-b", "hello")])
    assert "cannot serve tenant-a: queue tenant-a has schema 9" in serve.log


@pytest.mark.parametrize(("kind", "worker"), [(DelayQueue, Worker), (AsyncDelayQueue, AsyncWorker)])
def test_wrong_options_are_refused_with_what_to_do(kind, worker):
    nowhere = "redis://127.0.0.1:1"
    queue = kind("tenants", url=nowhere, callback=lambda message: None)
    for pattern in ("", "tenant-{a,b}", "a b", "[", "[]", "tenant-[a", 5, None, "é*", "a\n"):
        with pytest.raises(ConfigurationError, match=r"as in tenant-\*, not"):
            worker.matching(pattern, queue)
    for options, text in [
        ({"concurrency": 0}, "concurrency"),
        ({"limit": 0}, "limit"),
        ({"limit": True}, "limit"),
    ]:
        with pytest.raises(ConfigurationError, match=text):
            worker.matching("tenant-*", queue, **options)
    with pytest.raises(ConfigurationError, match="must be"):
        worker.matching("tenant-*", "tenants")
    with pytest.raises(NoCallbackError, match="has no callback"):
        worker.matching("tenant-*", kind("silent", url=nowhere))
    assert repr(worker.matching("tenant-*", queue)) == f"<{worker.__name__} tenant-* like tenants>"


def test_a_stream_has_no_registry_to_match():
    stream = StreamQueue("jobs", url="redis://127.0.0.1:1", callback=lambda message: None)
    with pytest.raises(ConfigurationError, match="no registry of queues"):
        Worker.matching("job*", stream)
