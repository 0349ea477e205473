"""The account of a run: what was sent, delivered and broken, and how it ended, added up over the rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from delayq.torture.checker import Verdict, tell
from delayq.torture.history import Answer, Fault, Invoke, read

_OUTAGES = ("server-kill", "power")
_MEANING = {"conservation": "lost", "never early": "early", "leases": "in two places", "leftovers": "in two places"}


class RoundAccount(msgspec.Struct, frozen=True, kw_only=True):
    """A round that is over."""

    round: int
    seconds: float
    faults: dict[str, int]
    """How many were carried out; lost replies and cut connections one by one."""
    stalls: int
    """How often the machine held something up for a quarter of a lease, which may end leases as a fault does."""
    recovery: float | None
    """Seconds from a server that is up again to the first answer to a call that waits for it, the longest of them."""
    problems: list[str]
    """What went wrong with the processes, a sentence each."""
    verdict: Verdict | None
    """None if it was interrupted."""
    kept: str = ""
    """Where its histories are, if they were kept."""

    @property
    def right(self) -> bool:
        """Whether nothing went wrong."""
        return not self.problems and (self.verdict is None or self.verdict.right)


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The account of a run. Counts of messages, unless it says otherwise."""

    command: str
    """What repeats it."""
    rounds: int
    messages: int
    """Ids that were sent, some of them for several lives."""
    deliveries: int
    acked: int
    dead: int
    faults: dict[str, int]
    stalls: int
    duplicates: int
    """Deliveries that no failure asked for."""
    explained: dict[str, int]
    """Those of the duplicates that a fault explains, by its kind."""
    lost: int
    early: int
    in_two_places: int
    unexpected: int
    """Violations of all other rules, and processes that ended by themselves."""
    in_doubt: int
    """Calls whose answer never came."""
    slowest_recovery: float | None
    seconds: float
    problems: list[str]
    interrupted: bool
    right: bool
    failed_rounds: list[RoundAccount]


def add_up(command: str, rounds: Iterable[RoundAccount], seconds: float, *, interrupted: bool) -> Account:
    """Add the rounds up."""
    rounds = list(rounds)
    verdicts = [one.verdict for one in rounds if one.verdict]
    broken = sum((Counter(verdict.broken) for verdict in verdicts), Counter[str]())
    meant: Counter[str] = Counter()
    for rule, number in broken.items():
        meant[_MEANING.get(rule, "unexpected")] += number
    problems = [problem for one in rounds for problem in one.problems]
    recoveries = [one.recovery for one in rounds if one.recovery is not None]
    return Account(
        command=command,
        rounds=len(rounds),
        messages=sum(verdict.messages for verdict in verdicts),
        deliveries=sum(verdict.deliveries for verdict in verdicts),
        acked=sum(verdict.settled for verdict in verdicts),
        dead=sum(verdict.dead for verdict in verdicts),
        faults=dict(sum((Counter(one.faults) for one in rounds), Counter[str]())),
        stalls=sum(one.stalls for one in rounds),
        duplicates=sum(verdict.duplicates for verdict in verdicts),
        explained=dict(sum((Counter(verdict.explained) for verdict in verdicts), Counter[str]())),
        lost=meant["lost"],
        early=meant["early"],
        in_two_places=meant["in two places"],
        unexpected=meant["unexpected"] + len(problems),
        in_doubt=sum(verdict.in_doubt for verdict in verdicts),
        slowest_recovery=max(recoveries, default=None),
        seconds=round(seconds, 1),
        problems=problems,
        interrupted=interrupted,
        right=all(one.right for one in rounds),
        failed_rounds=[one for one in rounds if not one.right],
    )


def look_back(files: Iterable[Path]) -> tuple[int, float | None]:
    """Return how often something was held up by itself, and the slowest recovery of the server (s)."""
    faults: list[Fault] = []
    asked: dict[tuple[str, int], int] = {}
    answered: list[tuple[int, int]] = []
    for process, line in read(files):
        if isinstance(line, Fault):
            faults.append(line)
        elif isinstance(line, Invoke):
            asked[process, line.call] = line.at
        elif isinstance(line, Answer) and line.outcome == "ok":
            answered.append((asked.pop((process, line.call), line.at), line.at))
    stalls = [fault for fault in faults if fault.kind == "stall" and not _explained(fault, faults)]
    outages = [fault for fault in faults if fault.kind in _OUTAGES]
    # Of those who asked while the server was down, the first to be answered: who asks later did not wait for it.
    waited = ([end - one.until for at, end in answered if at <= one.until < end] for one in outages)
    return len(stalls), max((min(times) / 1e6 for times in waited if times), default=None)


def _explained(stall: Fault, faults: list[Fault]) -> bool:
    """Tell whether a stall is that of a process which was stopped on purpose."""
    return any(
        fault.kind == "stop" and fault.process == stall.process and fault.at <= stall.until and fault.until >= stall.at
        for fault in faults
    )


def statement(account: Account) -> Iterator[str]:
    """Yield the account as text, a line each."""
    yield f"{account.messages:,} messages in {account.rounds} rounds, {account.seconds:,.0f} s"
    yield f"{account.deliveries:,} deliveries, {account.acked:,} acked, {account.dead:,} in the dead letter"
    named = ", ".join(f"{kind} {number:,}" for kind, number in account.faults.items() if number)
    yield f"faults: {named or 'none'}"
    if account.stalls:
        yield f"the machine itself held something up {account.stalls} times"
    yield f"calls in doubt: {account.in_doubt:,}"
    why = ", ".join(f"{number:,} by {kind}" for kind, number in sorted(account.explained.items()))
    yield f"duplicates: {account.duplicates:,}" + (f" ({why})" if why else "")
    if account.slowest_recovery is not None:
        yield f"slowest recovery after a restart of the server: {account.slowest_recovery:.2f} s"
    counts = (account.lost, account.early, account.in_two_places, account.unexpected)
    yield "lost {:,}, early {:,}, in two places {:,}, unexpected {:,}".format(*counts)
    yield from account.problems
    for one in account.failed_rounds:
        yield f"round {one.round} failed; its histories: {one.kept}"
        if " --round " not in account.command:
            yield f"  again: {account.command} --round {one.round}"
        if one.verdict:
            yield from (f"  {line}" for line in tell(one.verdict))
    if account.interrupted:
        yield "interrupted: this is the account of what was"
    yield f"again: {account.command}"
