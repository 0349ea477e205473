"""The timeline of each message: what all processes did with one id, merged from their histories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from delayq.testing.torture.history import (
    CallRecord,
    EndRecord,
    FaultRecord,
    HeaderRecord,
    Line,
    ReplyRecord,
    ScanRecord,
    SettingsRecord,
    StartRecord,
    ToldRecord,
)

OPEN_END = 1 << 62
"""The end of a call whose outcome is unknown (µs): the server may execute it at any later time."""
_BEGINNING = {"send": "12", "redrive": "1"}
_DONE = {"nack": "12", **_BEGINNING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call or callback of a process about one id. Times `began` and `ended` are those of the history (µs)."""

    op: str
    id: str
    process: str
    began: int
    ended: int = OPEN_END
    outcome: str = "unknown"
    call: int = 0
    status: str = ""
    token: int = 0
    due: int = 0
    retries: int = -1
    payload: str = ""
    name: str = ""
    """The name of a claimed message, or of what is held or breaks."""
    lasts: int = 0
    """For how long a name is closed, or the pause of a breaker that trips (ms)."""
    replaces: bool = False
    lease: int = 0
    ahead: int = 0
    """Of a claim: how long before they are due it may take messages (ms)."""
    server: int = 0
    """The server's time (ms); 0 if unknown."""
    deadline: int = 0
    attempt: int = 0
    retries_left: int = -1
    """Of a claim: as its consumer was told; -1 if it was not told."""
    alone: bool = False
    lost: bool = False
    """Of a start: whether the callback was told that its lease is lost."""
    runner: int = 0
    """Of a start: the thread or task of the process."""
    answered: int = 0
    """When the reply to a send that waits was read (µs)."""
    callback_outcome: str = ""

    @property
    def waits(self) -> bool:
        """Whether it is a send that waits for the end of the running message of its id."""
        return self.op == "send" and self.status == "6"

    @property
    def asks_to_stop(self) -> bool:
        """Whether it is a cancellation that asks for a running message, which then ends later."""
        return self.op == "cancel" and self.status == "5" and self.outcome == "ok"

    @property
    def certain(self) -> bool:
        """Whether it certainly happened."""
        return self.outcome == "ok" and self.status in _DONE.get(self.op, "1")

    @property
    def possible(self) -> bool:
        """Whether it happened or may have happened."""
        return self.certain or self.outcome == "unknown" or self.asks_to_stop

    @property
    def may_begin_life(self) -> bool:
        """Whether it began a life of the id, or may have."""
        return self.op in _BEGINNING and self.possible

    def __str__(self) -> str:
        after = "no reply" if self.ended >= OPEN_END else f"+{(self.ended - self.began) / 1000:.1f} ms"
        names = ("name", "token", "due", "retries", "attempt", "retries_left", "server", "deadline", "payload")
        facts = {name: getattr(self, name) for name in names}
        shown = "".join(f" {name}={value}" for name, value in facts.items() if value and value != -1)
        result = f" → {self.callback_outcome or self.status or self.outcome}"
        return f"{self.began / 1e6:.6f} {after:>12}  {self.process:<12} {self.op} {self.id}{shown}{result}"


@dataclass(slots=True)
class Timeline:
    """Everything known of one id, ordered by when it began."""

    id: str
    steps: list[Step] = field(default_factory=list)
    living: tuple[str, int] | None = None
    """State and due time (ms) of the message that lives at the end."""
    dead: list[tuple[int, int, int, str]] = field(default_factory=list)
    """Token, attempts, retries and reason of each entry in the dead letter at the end."""

    def of(self, *ops: str) -> list[Step]:
        """Return the steps with these operations."""
        return [step for step in self.steps if step.op in ops]

    def claims(self) -> list[Step]:
        """Return the deliveries in the order of their tokens."""
        return sorted(self.of("claim"), key=lambda step: step.token)

    def settlements(self, claim: Step) -> list[Step]:
        """Return the settlements and extensions of a delivery, without the report of its start."""
        return [step for step in self.of("ack", "nack", "extend", "release", "reject") if step.token == claim.token]

    def asked_to_stop_before(self, step: Step) -> bool:
        """Return whether a request to stop may have come before a step was done."""
        return any(one.asks_to_stop and one.began < step.ended for one in self.steps)

    def new_life_between(self, before: Step, after: Step) -> bool:
        """Return whether a new life may have begun after `before` began and before `after` ended."""
        return any(
            step.may_begin_life
            and step.ended > before.began
            and step.began < after.ended
            and step not in (before, after)
            for step in self.steps
        )


