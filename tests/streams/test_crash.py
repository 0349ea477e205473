"""Crashes of clients, processes and servers at any point lose and duplicate no message."""

import random
import signal
import subprocess
import sys
import threading
from collections import Counter

import pytest

from delayq import DelayQueue, NewMessage
from delayq.streams import Relay, StreamQueue
from delayq.streams.calls import relay
from tests.crash.cuts import Cut, Cutter, GoneError, cut_client, gone
from tests.support.faulty_proxy import FaultyProxy
from tests.support.processes import Process
from tests.support.waiting import wait_until


def stream_of(url, cutter):
    return StreamQueue("tasks", redis=cut_client(url, cutter), lease="10s")


def send(tasks):
    sent = tasks.send_many([NewMessage(n, id=f"id{n}") for n in range(3)])
    return [one.status for one in sent]


def claim(tasks):
    return [(message.payload, message.attempt) for message in tasks.lease(n=9)]


def acknowledge(tasks):
    return [message.ack() for message in tasks.lease(n=9)]


def fail(tasks):
    return [message.nack(delay="10s", error="no") for message in tasks.lease(n=9)]


def reject(tasks):
    return [message.reject("no") for message in tasks.lease(n=9)]


def release(tasks):
    return [message.release() for message in tasks.lease(n=9)]


def wait(tasks):
    with tasks.lease(block=0.05) as message:
        return message.payload


def redrive(tasks):
    return tasks.dead.redrive(all=True).redriven


def fill(tasks):
    tasks.send_many([NewMessage(n, id=f"id{n}") for n in range(2)])


def bury(tasks):
    fill(tasks)
    reject(tasks)


OPERATIONS = [
    (None, send),
    (fill, claim),
    (fill, acknowledge),
    (fill, fail),
    (fill, reject),
    (fill, release),
    (fill, wait),
    (bury, redrive),
]


def stored_data(server):
    """All stored data, except what changes with every run: names of entries and slots, and times."""
    groups = server.xinfo_groups("tasks") if server.exists("tasks") else []
    return {
        "tasks": [fields for _, fields in server.xrange("tasks")],
        "dead": [fields for _, fields in server.xrange("{tasks}.dead")],
        "ids": server.smembers("{tasks}.ids"),
        "errors": sorted(server.hvals("{tasks}.errors")),
        "held": [one["times_delivered"] for one in server.xpending_range("tasks", "workers", "-", "+", 9)]
        if groups
        else [],
    }


def run(url, server, prepare, act, arm):
    """Run an operation on a connection that is cut; returns its result and the data stored afterwards."""
    server.flushall()
    cutter = Cutter()
    with stream_of(url, cutter) as tasks:
        if prepare:
            prepare(tasks)
        tasks.open()
        arm(cutter)
        try:
            result = act(tasks)
        except GoneError:
            result = GoneError
        cutter.armed = cutter.is_gone = False
    return result, stored_data(server), cutter.count


@pytest.mark.parametrize(("prepare", "act"), OPERATIONS, ids=lambda one: one.__name__ if one else "")
def test_a_surviving_process_gets_its_result_once(redis_url, server, prepare, act):
    result, expected, commands = run(redis_url, server, prepare, act, lambda cutter: cutter.arm(0, Cut.BEFORE))
    assert commands >= 1
    for at in range(1, commands + 1):
        for cut in Cut:
            again, stored, _ = run(redis_url, server, prepare, act, lambda cutter, at=at, cut=cut: cutter.arm(at, cut))
            assert (again, stored) == (result, expected), f"cut {cut} command {at}"


def test_messages_of_a_dead_process_are_delivered_again(redis_url, server):
    _, _, commands = run(redis_url, server, fill, acknowledge, lambda cutter: cutter.arm(0, Cut.BEFORE))
    for at in range(1, commands + 1):
        for cut in Cut:
            _, stored, _ = run(
                redis_url, server, fill, acknowledge, lambda cutter, at=at, cut=cut: cutter.arm(at, cut, ends=gone)
            )
            with StreamQueue("tasks", url=redis_url, lease="100ms") as other:
                left = len(stored["tasks"])
                found = {message.payload for message in other.lease(n=9, block=10)} if left else set()
                assert len(found) == left, f"gone {cut} command {at}"


def moved_and_left(server):
    moved = Counter(fields["payload"] for _, fields in server.xrange("tasks"))
    left = Counter(server.hvals("delayq:{reminders}:messages"))
    return moved, left


