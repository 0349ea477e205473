"""Limits beside a plain model of them: no start over a rate or a place, all get through, and nobody else is delayed."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delayq.broker.calls import Calls
from delayq.broker.message.attributes import Attributes
from delayq.broker.requests import Failure, Outgoing, Receipt, Rejection, Release
from delayq.broker.transport.executor import Executor
from delayq.queue.control.limit_calls import limit_call
from delayq.values.rates import Pace
from tests.support.scripts import KEYS, NOW

NAMES = ("x", "y", "")
LEASE = 1 << 30
_scopes = st.sampled_from([None, "x"])
_steps = st.one_of(
    st.tuples(st.just("claim"), st.integers(1, 4)),
    st.tuples(st.just("end"), st.sampled_from(["ack", "nack", "release", "reject"])),
    st.tuples(st.just("end"), st.just("return")),
    st.tuples(st.just("return_last"), st.integers(1, 3)),
    st.tuples(st.just("send"), st.sampled_from(NAMES)),
    st.tuples(st.just("wait"), st.integers(1, 40)),
    st.tuples(st.just("cancel"), st.just("")),
)
_limits = st.tuples(_scopes, st.integers(1, 30), st.integers(1, 3), st.integers(0, 3))


class Plain:
    """What has started of each scope, and what runs."""

    def __init__(self) -> None:
        self.limits: dict[str | None, tuple[int, int, int]] = {}
        self.starts: dict[str | None, list[tuple[int, int]]] = defaultdict(list)
        """Times and tokens of what has started, and was not returned before a callback was."""
        self.running: dict[str, tuple[int, str]] = {}

    def started(self, id: str, token: int, name: str, now: int) -> None:
        """Note a start, and assert that its limits allow it."""
        assert id not in self.running
        self.running[id] = (token, name)
        for scope in (None, name):
            self.starts[scope].append((now, token))
            if scope in self.limits:
                self._check(scope, now)

    def returned(self, token: int, name: str) -> None:
        """Forget a start that was none."""
        for scope in (None, name):
            self.starts[scope] = [start for start in self.starts[scope] if start[1] != token]

    def _check(self, scope: str | None, now: int) -> None:
        interval, burst, places = self.limits[scope]
        starts = self.starts[scope]
        for number, (since, _) in enumerate(starts):
            assert len(starts) - number <= burst + (now - since) / interval, "started over its rate"
        runs = [id for id, (_, of) in self.running.items() if scope in (None, of)]
        assert not places or len(runs) <= places, "runs over its places"


class Played:
    """A queue under limits, and beside it the plain model."""

    def __init__(self, executor: Executor, limits: list[tuple[str | None, int, int, int]]) -> None:
        self.ask, self.now, self.plain, self.sent = executor.call, NOW, Plain(), dict[str, str]()
        self.calls = Calls(KEYS, clock=lambda: self.now)
        for scope, interval, burst, places in limits:
            self.plain.limits[scope] = (interval, burst, places)
            self.ask(limit_call(self.calls, scope, pace=Pace(interval * 1000, burst), places=places))

    def send(self, name: str) -> None:
        id = f"m{len(self.sent)}"
        self.sent[id] = name
        self.ask(self.calls.send_one(Outgoing(id, 0, 1000, b"p", b"", Attributes(name=name).encode())))

    def claim(self, wanted: int) -> None:
        self.ask(self.calls.unack_to_retry())
        self.ask(self.calls.pending_to_ready())
        claimed = self.ask(self.calls.ready_to_unack(wanted, lease=LEASE, consumer_id="w"))
        for message in claimed.messages:
            self.plain.started(message.id, message.token, Attributes.of(message.attributes).name, self.now)
        if len(claimed.messages) < wanted and None not in self.plain.limits:
            counts = self.ask(self.calls.counts())
            assert counts.ready + counts.retry == 0, "a limit of a name delays others"

    def end(self, how: str) -> None:
        if not self.plain.running:
            return
        self._end(next(iter(self.plain.running)), how)

    def return_last(self, count: int) -> None:
        for id in [*self.plain.running][-count:]:
            self._end(id, "return")

    def _end(self, id: str, how: str) -> None:
        token, name = self.plain.running.pop(id)
        if how == "return":
            self.plain.returned(token, name)
        calls: dict[str, Any] = {
            "ack": lambda: self.calls.ack([Receipt(id, token)]),
            "nack": lambda: self.calls.nack([Failure(id, token, 50, "")]),
            "release": lambda: self.calls.release([Release(id, token)]),
            "return": lambda: self.calls.release([Release(id, token, unstarted=True)]),
            "reject": lambda: self.calls.reject([Rejection(id, token, "no", "")]),
        }
        assert self.ask(calls[how]()) == "1"

    def wait(self, time: int) -> None:
        self.now += time

    def cancel(self, _: str) -> None:
        self.ask(self.calls.cancel([f"m{len(self.sent) - 1}"]))

    def finish(self) -> None:
        for _ in range(40 * len(self.sent)):
            self.wait(30)
            self.claim(4)
            while self.plain.running:
                self.end("ack")
            if self.ask(self.calls.counts()).messages == 0:
                return


@pytest.mark.timeout(300)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(limits=st.lists(_limits, min_size=1, max_size=2), steps=st.lists(_steps, max_size=60))
def test_nothing_starts_over_a_limit_and_all_get_through(
    real_executor, limits: list[tuple[str | None, int, int, int]], steps: list[tuple[str, Any]]
):
    real_executor.client.flushdb()
    played = Played(real_executor, limits)
    for name in (*NAMES, "x", "x"):
        played.send(name)
    for kind, what in steps:
        getattr(played, kind)(what)
    played.finish()
    counts = played.ask(played.calls.counts())
    assert (counts.messages, counts.throttled) == (0, 0)
    assert not real_executor.client.exists(KEYS.running, KEYS.throttled)