@dataclass(slots=True)
class History:
    """A whole history: the timelines, and what concerns all of them."""

    timelines: dict[str, Timeline] = field(default_factory=dict)
    settings: SettingsRecord | None = None
    faults: list[FaultRecord] = field(default_factory=list)
    final: ScanRecord | None = None
    unknown_claims: list[Step] = field(default_factory=list)
    """Claims without a reply: nobody knows which messages they took."""
    purges: list[Step] = field(default_factory=list)
    closings: list[Step] = field(default_factory=list)
    """The requests of callbacks to start nothing more of a name for a while."""
    breaks: list[Step] = field(default_factory=list)
    """The breakers of names, or of the queue (''), that tripped, or let all start again."""
    told: list[tuple[str, ToldRecord]] = field(default_factory=list)
    """What senders were told, with their processes."""
    _starts: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    """When callbacks started, by process and runner."""
    _claims: list[Step] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)
    lines: int = 0

    @property
    def set_back(self) -> int:
        """By how much the server's clock was set back in total (ms)."""
        return sum(-fault.shift for fault in self.faults if fault.shift < 0)

    @property
    def rolled_back(self) -> bool:
        """Whether the server may have lost writes that it had confirmed."""
        return any(fault.lost for fault in self.faults)

    def shifted_between(self, since: int, until: int) -> bool:
        """Return whether the server's clock may have been set in a time, or differs from before by then."""
        return any(fault.shift and fault.at < until and fault.until > since for fault in self.faults)

    def may_start_late(self, start: Step) -> bool:
        """Return whether a start after its lease's end is the first of its thread since the process stood still."""
        for fault in self.faults:
            if fault.breaks_leases and fault.process in ("", start.process) and fault.at < start.began:
                others = self._starts_of(start.process, start.runner)
                if not any(fault.until <= other < start.began for other in others):
                    return True
        return False

    def _starts_of(self, process: str, runner: int) -> list[int]:
        if not self._starts:
            for step in self.steps():
                if step.op == "start":
                    self._starts.setdefault((step.process, step.runner), []).append(step.began)
        return self._starts.get((process, runner), [])

    def unknown_claims_between(self, before: Step, after: Step) -> int:
        """Return how many claims without a reply may have come between two steps."""
        return sum(claim.began < after.ended and claim.ended > before.began for claim in self.unknown_claims)

    def steps(self) -> Iterator[Step]:
        """Yield the steps of all timelines."""
        return (step for timeline in self.timelines.values() for step in timeline.steps)

    def claims(self) -> list[Step]:
        """Return all claims of messages."""
        if not self._claims:
            self._claims += (step for step in self.steps() if step.op == "claim")
        return self._claims

    def timeline(self, id: str) -> Timeline:
        """Return the timeline of an id, a new one at first."""
        return self.timelines.setdefault(id, Timeline(id))


def gather(lines: Iterable[tuple[str, Line]]) -> History:
    """Merge the lines of all processes; the outcome of calls that the server may have lost becomes unknown."""
    history = History()
    open_calls: dict[tuple[str, int], CallRecord] = {}
    for process, line in lines:
        history.lines += 1
        if isinstance(line, CallRecord):
            open_calls[process, line.call] = line
        elif isinstance(line, ReplyRecord):
            call = open_calls.pop((process, line.call), None)
            if call is not None:
                _add_call(history, process, call, line)
        else:
            _add_other(history, process, line)
    for (process, _), call in open_calls.items():
        _add_call(history, process, call, None)
    losses = [(fault.lost, fault.until) for fault in history.faults if fault.lost]
    for timeline in history.timelines.values():
        timeline.steps = sorted((_after_losses(step, losses) for step in timeline.steps), key=lambda step: step.began)
    for id, state, due in history.final.living if history.final else ():
        history.timeline(id).living = (state, due)
    for entry in history.final.dead if history.final else ():
        history.timeline(entry[0]).dead.append(entry[1:])
    return history


