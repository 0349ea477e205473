"""One consumer of a drain: it looks in at a time, does what is to be done then, and runs the callback itself."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple, cast

from delayq.answers import Promoted
from delayq.clock import monotonic
from delayq.errors import DelayqError
from delayq.executor import AsyncExecutor, Executor
from delayq.flow import Event, Start, Turn, Wait
from delayq.flows.consume import Consumption
from delayq.message import AsyncMessage, Holding, Message, Tools
from delayq.outcomes import Outcome
from delayq.queue import AsyncDelayQueue
from delayq.testing import inside
from delayq.testing.clock import Clock
from delayq.testing.delivered import Delivered, told
from delayq.testing.faults import Crash
from delayq.verdict import Completion
from delayq.workbench import Workbench


class Ask(NamedTuple):
    """Carry these calls out in one round trip; the answer is theirs."""

    line: Executor | AsyncExecutor
    calls: list[Any]


class Invoke(NamedTuple):
    """Call a callback; the answer is what it returned, and what it raised."""

    function: Any
    given: Any


Looking = Generator[Ask | Invoke, Any, Promoted | None]


@dataclass(slots=True)
class Terms:
    """What holds for all consumers of one drain, and what they have delivered."""

    clock: Clock
    raising: bool
    most: int
    delivered: list[Delivered] = field(default_factory=list)

    def count(self) -> None:
        """Fail where a delivery is one too many."""
        if len(self.delivered) >= self.most:
            raise AssertionError(f"{self.most} messages were delivered, and there is no end: see `most`")


class Worker:
    """A consumer of one queue; it touches no socket, and where it stops time stands still."""

    def __init__(self, queue: inside.AnyQueue, terms: Terms) -> None:
        """Consume a queue on the terms of a drain."""
        mine = inside.tools(queue)
        # One after the other, and none laid by: the order is that of the queue, and a crash takes nothing with it.
        self._tools = Tools(mine.calls, replace(mine.settings, concurrency=1, prefetch=0), mine.decode)
        self._queue = queue
        self._line = inside.executor(queue)
        self._callback = inside.callback(queue)
        self._terms = terms
        self._raised: BaseException | None = None

    def look_in(self) -> Looking:
        """Do as a consumer what is to be done at this time; returns what it saw last, None if it has crashed."""
        bench = Workbench(self._callback, self._handed_over, self._tools, self._line)
        flow = Consumption(self._tools, holder="drain", batch=self._callback.batch).run()
        step = next(flow)
        before = seen = None
        while True:
            event = Event(0.0)
            if isinstance(step, Turn):
                if self._raised is not None:  # settled before it is raised, and nothing more is claimed
                    yield Ask(self._line, [call for call in step.calls if call.script.name != "ready_to_unack"])
                    raise self._raised
                event.answers = yield Ask(self._line, step.calls)
                before, seen = seen, _promoted(event.answers)._replace(now=0)  # it may go on by itself
            elif isinstance(step, Start):
                bench.lay(step.holdings)
                completions = yield from self._work(bench)
                if completions is None:
                    return None
                event.completions = completions
            elif isinstance(step, Wait) and step.seconds > 0 and seen is not None and seen == before:
                # Seen twice alike: where Redis had to be taught a script first, a look may have come before what it
                # was to see.
                return seen
            event.now = monotonic()
            step = flow.send(event)

    def _handed_over(self, holding: Holding, tools: Tools, line: Any, _: float) -> Message[Any] | AsyncMessage[Any]:
        """Return a message that was handed over as soon as it was claimed: the time between is not by this clock."""
        kind = AsyncMessage if isinstance(self._queue, AsyncDelayQueue) else Message
        holding.claimed = 0.0  # not the same large number on both sides, which takes the last digits from the lateness
        return kind(holding, tools, line, 0.0)

    def _work(self, bench: Workbench) -> Generator[Ask | Invoke, Any, list[Completion] | None]:
        """Call the callback with what lies on the bench; returns the completions, None if the worker has crashed."""
        ended: list[Completion] = []
        while (taken := bench.take()) is not None:
            batch, holdings, given = taken
            at = self._terms.clock.now
            if given is not None:
                self._terms.count()
                with _deadlines_following(self._terms.clock, holdings):
                    result, error = yield Invoke(bench.function, given)
                if isinstance(error, Crash):
                    self._tell(holdings, at, "crashed")
                    return None
                if error is not None and not _counts(error):
                    raise error
                if error is not None and self._terms.raising and not isinstance(error, Outcome):
                    self._raised = error
                bench.put_back(batch, holdings, result, error)
            for completion in bench.clear():
                ended.append(completion)
                self._tell(completion.holdings, at, completion)
        return ended

    def _tell(self, holdings: Sequence[Holding], at: datetime, outcome: Completion | Literal["crashed"]) -> None:
        name, decode = self._queue.name, self._tools.decode
        self._terms.delivered += [told(name, one, decode, at, outcome) for one in holdings]


def _promoted(answers: Iterable[Any]) -> Promoted:
    """Return what a turn saw; raises what Redis refused."""
    seen = None
    for answer in answers:
        if isinstance(answer, DelayqError):
            raise answer
        if isinstance(answer, Promoted):
            seen = answer
    return cast("Promoted", seen)  # every turn looks


def _counts(error: BaseException) -> bool:
    """Tell whether an exception of a callback counts as in a consumer, rather than being about the test itself."""
    pytest = sys.modules.get("_pytest.outcomes")
    return not isinstance(error, KeyboardInterrupt | (pytest.OutcomeException if pytest else KeyboardInterrupt))


@contextmanager
def _deadlines_following(clock: Clock, holdings: list[Holding]) -> Iterator[None]:
    """Have leases run out, as messages tell it, when the callback itself turns the clock."""

    def follow(passed: int) -> None:
        for holding in holdings:
            holding.deadline -= passed / 1000

    clock.watchers.append(follow)
    try:
        yield
    finally:
        clock.watchers.remove(follow)
