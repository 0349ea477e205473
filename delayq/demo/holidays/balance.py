"""The balance of a run: what was sent against what the workers reported and what the server counted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from delayq.demo.holidays.demo_worker import EndedReport, StartedReport
from delayq.queue.inspecting.message_info import MessageInfo


class Lateness(msgspec.Struct, frozen=True):
    """How late the first attempts started, in milliseconds."""

    p50: float
    p99: float
    max: float


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """The balance of a run. Counts of messages, unless stated otherwise."""

    sent: int
    acked: int
    dead: int
    discarded: int
    left: int
    """Still in the queue, after an interrupted run."""
    early: int
    """Deliveries that started before their time, by the server's clock."""
    lost: int
    duplicates: int
    """Repeated deliveries that no failure caused."""
    explained: int
    """The duplicates that were in flight in a killed worker and started again after its lease."""
    killed: int
    """Workers."""
    in_flight: int
    """Deliveries in flight in the killed workers."""
    retried: int
    """Deliveries after a failure."""
    deliveries: int
    lateness_ms: Lateness
    countries: int = 0
    seconds: float = 0.0
    server: str = ""
    interrupted: bool
    problems: list[str]
    """What does not add up, a sentence each."""
    adds_up: bool


@dataclass(frozen=True, slots=True)
class KilledWorker:
    """A killed worker, and what was in flight in it according to the server."""

    worker: int
    name: str
    in_flight: Mapping[tuple[str, int], int]
    """(id, token) → the end of its lease (ms)."""


@dataclass(slots=True)
class DeliveryLog:
    """Everything the workers reported, and what follows from it so far."""

    starts: dict[str, list[StartedReport]] = field(default_factory=dict)
    ends: dict[tuple[str, int], EndedReport] = field(default_factory=dict)
    running: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    """The callbacks that each worker is running, by number."""
    acked: set[str] = field(default_factory=set)
    discarded: set[str] = field(default_factory=set)
    _lateness: list[float] = field(default_factory=list)

    def add(self, report: StartedReport | EndedReport) -> None:
        """Add a report."""
        delivery = report.id, report.token
        running = self.running.setdefault(report.worker, set())
        if isinstance(report, StartedReport):
            self.starts.setdefault(report.id, []).append(report)
            running.add(delivery)
            if report.attempt == 1:
                self._lateness.append(report.lateness * 1000)
            return
        self.ends[delivery] = report
        running.discard(delivery)
        if report.outcome != "failed":
            (self.acked if report.outcome == "acked" else self.discarded).add(report.id)

    @property
    def retried(self) -> int:
        """How many deliveries followed a failure."""
        return self.repeated([])[0]

    @property
    def lateness(self) -> Lateness:
        """The lateness of the first attempts; that of later ones only shows how long the failure lasted."""
        ordered = sorted(self._lateness) or [0.0]
        last = len(ordered) - 1
        return Lateness(*(round(ordered[round(last * share)], 2) for share in (0.5, 0.99, 1)))

    def in_flight(self, worker: int, active: list[MessageInfo]) -> dict[tuple[str, int], int]:
        """Return which of the active messages a worker holds, started or not: (id, token) → the end of its lease (ms).

        The server knows the consumer id of each; the worker's reports tell which consumer id is its own.
        """
        tokens = {start.token for starts in self.starts.values() for start in starts if start.worker == worker}
        consumers = {message.holder for message in active if message.token in tokens}
        return {
            (message.id, message.token): round(message.deadline.timestamp() * 1000)
            for message in active
            if message.holder in consumers and message.token is not None and message.deadline is not None
        }

    def redelivered(self, kill: KilledWorker) -> int:
        """Count the deliveries of a killed worker that another has started since."""
        return sum(any(start.token > token for start in self.starts.get(id, ())) for id, token in kill.in_flight)

    def repeated(self, kills: list[KilledWorker]) -> tuple[int, int, int]:
        """Count the repeated deliveries: after a failure, duplicates, and explained duplicates."""
        in_flight = {delivery: (kill.worker, lease) for kill in kills for delivery, lease in kill.in_flight.items()}
        retried = duplicates = explained = 0
        for id, starts in self.starts.items():
            for before, after in pairwise(sorted(starts, key=lambda start: start.token)):
                end = self.ends.get((id, before.token))
                if end is not None and end.outcome == "failed":
                    retried += 1
                    continue
                duplicates += 1
                worker, lease = in_flight.get((id, before.token), (0, 0))
                explained += worker == before.worker and after.at >= lease * 1000
        return retried, duplicates, explained


def make_balance(
    due: Mapping[str, int],
    log: DeliveryLog,
    totals: Mapping[str, int],
    dead_ids: Collection[str],
    kills: list[KilledWorker],
    *,
    stored_again: int = 0,
    interrupted: bool = False,
    **run: Any,
) -> Balance:
    """Return the balance.

    `due` is the due time of each id that was sent (ms), `totals` is what the server counted as sent, acked, dead,
    discarded and left, `dead_ids` are in its dead letter. `run` has other fields of the balance.
    """
    retried, duplicates, explained = log.repeated(kills)
    starts = [start for starts in log.starts.values() for start in starts]
    early = sum(start.at < due.get(start.id, 0) * 1000 or start.lateness < 0 for start in starts)
    left = totals["left"]
    settled = log.acked | log.discarded | set(dead_ids)
    unknown = len((settled | log.starts.keys()) - due.keys())
    lost = max(0, len(due.keys() - settled) - left)
    accounted = sum(totals.values()) - totals["sent"]
    problems = [
        problem
        for wrong, problem in (
            (early, f"{early} deliveries started before their time"),
            (lost, f"{lost} messages were lost"),
            (duplicates - explained, f"{duplicates - explained} duplicates are not explained"),
            (left and not interrupted, f"{left} messages were not settled in time"),
            (stored_again, f"{stored_again} messages were stored again when the same ids were sent again"),
            (unknown, f"{unknown} messages were delivered, but never sent"),
            _compare("sent", len(due), totals["sent"], "stored by the server"),
            _compare("sent", len(due), accounted, "settled or left"),
            _compare("acked by the workers", len(log.acked), totals["acked"], "by the server", left),
            _compare("discarded by the workers", len(log.discarded), totals["discarded"], "by the server", left),
            _compare("in the dead letter", len(dead_ids), totals["dead"], "counted by the server"),
        )
        if wrong
    ]
    return Balance(
        **{**totals, **run, "sent": len(due)},
        early=early,
        lost=lost,
        duplicates=duplicates,
        explained=explained,
        killed=len(kills),
        in_flight=sum(len(kill.in_flight) for kill in kills),
        retried=retried,
        deliveries=len(starts),
        lateness_ms=log.lateness,
        interrupted=interrupted,
        problems=problems,
        adds_up=not problems,
    )


def _compare(what: str, one: int, other: int, where: str, slack: int = 0) -> tuple[bool, str]:
    """Return whether two counts differ by more than `slack`, and a sentence about it."""
    return abs(one - other) > slack, f"{one:,} {what}, but {other:,} {where}"
