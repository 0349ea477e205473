"""The tally of a run: what was sent, delivered and broken, and how it ended, added up over the rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from delayq.testing.torture.history import CallRecord, FaultRecord, ReplyRecord, read
from delayq.testing.torture.rules.checker import CheckResult, report_lines

_OUTAGES = ("server-kill", "power")
_MEANING = {"conservation": "lost", "never early": "early", "leases": "in_two_places", "leftovers": "in_two_places"}
"""What a violation of a rule is counted as; all others are `unexpected`."""


class RoundTally(msgspec.Struct, frozen=True, kw_only=True):
    """The tally of a round."""

    round: int
    seconds: float
    faults: dict[str, int]
    """How many happened; dropped replies and cut connections are counted one by one."""
    stalls: int
    """How often the machine stalled a process for a quarter of a lease, which may break leases as a fault does."""
    recovery: float | None
    """Seconds from a restart of the server to the first reply to a waiting call; the longest of them."""
    problems: list[str]
    """How processes failed, a sentence each."""
    verdict: CheckResult | None
    """None if the round was interrupted."""
    kept: str = ""
    """The folder of its histories, if they were kept."""

    @property
    def right(self) -> bool:
        """Whether nothing went wrong."""
        return not self.problems and (self.verdict is None or self.verdict.right)


class RunTally(msgspec.Struct, frozen=True, kw_only=True):
    """The tally of a run. Counts of messages, unless stated otherwise."""

    command: str
    """The command that repeats the run."""
    rounds: int
    messages: int
    """Ids that were sent, some of them several times."""
    deliveries: int
    acked: int
    dead: int
    faults: dict[str, int]
    stalls: int
    duplicates: int
    """Repeated deliveries that no failure caused."""
    explained: dict[str, int]
    """The duplicates that a fault explains, by its kind."""
    lost: int
    early: int
    in_two_places: int
    unexpected: int
    """Violations of all other rules, and processes that failed."""
    in_doubt: int
    """Calls without a reply."""
    slowest_recovery: float | None
    seconds: float
    problems: list[str]
    interrupted: bool
    right: bool
    failed_rounds: list[RoundTally]


def tally_rounds(command: str, rounds: Iterable[RoundTally], seconds: float, *, interrupted: bool) -> RunTally:
    """Add the rounds up."""
    rounds = list(rounds)
    checks = [one.verdict for one in rounds if one.verdict]
    violations: Counter[str] = Counter()
    for rule, count in _sum(check.broken for check in checks).items():
        violations[_MEANING.get(rule, "unexpected")] += count
    problems = [problem for one in rounds for problem in one.problems]
    return RunTally(
        command=command,
        rounds=len(rounds),
        messages=sum(check.messages for check in checks),
        deliveries=sum(check.deliveries for check in checks),
        acked=sum(check.settled for check in checks),
        dead=sum(check.dead for check in checks),
        faults=_sum(one.faults for one in rounds),
        stalls=sum(one.stalls for one in rounds),
        duplicates=sum(check.duplicates for check in checks),
        explained=_sum(check.explained for check in checks),
        lost=violations["lost"],
        early=violations["early"],
        in_two_places=violations["in_two_places"],
        unexpected=violations["unexpected"] + len(problems),
        in_doubt=sum(check.in_doubt for check in checks),
        slowest_recovery=max((one.recovery for one in rounds if one.recovery is not None), default=None),
        seconds=round(seconds, 1),
        problems=problems,
        interrupted=interrupted,
        right=all(one.right for one in rounds),
        failed_rounds=[one for one in rounds if not one.right],
    )


def _sum(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    return dict(sum(map(Counter, counts), Counter[str]()))


def stalls_and_recovery(files: Iterable[Path]) -> tuple[int, float | None]:
    """Return how often the machine stalled a process, and the slowest recovery of the server (s)."""
    faults: list[FaultRecord] = []
    sent: dict[tuple[str, int], int] = {}
    answered: list[tuple[int, int]] = []
    for process, line in read(files):
        if isinstance(line, FaultRecord):
            faults.append(line)
        elif isinstance(line, CallRecord):
            sent[process, line.call] = line.at
        elif isinstance(line, ReplyRecord) and line.outcome == "ok":
            answered.append((sent.pop((process, line.call), line.at), line.at))
    stalls = [fault for fault in faults if fault.kind == "stall" and not _stopped_on_purpose(fault, faults)]
    outages = [fault for fault in faults if fault.kind in _OUTAGES]
    # Only calls sent before the restart: later ones did not wait for it. Of these, the first reply.
    waited = ([end - one.until for at, end in answered if at <= one.until < end] for one in outages)
    return len(stalls), max((min(times) / 1e6 for times in waited if times), default=None)


def _stopped_on_purpose(stall: FaultRecord, faults: list[FaultRecord]) -> bool:
    return any(
        fault.kind == "stop" and fault.process == stall.process and fault.at <= stall.until and fault.until >= stall.at
        for fault in faults
    )


def summary_lines(tally: RunTally) -> Iterator[str]:
    """Yield the tally as text, line by line."""
    yield f"{tally.messages:,} messages in {tally.rounds} rounds, {tally.seconds:,.0f} s"
    yield f"{tally.deliveries:,} deliveries, {tally.acked:,} acked, {tally.dead:,} in the dead letter"
    faults = ", ".join(f"{kind} {number:,}" for kind, number in tally.faults.items() if number)
    yield f"faults: {faults or 'none'}"
    if tally.stalls:
        yield f"stalls of the machine itself: {tally.stalls}"
    yield f"calls with an unknown outcome: {tally.in_doubt:,}"
    why = ", ".join(f"{number:,} by {kind}" for kind, number in sorted(tally.explained.items()))
    yield f"duplicates: {tally.duplicates:,}" + (f" ({why})" if why else "")
    if tally.slowest_recovery is not None:
        yield f"slowest recovery after a restart of the server: {tally.slowest_recovery:.2f} s"
    counts = (tally.lost, tally.early, tally.in_two_places, tally.unexpected)
    yield "lost {:,}, early {:,}, in two places {:,}, unexpected {:,}".format(*counts)
    yield from tally.problems
    for one in tally.failed_rounds:
        yield f"round {one.round} failed; histories: {one.kept}"
        if " --round " not in tally.command:
            yield f"  repeat: {tally.command} --round {one.round}"
        if one.verdict:
            yield from (f"  {line}" for line in report_lines(one.verdict))
    if tally.interrupted:
        yield "interrupted: the figures are those so far"
    yield f"repeat: {tally.command}"