def _add_other(history: History, process: str, line: Line) -> None:
    if isinstance(line, StartRecord | EndRecord):
        history.timeline(line.id).steps.append(_callback_step(process, line))
    elif isinstance(line, ToldRecord):
        history.told.append((process, line))
    elif isinstance(line, HeaderRecord):
        history.processes.append(process)
    elif isinstance(line, SettingsRecord):
        history.settings = line
    elif isinstance(line, FaultRecord):
        history.faults.append(line)
    elif isinstance(line, ScanRecord):
        history.final = line


def _add_call(history: History, process: str, call: CallRecord, reply: ReplyRecord | None) -> None:
    facts: dict[str, Any] = {"process": process, "began": call.at, "op": call.op, "call": call.call}
    if reply is not None:
        facts["outcome"] = reply.outcome
        if reply.outcome != "unknown":
            facts["ended"] = reply.at
    if call.op == "purge":
        history.purges.append(Step(id="", status="1", **facts))
    elif call.op in ("close", "break"):
        status = reply.statuses if reply else ""
        found = history.closings if call.op == "close" else history.breaks
        found.append(Step(id="", name=call.name, lasts=call.lasts, status=status, **facts))
    elif call.op != "claim":
        facts |= {"replaces": call.replace, "lease": call.lease}
        columns: dict[str, Any] = {"id": call.ids, "token": call.tokens, "due": call.dues, "retries": call.retries}
        columns["payload"] = call.payloads
        statuses = reply.statuses if reply else ""
        if statuses:  # a call that reads payloads may have done the first ones only
            columns = {name: column[: len(statuses)] for name, column in columns.items()}
        _add_rows(history, facts, columns | {"status": statuses})
    elif reply is None or reply.outcome == "unknown":
        history.unknown_claims.append(Step(id="", **facts))
    else:
        facts |= {
            "server": reply.now,
            "deadline": reply.deadline,
            "status": "1",
            "lease": call.lease,
            "ahead": call.ahead,
        }
        facts["alone"] = reply.alone
        columns = {"id": reply.ids, "token": reply.tokens, "due": reply.dues, "attempt": reply.attempts}
        columns |= {"retries_left": reply.retries_left, "payload": reply.payloads, "name": reply.names}
        _add_rows(history, facts, columns)


def _add_rows(history: History, facts: dict[str, Any], columns: dict[str, Any]) -> None:
    filled = {name: column for name, column in columns.items() if column}
    for cells in zip(*filled.values(), strict=True):
        step = Step(**facts, **dict(zip(filled, cells, strict=True)))
        if step.waits:  # nobody is told when it begins a life
            step = replace(step, outcome="unknown", ended=OPEN_END, answered=step.ended)
        history.timeline(step.id).steps.append(step)


def _callback_step(process: str, line: StartRecord | EndRecord) -> Step:
    facts: dict[str, Any] = {"id": line.id, "token": line.token, "process": process}
    facts |= {"began": line.at, "ended": line.at, "outcome": "ok"}
    if isinstance(line, StartRecord):
        return Step(op="start", server=line.server, lost=line.lost, runner=line.runner, **facts)
    return Step(op="end", callback_outcome=line.outcome, **facts)


def _after_losses(step: Step, losses: list[tuple[int, int]]) -> Step:
    """Return a step with an unknown outcome if the server may have lost it, or a part of it.

    A callback that started, started; and a claim whose reply was read has issued its tokens by then.
    """
    if step.op in ("start", "end") or step.outcome != "ok":
        return step
    if any(since <= step.ended and step.began < until for since, until in losses):
        return replace(step, outcome="unknown", ended=step.ended if step.op == "claim" else OPEN_END)
    return step