def relayed(url, server, cutter, *arm, ends=None):
    """Relay 700 messages of a queue, with the connection cut at one command."""
    server.flushall()
    with DelayQueue("reminders", redis=cut_client(url, cutter)) as queue:
        queue.send_many([f"{n}" for n in range(700)])
        cutter.arm(*arm, ends=ends)
        try:
            Relay(queue, "tasks").run(burst=True)
        except GoneError:
            assert ends
        cutter.armed = cutter.is_gone = False
    return cutter.count


@pytest.mark.parametrize("ends", [None, gone], ids=["goes on", "is gone"])
@pytest.mark.parametrize("cut", Cut)
def test_a_relay_survives_a_crash_at_every_command(redis_url, server, cut, ends):
    commands = relayed(redis_url, server, Cutter(), 0, cut)
    assert commands >= 3
    for at in range(1, commands + 1):
        relayed(redis_url, server, Cutter(), at, cut, ends=ends)
        moved, left = moved_and_left(server)
        assert (moved + left).total() == len(moved + left) == 700, f"{cut} command {at}"
        if ends:
            with DelayQueue("reminders", url=redis_url) as queue:
                Relay(queue, "tasks").run(burst=True)
        moved, left = moved_and_left(server)
        assert (len(moved), moved.total(), left.total()) == (700, 700, 0), f"{cut} command {at}"


@pytest.mark.faults
def test_a_relay_call_is_persisted_completely_or_not_at_all(start_redis):
    redis_server = start_redis("--appendonly", "yes", "--appendfsync", "always", "--aof-load-truncated", "yes")
    with redis_server.client() as client, DelayQueue("reminders", redis=redis_server.client()) as queue:
        queue.send_many([f"{n}" for n in range(20)])
        call = relay(queue.context.calls, "tasks", consumer_id="relay:tasks")
        client.script_load(call.script.text)
        path = next(redis_server.folder.glob("appendonlydir/*.incr.aof"), redis_server.folder / "appendonly.aof")
        before = path.stat().st_size
        assert queue.executor.call(call).moved == 20
        file = path.read_bytes()
    for cut in [before, len(file) - 1, len(file), *random.sample(range(before, len(file)), 3)]:
        redis_server.kill()
        path.write_bytes(file[:cut])
        redis_server.start()
        with redis_server.client() as client:
            stored = client.xlen("tasks"), client.hlen("delayq:{reminders}:messages")
        assert stored == ((20, 0) if cut == len(file) else (0, 20)), f"cut at {cut - before}"


@pytest.mark.long
@pytest.mark.faults
def test_lost_replies_deliver_and_move_no_message_twice(start_redis):
    redis_server = start_redis(tcp=True)
    seen, lock = Counter(), threading.Lock()

    def work(message):
        with lock:
            seen[message.payload, message.attempt] += 1

    with FaultyProxy(redis_server.url) as proxy, DelayQueue("reminders", url=proxy.url) as queue:
        consumers = [StreamQueue("tasks", url=proxy.url, callback=work, tick="200ms") for _ in range(2)]
        for one in consumers:
            one.start_consume()
        moving = Relay(queue, "tasks")
        thread = threading.Thread(target=moving.run)
        thread.start()
        proxy.lose(40)
        for first in range(0, 2000, 100):
            queue.send_many(range(first, first + 100), 0.1)
        wait_until(lambda: len(seen) == 2000)
        moving.stop()
        thread.join()
        for one in consumers:
            assert one.stop_consume()
            assert one.counts().living == 0
            one.close()
        assert proxy.dropped > 0
    assert set(seen.values()) == {1}
    assert {attempt for _, attempt in seen} == {1}


def start(url, work):
    return Process([sys.executable, "-m", "tests.streams.child", url, work])


def kill_at_work(url, work, feed, done, *, kills):
    """Run two processes on messages sent in parts; kill one in each part."""
    children = [start(url, work) for _ in range(2)]
    total_sent = 0
    try:
        for part in range(kills + 1):
            before = done()
            total_sent += feed(part)
            wait_until(lambda before=before: done() > before, timeout=60)
            if part < kills:
                victim = children.pop(0)
                victim.send_signal(signal.SIGKILL)
                victim.wait()
                children.append(start(url, work))
        wait_until(lambda: done() >= total_sent, timeout=60)
    finally:
        for child in children:
            child.kill()
            child.wait()
    return total_sent


def run_killed_relays(url, server, *, part, kills):
    with DelayQueue("reminders", url=url) as queue:

        def feed(number):
            return len(queue.send_many([f"{number} {n}" for n in range(part)]).new)

        total_sent = kill_at_work(url, "relay", feed, lambda: server.xlen("tasks"), kills=kills)
    moved, left = moved_and_left(server)
    assert (len(moved), moved.total(), left.total()) == (total_sent, total_sent, 0)


