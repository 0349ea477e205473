"""Consumers do not spin, do not scan long lists without need, and do not wait while there is work."""

import threading

import pytest

from delayq.streams import StreamQueue
from tests.support.waiting import wait_until


@pytest.fixture
def queue(redis_url):
    with StreamQueue("tasks", url=redis_url) as queue:
        yield queue


def poll(queue):
    """The reply that a consumer polls."""
    return queue.executor.call(queue._calls.pending_to_ready())


def claim(queue, n):
    return queue.executor.call(queue._calls.ready_to_unack(n, lease=30_000, consumer_id=queue.executor.consumer_id))


def put_in_flight(queue, server, n):
    """Let a consumer of another client have `n` messages in flight."""
    server.xgroup_create("tasks", "workers", "0", mkstream=True)
    queue.send_many(range(n))
    while server.xreadgroup("workers", "go-1", {"tasks": ">"}, count=1000):
        pass


def commands(server, name):
    return server.info("commandstats").get(f"cmdstat_{name}", {}).get("calls", 0)


def test_a_message_that_can_be_claimed_counts_as_waiting_without_deadline(queue):
    # With a deadline in the past, a consumer at capacity would poll again and again.
    queue.send_many(["a", "b"])
    first, _ = queue.lease(n=2).messages
    assert poll(queue).waiting == 0
    assert poll(queue).next_deadline > poll(queue).now
    assert first.release()
    seen = poll(queue)
    assert (seen.waiting, seen.next_deadline > seen.now) == (1, True)
    queue.lease().messages[0].reject("no")
    assert poll(queue).waiting == 0


@pytest.mark.long
def test_a_consumer_at_capacity_does_not_poll(redis_url, queue, server):
    started, gate = threading.Event(), threading.Event()

    def work(_):
        started.set()
        gate.wait(30)

    with StreamQueue("tasks", url=redis_url, prefetch=0, callback=work) as full:
        full.send("long")
        full.start_consume()
        assert started.wait(30)
        queue.send("x")
        assert queue.lease().messages[0].release()
        turns, at = commands(server, "evalsha"), server.time()[0]
        wait_until(lambda: server.time()[0] >= at + 2)
        assert commands(server, "evalsha") - turns < 100
        gate.set()
        wait_until(lambda: queue.counts().living == 0)


def test_a_message_lost_on_its_way_to_a_waiting_consumer_is_found(redis_url, queue, server):
    seen = []
    with StreamQueue("tasks", url=redis_url, tick="50ms", callback=lambda m: seen.append(m.attempt)) as idle:
        idle.start_consume()
        waiter = f"{idle.executor.consumer_id}.wait"
        wait_until(lambda: server.exists("tasks") and server.xinfo_groups("tasks"))
        # Plays a blocking read whose reply is lost.
        with server.pipeline() as pipe:
            pipe.xadd("tasks", {"payload": "1"})
            pipe.xreadgroup("workers", waiter, {"tasks": ">"})
            pipe.execute()
        wait_until(lambda: seen == [1])


def test_a_large_claim_gets_all_messages_and_leaves_later_ones_to_others(queue):
    queue.send_many(["a", "b", "c"])
    first, _, third = queue.lease(n=3).messages
    assert len(queue.lease(n=250)) == 0
    assert first.release()
    assert third.release()
    (again,) = queue.lease()
    assert again.release()
    assert [message.payload for message in queue.lease(n=200)] == ["c", "a"]


def test_all_messages_of_blocking_reads_are_requeued(queue, server):
    queue.send_many(["a", "b", "c"])
    server.xgroup_create("tasks", "workers", "0")
    server.xreadgroup("workers", f"{queue.executor.consumer_id}.wait", {"tasks": ">"}, count=2)
    queue.executor.call(queue._calls.wake())
    assert queue.counts().ready == 3
    assert [message.attempt for message in queue.lease(n=9)] == [1, 1, 1]


@pytest.mark.parametrize("n", [150, 2510])
def test_a_burst_ends_however_many_messages_others_have_in_flight(queue, server, n):
    put_in_flight(queue, server, n)
    ((last, _),) = server.xrevrange("tasks", count=1)
    server.execute_command("XCLAIM", "tasks", "workers", "go-1", 0, last, "IDLE", 60_000, "JUSTID")
    seen = []
    queue.callback(lambda message: seen.append((message.payload, message.attempt)))
    running = threading.Thread(target=queue.run, kwargs={"burst": True})
    running.start()
    running.join(20)
    assert not running.is_alive()
    assert seen == [(n - 1, 2)]


def test_consumers_share_one_scan_of_pending_entries_per_second(redis_url, queue, server):
    put_in_flight(queue, server, 2510)
    others = [StreamQueue("tasks", url=redis_url) for _ in range(3)]
    once = -(-2510 // 20) + 50
    before, at = commands(server, "xautoclaim"), server.time()
    for other in others * 10:
        rounds = 1
        while claim(other, 2).left:
            rounds += 1
        assert rounds <= 4
    seconds = server.time()[0] - at[0] + 1
    assert commands(server, "xautoclaim") - before <= once * (seconds + 1)
    for other in others:
        other.close()
