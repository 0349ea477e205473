"""The story of each message: what all processes did with one id, put together from their histories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from delayq.torture.history import Answer, Calm, End, Fault, Final, Invoke, Line, Opened, Rules, Start
from delayq.torture.promises import PROMISES, Promises

EVER = 1 << 62
"""When a call in doubt may still be carried out at the latest (µs)."""
_BEGINNING = {"send": "12", "redrive": "1"}
_DONE = {"nack": "12", **_BEGINNING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one process did with one id, or saw of it. Times `began` and `ended` as in the history (µs)."""

    op: str
    id: str
    process: str
    began: int
    ended: int = EVER
    outcome: str = "unknown"
    call: int = 0
    digit: str = ""
    token: int = 0
    due: int = 0
    retries: int = -1
    payload: str = ""
    replaces: bool = False
    lease: int = 0
    server: int = 0
    """The server's time (ms); 0 where it is not known."""
    deadline: int = 0
    attempt: int = 0
    said: str = ""
    """What a callback ended with."""

    @property
    def did(self) -> bool:
        """Whether it certainly happened."""
        return self.outcome == "ok" and self.digit in _DONE.get(self.op, "1")

    @property
    def may(self) -> bool:
        """Whether it happened or may have."""
        return self.did or self.outcome == "unknown"

    @property
    def begins(self) -> bool:
        """Whether it began a life of the id, or may have."""
        return self.op in _BEGINNING and self.may

    def __str__(self) -> str:
        """Tell it in a line."""
        after = "in doubt" if self.ended >= EVER else f"+{(self.ended - self.began) / 1000:.1f} ms"
        facts = {
            "token": self.token,
            "due": self.due,
            "retries": max(self.retries, 0),
            "attempt": self.attempt,
            "server": self.server,
            "deadline": self.deadline,
            "payload": self.payload,
        }
        told = "".join(f" {name}={value}" for name, value in facts.items() if value)
        answer = f" → {self.said or self.digit or self.outcome}"
        return f"{self.began / 1e6:.6f} {after:>12}  {self.process:<12} {self.op} {self.id}{told}{answer}"


@dataclass(slots=True)
class Story:
    """Everything that is known of one id, in the order in which it began."""

    id: str
    steps: list[Step] = field(default_factory=list)
    living: tuple[str, int] | None = None
    """State and due time (ms) of the message that lives at the end."""
    dead: list[tuple[int, int, int, str]] = field(default_factory=list)
    """Token, attempts, retries and reason of each entry in the dead letter at the end."""

    def of(self, *ops: str) -> list[Step]:
        """Return the steps of these kinds."""
        return [step for step in self.steps if step.op in ops]

    def claims(self) -> list[Step]:
        """Return the deliveries in the order of their tokens."""
        return sorted(self.of("claim"), key=lambda step: step.token)

    def begun_between(self, before: Step, after: Step) -> bool:
        """Tell whether a new life may have begun after `before` began and until `after` had ended."""
        return any(
            step.begins and step.ended > before.began and step.began < after.ended and step not in (before, after)
            for step in self.steps
        )


@dataclass(slots=True)
class History:
    """A whole history: the stories, and what concerns them all."""

    stories: dict[str, Story] = field(default_factory=dict)
    rules: Rules | None = None
    faults: list[Fault] = field(default_factory=list)
    calm: Calm | None = None
    final: Final | None = None
    doubtful_claims: list[Step] = field(default_factory=list)
    """Claims that were never answered: what they took, nobody knows."""
    purges: list[Step] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)
    lines: int = 0

    @property
    def promises(self) -> Promises:
        """What the queue promises."""
        return PROMISES[self.rules.engine if self.rules else "delay"]

    @property
    def back_step(self) -> int:
        """By how much the server's clock was set back in all (ms)."""
        return sum(-fault.shift for fault in self.faults if fault.shift < 0)

    @property
    def rolled_back(self) -> bool:
        """Whether the server may have lost what it had answered."""
        return any(fault.lost for fault in self.faults)


