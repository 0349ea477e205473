"""Whether it adds up: what was sent against what the workers reported and what the server says at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from delayq.demo.worker import Ended, Started
from delayq.inspector import MessageInfo


class Lateness(msgspec.Struct, frozen=True):
    """How late the first attempts began, in milliseconds."""

    p50: float
    p99: float
    max: float


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The account of a run. Counts of messages, unless it says otherwise."""

    sent: int
    acked: int
    dead: int
    discarded: int
    left: int
    """Still in the queue: of a run that was interrupted."""
    early: int
    """Deliveries that began before their time, by the server's clock."""
    lost: int
    duplicates: int
    """Deliveries beyond the first that no failure asked for."""
    explained: int
    """Those of the duplicates that were under way in a killed worker and began again after its lease."""
    killed: int
    """Workers."""
    in_flight: int
    """What the killed workers held."""
    retried: int
    """Deliveries after a failure."""
    deliveries: int
    lateness_ms: Lateness
    countries: int
    seconds: float
    server: str
    interrupted: bool
    problems: list[str]
    """What does not add up, a sentence each."""
    adds_up: bool


@dataclass(frozen=True, slots=True)
class Kill:
    """What a killed worker held, as the server had it right after."""

    worker: int
    name: str
    held: Mapping[tuple[str, int], int]
    """(id, token) → the end of its lease (ms)."""


@dataclass(frozen=True, slots=True)
class Final:
    """What the server says at the end."""

    sent: int
    acked: int
    dead: int
    discarded: int
    left: int
    dead_ids: frozenset[str]


@dataclass(slots=True)
class Ledger:
    """Everything the workers reported, and what follows from it at any moment."""

    starts: dict[str, list[Started]] = field(default_factory=dict)
    ends: dict[tuple[str, int], Ended] = field(default_factory=dict)
    under_way: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    """What each worker is at, by number."""
    acked: set[str] = field(default_factory=set)
    discarded: set[str] = field(default_factory=set)
    retried: int = 0
    """Second and further attempts, for the view: the account takes a closer look."""
    _lateness: list[float] = field(default_factory=list)

    def add(self, report: Started | Ended) -> None:
        """Enter a report."""
        delivery = report.id, report.token
        current = self.under_way.setdefault(report.worker, set())
        if isinstance(report, Started):
            self.starts.setdefault(report.id, []).append(report)
            current.add(delivery)
            self.retried += report.attempt > 1
            if report.attempt == 1:
                self._lateness.append(report.lateness * 1000)
            return
        self.ends[delivery] = report
        current.discard(delivery)
        if report.outcome != "failed":
            (self.acked if report.outcome == "acked" else self.discarded).add(report.id)

    @property
    def lateness(self) -> Lateness:
        """The lateness of the first attempts: of later ones it says how long the failure was."""
        ordered = sorted(self._lateness) or [0.0]
        last = len(ordered) - 1
        return Lateness(*(round(ordered[round(last * share)], 2) for share in (0.5, 0.99, 1)))

    def held_by(self, worker: int, active: list[MessageInfo]) -> dict[tuple[str, int], int]:
        """Return what a worker holds of the active messages, begun or not: (id, token) → the end of its lease (ms).

        The server names the holder of each, and what the worker has reported tells which of them it is.
        """
        begun = {start.token for starts in self.starts.values() for start in starts if start.worker == worker}
        holders = {message.holder for message in active if message.token in begun}
        return {
            (message.id, message.token): round(message.deadline.timestamp() * 1000)
            for message in active
            if message.holder in holders and message.token is not None and message.deadline is not None
        }

    def came_back(self, kill: Kill) -> int:
        """Count what a killed worker held and another has begun since."""
        return sum(any(start.token > token for start in self.starts.get(id, ())) for id, token in kill.held)

    def again(self, kills: list[Kill]) -> tuple[int, int, int]:
        """Count the deliveries beyond the first: after a failure, duplicates, and explained duplicates."""
        held = {delivery: (kill.worker, lease) for kill in kills for delivery, lease in kill.held.items()}
        retried = duplicates = explained = 0
        for id, starts in self.starts.items():
            for before, after in pairwise(sorted(starts, key=lambda start: start.token)):
                end = self.ends.get((id, before.token))
                if end is not None and end.outcome == "failed":
                    retried += 1
                    continue
                duplicates += 1
                worker, lease = held.get((id, before.token), (0, 0))
                explained += worker == before.worker and after.at >= lease * 1000
        return retried, duplicates, explained


def settle(
    due: Mapping[str, int],
    ledger: Ledger,
    final: Final,
    kills: list[Kill],
    *,
    stored_again: int = 0,
    countries: int = 0,
    seconds: float = 0.0,
    server: str = "",
    interrupted: bool = False,
) -> Account:
    """Draw up the account: `due` says when each id that was sent should be delivered (ms)."""
    retried, duplicates, explained = ledger.again(kills)
    starts = [start for starts in ledger.starts.values() for start in starts]
    early = sum(start.at < due.get(start.id, 0) * 1000 or start.lateness < 0 for start in starts)
    settled = ledger.acked | ledger.discarded | final.dead_ids
    strangers = len((settled | ledger.starts.keys()) - due.keys())
    lost = max(0, len(due.keys() - settled) - final.left)
    problems = [
        problem
        for wrong, problem in (
            (early, f"{early} deliveries began before their time"),
            (lost, f"{lost} messages were lost"),
            (duplicates - explained, f"{duplicates - explained} duplicates have no explanation"),
            (final.left and not interrupted, f"{final.left} messages were not settled in time"),
            (stored_again, f"{stored_again} messages were stored a second time when the same ids were sent again"),
            (strangers, f"{strangers} messages were delivered that were never sent"),
            _compare("sent", len(due), final.sent, "taken in by the server"),
            _compare("sent", len(due), final.acked + final.dead + final.discarded + final.left, "settled"),
            _compare("acked by the workers", len(ledger.acked), final.acked, "by the server", final.left),
            _compare("discarded by the workers", len(ledger.discarded), final.discarded, "by the server", final.left),
            _compare("in the dead letter", len(final.dead_ids), final.dead, "counted by the server"),
        )
        if wrong
    ]
    return Account(
        sent=len(due),
        acked=final.acked,
        dead=final.dead,
        discarded=final.discarded,
        left=final.left,
        early=early,
        lost=lost,
        duplicates=duplicates,
        explained=explained,
        killed=len(kills),
        in_flight=sum(len(kill.held) for kill in kills),
        retried=retried,
        deliveries=len(starts),
        lateness_ms=ledger.lateness,
        countries=countries,
        seconds=round(seconds, 2),
        server=server,
        interrupted=interrupted,
        problems=problems,
        adds_up=not problems,
    )


def _compare(what: str, one: int, other: int, where: str, slack: int = 0) -> tuple[bool, str]:
    """Return whether two counts differ by more than may be, and how that is said."""
    return abs(one - other) > slack, f"{one:,} {what}, but {other:,} {where}"