def run_killed_consumers(url, server, *, part, kills):
    with StreamQueue("tasks", url=url, lease="500ms") as tasks:
        sent = 0

        def feed(number):
            nonlocal sent
            sent += len(tasks.send_many([f"{number} {n}" for n in range(part)], 50).new)
            return part

        kill_at_work(url, "consume", feed, lambda: sent - server.xlen("tasks"), kills=kills)
        wait_until(lambda: tasks.counts().living == 0)
        assert tasks.counts().dead == 0
    done = Counter(server.lrange("done", 0, -1))
    assert len(done) == sent
    assert done.total() - sent <= kills * 600, "only messages that a killed consumer held"


@pytest.mark.long
@pytest.mark.faults
def test_killed_relays_lose_no_message(redis_url, server):
    run_killed_relays(redis_url, server, part=2000, kills=3)


@pytest.mark.faults
def test_killed_consumers_lose_no_message(redis_url, server):
    run_killed_consumers(redis_url, server, part=1000, kills=3)


@pytest.mark.long
@pytest.mark.faults
@pytest.mark.parametrize("how", [[], ["async"]], ids=["blocking", "asyncio"])
def test_a_message_sent_while_a_process_stops_is_available_to_others(redis_url, server, how):
    stopped = threading.Event()

    def send():
        with StreamQueue("tasks", url=redis_url) as tasks:
            while not stopped.wait(0.002):
                tasks.send("x")

    sending = threading.Thread(target=send)
    sending.start()
    for _ in range(2):
        command = [sys.executable, "-m", "tests.streams.child", redis_url, "drain", *how]
        with Process(command, stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            wait_until(lambda: server.xlen("tasks") < 5)
            child.terminate()
        assert child.returncode == 0
    stopped.set()
    sending.join()
    with StreamQueue("tasks", url=redis_url) as tasks:
        assert tasks.counts().active == 0


@pytest.mark.torture
@pytest.mark.timeout(900)
def test_killed_relays_lose_no_message_in_a_long_run(redis_url, server):
    run_killed_relays(redis_url, server, part=2000, kills=60)


@pytest.mark.torture
@pytest.mark.timeout(900)
def test_killed_consumers_lose_no_message_in_a_long_run(redis_url, server):
    run_killed_consumers(redis_url, server, part=2000, kills=60)


AHEAD = """
import os, sys, time
from delayq.streams import StreamQueue

url, kind = sys.argv[1:]
tasks = StreamQueue("tasks", url=url, lease="1s", concurrency=1, prefetch=40)

@tasks.callback
def work(message):
    if kind == "ends" and message.id == "m0":
        os._exit(1)
    if kind == "ends":
        return
    print(message.id, flush=True)
    time.sleep(3600)

tasks.run()
"""


def held(server):
    """Return how many entries consumers hold that they have started, and that they have not."""
    rows = server.xpending("tasks", "workers")["consumers"]
    started = sum(row["pending"] for row in rows if not str(row["name"]).endswith(" ?"))
    return started, sum(row["pending"] for row in rows) - started


@pytest.mark.long
def test_what_a_killed_consumer_had_not_started_is_charged_nothing(redis_url, server):
    with StreamQueue("tasks", url=redis_url, lease="1s", concurrency=4) as tasks:
        tasks.send_many([NewMessage(n, id=f"m{n}", retries=0) for n in range(30)])
        for _ in range(2):
            command = [sys.executable, "-c", AHEAD, redis_url, "blocks"]
            with Process(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout.readline()
                wait_until(lambda: held(server)[0] >= 1 and sum(held(server)) >= 1)
                process.kill()
        done = []
        tasks.callback(lambda message: done.append(message.id))
        tasks.start_consume()
        wait_until(lambda: not tasks.counts().living)
        assert (len(set(done)), tasks.counts().dead) == (28, 2)


@pytest.mark.long
def test_message_that_ends_its_consumers_is_charged_and_takes_no_other_with_it(redis_url, server):
    with StreamQueue("tasks", url=redis_url, lease="1s", concurrency=1) as tasks:
        tasks.send_many([NewMessage(n, id=f"m{n}", retries=0) for n in range(5)])
        for _ in range(2):  # as it starts, which nobody knows, and as it runs alone
            with Process([sys.executable, "-c", AHEAD, redis_url, "ends"]) as process:
                process.wait(30)
        with Process([sys.executable, "-c", AHEAD, redis_url, "ends"]) as process:
            wait_until(lambda: not tasks.counts().living)
            process.kill()
        (dead,) = tasks.dead.list().messages
        assert (dead.id, dead.attempts) == ("m0", 1)