def gather(lines: Iterable[tuple[str, Line]]) -> History:
    """Put a history together; what a server lost, is in doubt."""
    history = History()
    open_calls: dict[tuple[str, int], Invoke] = {}
    found: dict[str, list[Step]] = defaultdict(list)
    for process, line in lines:
        history.lines += 1
        if isinstance(line, Invoke):
            open_calls[process, line.call] = line
        elif isinstance(line, Answer):
            invoke = open_calls.pop((process, line.call), None)
            if invoke is not None:
                _take(history, found, process, invoke, line)
        elif isinstance(line, Start | End):
            found[line.id].append(_callback(process, line))
        else:
            _note(history, process, line)
    for (process, _), invoke in open_calls.items():
        _take(history, found, process, invoke, None)
    losses = [(fault.lost, fault.until) for fault in history.faults if fault.lost]
    for id, steps in found.items():
        doubted = [_doubt(step, losses) for step in steps] if losses else steps
        history.stories[id] = Story(id, sorted(doubted, key=lambda step: step.began))
    _end(history)
    return history


def _note(history: History, process: str, line: Line) -> None:
    if isinstance(line, Opened):
        history.processes.append(process)
    elif isinstance(line, Rules):
        history.rules = line
    elif isinstance(line, Fault):
        history.faults.append(line)
    elif isinstance(line, Calm):
        history.calm = line
    elif isinstance(line, Final):
        history.final = line


def _take(history: History, found: dict[str, list[Step]], process: str, invoke: Invoke, answer: Answer | None) -> None:
    facts: dict[str, Any] = {"process": process, "began": invoke.at, "op": invoke.op, "call": invoke.call}
    if answer is not None:
        facts["outcome"] = answer.outcome
        if answer.outcome != "unknown":
            facts["ended"] = answer.at
    if invoke.op == "claim":
        if answer is None or answer.outcome == "unknown":
            history.doubtful_claims.append(Step(id="", **facts))
            return
        facts |= {"server": answer.now, "deadline": answer.deadline, "digit": "1", "lease": invoke.lease}
        columns = {"id": answer.ids, "token": answer.tokens, "due": answer.dues, "attempt": answer.attempts}
        _spread(found, facts, columns | {"payload": answer.payloads})
    elif invoke.op == "purge":
        history.purges.append(Step(id="", digit="1", **facts))
    else:
        facts |= {"replaces": invoke.replace, "lease": invoke.lease}
        columns = {"id": invoke.ids, "token": invoke.tokens, "due": invoke.dues, "retries": invoke.retries}
        _spread(found, facts, columns | {"payload": invoke.payloads, "digit": answer.digits if answer else ""})


def _spread(found: dict[str, list[Step]], facts: dict[str, Any], columns: dict[str, Any]) -> None:
    filled = {name: column for name, column in columns.items() if column}
    for cells in zip(*filled.values(), strict=True):
        step = Step(**facts, **dict(zip(filled, cells, strict=True)))
        found[step.id].append(step)


def _callback(process: str, line: Start | End) -> Step:
    facts: dict[str, Any] = {"id": line.id, "token": line.token, "process": process}
    facts |= {"began": line.at, "ended": line.at, "outcome": "ok"}
    if isinstance(line, Start):
        return Step(op="start", server=line.server, **facts)
    return Step(op="end", said=line.outcome, **facts)


def _doubt(step: Step, losses: list[tuple[int, int]]) -> Step:
    """Return a step as the server may have forgotten it; a callback that began, began."""
    if step.op in ("start", "end") or step.outcome != "ok":
        return step
    if any(since <= step.ended <= until for since, until in losses):
        return replace(step, outcome="unknown", ended=EVER)
    return step


def _end(history: History) -> None:
    if history.final is None:
        return
    for id, state, due in history.final.living:
        history.stories.setdefault(id, Story(id)).living = (state, due)
    for id, token, attempts, retries, reason in history.final.dead:
        history.stories.setdefault(id, Story(id)).dead.append((token, attempts, retries, reason))


def doubtful_between(history: History, before: Step, after: Step) -> Iterator[Step]:
    """Yield the claims without an answer that may have come between two steps."""
    return (claim for claim in history.doubtful_claims if claim.began < after.ended and claim.ended > before.began)
