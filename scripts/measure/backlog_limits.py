"""A backlog of 1 M due messages with names, priorities and retention, under 1,000 limits: the most time of one script.

Every script that limits, results, successors or withdrawals use runs with the maximum number of ids. The time is that
of the server's main thread, so a busy machine does not change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from delayq.broker.calls import Calls
from delayq.broker.message.attributes import Attributes
from delayq.broker.message.ids import new_ids
from delayq.broker.message.same_id import Debounce
from delayq.broker.replies import ClaimedMessage
from delayq.broker.requests import Failure, Outgoing, OutgoingTable, Receipt, Rejection, Release, ScriptCall
from delayq.broker.results import Completed
from delayq.broker.scripts import COLLECT_LIMIT, MAX_IDS, MAX_MOVED, MAX_SETTLED
from delayq.queue.control.limit_calls import limit_call, limits_page_call
from delayq.queue.control.limits import PAGE
from delayq.queue.control.pausing import pause_call, resume_call
from delayq.queue.inspecting.inspector import MAX_READ
from delayq.queue.repairing.repair import recount_call, repair_call
from delayq.queue.results.result_waits import await_ends_call, outcomes_call
from delayq.queue.sweeps.stored_messages import snapshot_call
from delayq.values.rates import Pace, read_rate
from measure.bench_server import BenchServer
from measure.figure import MILLISECONDS, Figure, Measurement, Reading, at_most
from measure.large import TimedCalls
from measure.raw import AHEAD, BATCH, PAYLOAD

MESSAGES = 1_000_000
NAMES = 1000
TURNS = 100
"""Promotions and claims that are timed."""
LEASED = 5000
"""So many leased messages are looked at when places of a name are limited: more are not."""
LEASE, HOUR = 600_000, 3_600_000
"""Milliseconds."""
PLENTY = 100_000
"""Places of a name that limits nothing."""


def backlog_limits(server: BenchServer) -> Iterator[Reading]:
    """Milliseconds of the longest script."""
    server.empty()
    run = TimedCalls(server)
    server.raw.stream(_filling(server.calls, server.many(MESSAGES)))
    _Control(server.calls, run).use()
    slowest = sorted(run.longest, key=lambda script: -run.longest[script])
    note = ", ".join(f"{script} {run.longest[script]:.1f}" for script in slowest[:3])
    yield Reading("longest_limited", run.longest[slowest[0]], note=note)
    server.empty()


def _filling(calls: Calls, n: int) -> Iterator[ScriptCall[Any]]:
    for first in range(0, n, BATCH):
        numbers = range(first, first + BATCH)
        yield _sending(calls, [f"{number % NAMES}:{number:016}" for number in numbers], numbers)


def _sending(calls: Calls, ids: list[str], numbers: Iterable[int], **options: Any) -> ScriptCall[Any]:
    attributes = [
        Attributes(name=f"job{number % NAMES}", priority=number % 4, retention=HOUR).encode() for number in numbers
    ]
    n = len(ids)
    table = OutgoingTable(ids, [0] * n, [3] * n, [PAYLOAD] * n, [b""] * n, attributes)
    return calls.send(table, max_length=None, **options)


class _Control:
    """Runs the scripts, timed, on a queue that is full of due messages."""

    def __init__(self, calls: Calls, run: TimedCalls) -> None:
        self._calls = calls
        self._run = run
        self._leased: list[ClaimedMessage] = []

    def use(self) -> None:
        """Run them all, until the queue is purged."""
        calls, run = self._calls, self._run
        run(_sending(calls, new_ids(BATCH), range(BATCH)))
        self._limit_names()
        while len(self._leased) < LEASED:
            self._claim(MAX_IDS)
        # Limits that bind now: the first by places that are taken by what is leased, the others by a rate.
        run(limit_call(calls, "job0", places=1))
        for number in range(1, NAMES):
            run(limit_call(calls, f"job{number}", pace=read_rate("1/10s")))
        for _ in range(TURNS):
            self._claim(MAX_MOVED)
        self._settle()
        self._change_limits()
        self._change_messages()
        run(calls.purge())

    def _limit_names(self) -> None:
        for number in range(1, NAMES):
            self._run(limit_call(self._calls, f"job{number}", pace=read_rate("100000/s", 10_000), places=PLENTY))

    def _claim(self, wanted: int) -> None:
        self._run(self._calls.pending_to_ready())
        claim = self._run(self._calls.ready_to_unack(wanted, lease=LEASE, consumer_id="raw +"))
        self._leased += claim.messages

    def _take(self, n: int) -> list[Receipt]:
        """Return so many receipts that were not used before."""
        taken, self._leased = self._leased[:n], self._leased[n:]
        return [Receipt(one.id, one.token) for one in taken]

    def _settle(self) -> None:
        """Settle in every way, and do what is done beside a running callback."""
        calls, run = self._calls, self._run
        held = self._leased[:MAX_IDS]
        ids, receipts = [one.id for one in held], [Receipt(one.id, one.token) for one in held]
        run(await_ends_call(calls, ids, duration=HOUR))
        run(calls.start(receipts))
        run(calls.extend(receipts, lease=LEASE))
        run(calls.withdraw(ids))
        run(calls.report(receipts[0], "eHh4"))
        run(_sending(calls, ids[:BATCH], range(BATCH), replace="after"))
        run(
            calls.debounce(
                Outgoing(ids[BATCH], "+1000", 3, PAYLOAD, b"", b"name=job1"), Debounce(1000, None), max_length=None
            )
        )
        run(outcomes_call(calls, ids[:MAX_SETTLED]))
        for _ in range(2):
            run(calls.complete([Completed(*one, HOUR, "returned", b"", "", PAYLOAD) for one in self._take(MAX_MOVED)]))
        run(outcomes_call(calls, ids[:MAX_SETTLED]))
        run(calls.ack(self._take(MAX_SETTLED)))
        run(calls.nack([Failure(*one, 0, "did not work") for one in self._take(MAX_SETTLED)]))
        run(calls.release([Release(*one, 1000, b"name=job2") for one in self._take(MAX_MOVED)]))
        run(calls.reject([Rejection(*one, "no use", "") for one in self._take(MAX_MOVED)]))
        run(calls.drop(self._take(MAX_SETTLED)))
        run(calls.unack_to_retry())
        run(calls.collect_garbage(COLLECT_LIMIT, dead_max=100, dead_ttl=AHEAD, slot_ttl=AHEAD))

    def _change_limits(self) -> None:
        calls, run = self._calls, self._run
        for _ in range(3):
            run(limits_page_call(calls, "0", limit=PAGE))
        for name in ("job1", None):
            run(calls.close(name, 1))
            run(calls.close(name, 0, pause=1000))
            run(calls.close(name, 0, pause=0))
            run(limit_call(calls, name, paused="+60000", reason="no use"))
            run(limit_call(calls, name, paused="-", spread=1, waiting=None if name else MESSAGES))
        run(pause_call(calls, "+60000", "no use"))
        self._claim(MAX_MOVED)
        run(resume_call(calls))
        self._claim(MAX_MOVED)
        for number in range(NAMES):
            run(limit_call(calls, f"job{number}", pace=Pace(), places=0))
        for _ in range(TURNS // 2):  # a quick run has some left
            self._claim(MAX_IDS)

    def _change_messages(self) -> None:
        calls, run = self._calls, self._run
        for number in range(NAMES):
            run(limit_call(calls, f"job{number}", pace=read_rate("1/10s")))
        for _ in range(10):
            self._claim(MAX_MOVED)
        for _ in range(2):
            ids = self._page("throttled")
            run(repair_call(calls, [id.encode() for id in ids[:MAX_MOVED]], fix=True, search=False, retries=3))
            run(calls.reschedule([(id, AHEAD) for id in ids]))
        run(calls.cancel(self._page("throttled")))
        run(recount_call(calls, fix=True))
        run(calls.counts())
        run(snapshot_call(calls, "ready throttled leased", limit=MAX_IDS, cursor="0"))

    def _page(self, state: str) -> list[str]:
        return [
            row.id for row in self._run(self._calls.page(state, limit=MAX_READ, cursor="", score="", preview=0)).rows
        ]


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    title = "longest script, 1 M due with names, priorities and retention, 1,000 limits"
    figure = Figure("longest_limited", title, at_most(10, MILLISECONDS), MILLISECONDS)
    return [Measurement("backlog_limits", backlog_limits, [figure], once=True)]
