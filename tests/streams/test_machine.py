"""Two of our consumers and one of another client share a stream; each message is always in one location."""

from __future__ import annotations

from collections import Counter

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from delayq import DelayQueue, NewMessage
from delayq.streams import Relay, StreamQueue
from tests.support.redis_server import RedisServer

LEASE = 60.0
WHO = st.integers(0, 1)
WHICH = st.integers(0, 20)


class Machine(RuleBasedStateMachine):
    """Living, leased, waiting and dead messages of the model; the machine decides when leases expire."""

    url: str

    @initialize()
    def begin(self):
        self.client = redis.Redis.from_url(self.url, decode_responses=True)
        self.client.flushall()
        self.ours = [StreamQueue("tasks", url=self.url, lease=LEASE) for _ in range(2)]
        self.delayed = DelayQueue("reminders", url=self.url)
        self.client.xgroup_create("tasks", "workers", "0", mkstream=True)
        self.fresh = []
        self.held = []
        self.theirs = []
        self.waiting = Counter()
        self.dead = Counter()
        self.unique = set()
        self.left = {}
        self.number = 0

    def teardown(self):
        if hasattr(self, "ours"):
            for queue in [*self.ours, self.delayed]:
                queue.close()
            self.client.close()

    def name(self):
        self.number += 1
        return f"m{self.number}"

    @rule(who=WHO, retries=st.integers(0, 2), id=st.sampled_from(["", "", "a", "b"]))
    def send(self, who, retries, id):
        payload = self.name()
        (sent,) = self.ours[who].send_many([NewMessage(payload, retries=retries, id=id or None)])
        assert sent.new is (id not in self.unique)
        if sent.new:
            self.fresh.append(payload)
            self.left[payload] = [retries, id]
            self.unique |= {id} - {""}

    @rule(n=st.integers(1, 3))
    def relay(self, n):
        for _ in range(n):
            payload = self.name()
            self.delayed.send_delay_msg(payload, retries=1)
            self.fresh.append(payload)
            self.left[payload] = [1, ""]
        assert Relay(self.delayed, "tasks").run(burst=True) == n

    @rule(who=WHO, n=st.integers(1, 4))
    def claim(self, who, n):
        claimed = self.ours[who].lease(n=n).messages
        for message in claimed:
            if message.payload in self.fresh:
                assert message.payload == self.fresh.pop(0), "in the order they were sent"
            else:
                assert self.waiting[message.payload] == 1
                del self.waiting[message.payload]
            assert message.retries_left == self.left[message.payload][0]
            self.held.append(message)
        assert len(claimed) == n or not (self.fresh or self.waiting)

    def ended(self, payload):
        self.unique.discard(self.left[payload][1])

    @precondition(lambda self: self.held)
    @rule(which=WHICH)
    def ack(self, which):
        message = self.held.pop(which % len(self.held))
        assert message.ack()
        assert not message.ack()
        assert not message.nack()
        self.ended(message.payload)

    @precondition(lambda self: self.held)
    @rule(which=WHICH)
    def nack(self, which):
        message = self.held.pop(which % len(self.held))
        assert message.nack(delay=0, error="no")
        assert not message.extend()
        if self.left[message.payload][0] == 0:
            self.dead[message.payload] += 1
            self.ended(message.payload)
        else:
            self.left[message.payload][0] -= 1
            self.waiting[message.payload] += 1
            self.wake(message)

    def wake(self, message):
        """Let the delay of a message end."""
        for entry, fields in self.client.xrange("tasks"):
            if fields["payload"] == f'"{message.payload}"':
                self.client.execute_command("XCLAIM", "tasks", "workers", "retry", 0, entry, "IDLE", 100_000, "JUSTID")

    @precondition(lambda self: self.held)
    @rule(which=WHICH)
    def release(self, which):
        message = self.held.pop(which % len(self.held))
        assert message.release()
        assert not message.release()
        self.waiting[message.payload] += 1

    @precondition(lambda self: self.held)
    @rule(which=WHICH)
    def reject(self, which):
        message = self.held.pop(which % len(self.held))
        assert message.reject("no")
        assert not message.ack()
        self.dead[message.payload] += 1
        self.ended(message.payload)

    @precondition(lambda self: self.held)
    @rule(which=WHICH)
    def extend(self, which):
        assert self.held[which % len(self.held)].extend()

    @precondition(lambda self: self.dead)
    @rule()
    def redrive(self):
        entry = self.ours[0].dead.list().messages[0]
        id = self.left[entry.payload][1]
        lives = id in self.unique
        done = self.ours[1].dead.redrive(entry.entry, retries=1)
        assert (done.redriven, done.exists) == ((0, 1) if lives else (1, 0))
        if not lives:
            self.dead -= Counter([entry.payload])
            self.fresh.append(entry.payload)
            self.left[entry.payload][0] = 1
            self.unique |= {id} - {""}

    @rule()
    def peer_reads(self):
        found = self.client.xreadgroup("workers", "go-1", {"tasks": ">"}, count=1)
        if found:
            ((entry, fields),) = found[0][1]
            assert fields["payload"] == f'"{self.fresh[0]}"'
            self.theirs.append((entry, self.fresh.pop(0)))
        else:
            assert not self.fresh

    @precondition(lambda self: self.theirs)
    @rule(which=WHICH)
    def peer_settles(self, which):
        entry, payload = self.theirs.pop(which % len(self.theirs))
        self.client.xack("tasks", "workers", entry)
        self.client.xdel("tasks", entry)
        if self.left[payload][1]:
            self.client.srem("{tasks}.ids", self.left[payload][1])
        self.ended(payload)

    @precondition(lambda self: self.theirs)
    @rule(which=WHICH)
    def peer_dies(self, which):
        entry, payload = self.theirs.pop(which % len(self.theirs))
        self.client.execute_command("XCLAIM", "tasks", "workers", "go-1", 0, entry, "IDLE", 100_000, "JUSTID")
        if self.left[payload][0] == 0:
            return_to = self.dead
            self.ended(payload)
            # Moved to the dead letter by the next claim, which is one of ours.
            assert not any(message.payload == payload for message in self.claim_and_release_all())
        else:
            return_to = self.waiting
            self.left[payload][0] -= 1
        return_to[payload] += 1

    def claim_and_release_all(self):
        """Claim and release all available messages."""
        claimed = self.ours[0].lease(n=100).messages
        for message in claimed:
            assert message.release()
            if message.payload in self.fresh:
                self.fresh.remove(message.payload)
                self.waiting[message.payload] += 1
        return claimed

    @invariant()
    def each_message_is_in_one_location(self):
        if not hasattr(self, "ours"):
            return
        stream = Counter(fields["payload"].strip('"') for _, fields in self.client.xrange("tasks"))
        held = [message.payload for message in self.held] + [payload for _, payload in self.theirs]
        assert stream == Counter([*self.fresh, *held]) + self.waiting
        dead = Counter(fields["payload"].strip('"') for _, fields in self.client.xrange("{tasks}.dead"))
        assert dead == self.dead
        assert self.client.smembers("{tasks}.ids") == self.unique
        found = self.ours[0].counts()
        assert (found.ready, found.active, found.backoff) == (len(self.fresh), *self.delivered())
        assert self.client.hlen("{tasks}.errors") <= sum(self.waiting.values()) + len(held)

    def delivered(self):
        """Count messages with and without a consumer; those of a dead consumer are still its own."""
        pending = self.client.xpending("tasks", "workers")
        free = sum(one["pending"] for one in pending["consumers"] if one["name"] == "retry")
        assert pending["pending"] == len(self.held) + len(self.theirs) + self.waiting.total()
        return pending["pending"] - free, free


def walk(url, examples, steps):
    machine = type("Walk", (Machine,), {"url": url})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )


def test_each_message_is_in_one_location(redis_server: RedisServer):
    walk(redis_server.url, 20, 30)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_each_message_is_in_one_location_in_a_long_run(redis_server: RedisServer):
    walk(redis_server.url, 2000, 100)
