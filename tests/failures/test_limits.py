"""Limits: workers that are killed under a limit let no more than that start, and give all places back."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from itertools import pairwise

import pytest
from redis import Redis

from delayq import DelayQueue, NewMessage
from delayq.broker.keys import Keys
from delayq.values.rates import read_rate
from tests.failures.programs import program
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

WORKERS = 4
"""Each runs one callback at a time by default: more than the limit together."""
SPANS = "spans"
"""A stream of what the workers do, in the order in which the server has seen it."""
WORKER = f"""
import os, sys, time
from redis import Redis
from delayq import DelayQueue

server = Redis.from_url(sys.argv[1])

def tell(what, message):
    server.xadd("{SPANS}", {{"what": what, "id": message.id, "process": os.getpid()}})

def work(message):
    tell("start", message)
    time.sleep(0.05)
    tell("end", message)

DelayQueue("reminders", url=sys.argv[1], lease="2s", callback=work).run()
"""
"""All options but the lease, which a test cannot wait for, are the defaults."""


@pytest.fixture
def queue(redis_url):
    with DelayQueue("reminders", url=redis_url, events=True) as queue:
        yield queue


@pytest.fixture
def server(redis_url):
    with Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


def spans(server):
    """Return what the workers have told: what, the id and the process."""
    return [(one["what"], one.get("id", ""), one["process"]) for _, one in server.xrange(SPANS)]


def done(told):
    """Return the messages whose callbacks have ended."""
    return {id for what, id, _ in told if what == "end"}


def busy(told, processes):
    """Return a process whose callback runs, None if there is none."""
    last = {int(process): what for what, _, process in told}
    return next((process for process in processes if last.get(process) == "start"), None)


def killed_in_the_middle(queue, url, server, messages, *, kills=2):
    """Let some workers process messages; kill one that runs a callback, and start another in its place, some times."""
    sent = queue.send_many(messages).new
    with ExitStack() as stack:
        workers = {one.pid: one for one in (stack.enter_context(program(WORKER, url)) for _ in range(WORKERS))}
        for kill in range(1, kills + 1):
            least = kill * len(sent) // (kills + 2)
            wait_until(lambda least=least: len(done(spans(server))) >= least and busy(spans(server), workers))
            victim = workers.pop(busy(spans(server), workers) or next(iter(workers)))
            victim.kill()
            victim.wait()
            server.xadd(SPANS, {"what": "killed", "process": victim.pid})
            another = stack.enter_context(program(WORKER, url))
            workers[another.pid] = another
        wait_until(lambda: queue.counts().living == 0, timeout=60)
    return sent


def most_at_a_time(told):
    """Return how many callbacks have run at a time; those of a killed process end with it."""
    running, killed, most = set(), set(), 0
    for what, id, process in told:
        if what == "killed":
            killed.add(process)
            running = {one for one in running if one[1] != process}
        elif what == "end":
            running.discard((id, process))
        elif process not in killed:  # the server may read later what a killed process has sent
            running.add((id, process))
            most = max(most, len(running))
    return most


def assert_all_is_done_and_free(queue, server, sent):
    assert done(spans(server)) == set(sent)
    counts = queue.counts()
    assert (counts.living, counts.throttled, counts.dead) == (0, 0, 0)
    assert [limit.active for limit in queue.limits.list()] == [0]
    assert not server.exists(Keys.of("delayq", "reminders").running)
    assert not server.exists(Keys.of("delayq", "reminders").throttled)


@pytest.mark.long
def test_killed_workers_let_no_more_run_than_may_and_give_their_places_back(queue, redis_url, server):
    queue.limits.set("report", running=2)
    sent = killed_in_the_middle(queue, redis_url, server, [NewMessage(n, name="report") for n in range(80)])
    told = spans(server)
    assert most_at_a_time(told) == 2
    assert_all_is_done_and_free(queue, server, sent)
    assert sum(Counter(id for what, id, _ in told if what == "start").values()) <= len(sent) + 2 * 2


@pytest.mark.long
def test_killed_workers_start_no_more_than_a_rate_allows(queue, redis_url, server):
    queue.limits.set("mail", rate_limit="30/s")
    sent = killed_in_the_middle(queue, redis_url, server, [NewMessage(n, name="mail") for n in range(120)])
    assert_all_is_done_and_free(queue, server, sent)
    starts = [event.at.timestamp() * 1000 for event in queue.events() if event.kind == "delivered"]
    pace = read_rate("30/s")
    for first, at in enumerate(starts):
        for number, last in enumerate(starts[first:], 1):
            assert number <= pace.burst + (last - at + 1) * 1000 / pace.interval, (first, number)
    assert all(earlier <= later for earlier, later in pairwise(starts))
