"""Plays Redis, the workers and the clock to a consumer's flow, which is thereby tested with none of the three.

play = Play(concurrency=2)
play.wake()                                          # its first wait is over: it asks Redis something
assert play.asked == ["collect_garbage", "pending_to_ready", "ready_to_unack"]
assert play.answer(ready_to_unack=claimed("a", "b")) == ["a", "b"]           # it has these started
play.wake(after=0.5, done=[play.done("a")])          # half a second later a callback has ended
assert play.ask("ack").what == play.receipts("a")
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from delayq.answers import Claimed, Collected, Delivery, Expired, Promoted
from delayq.config import read_settings
from delayq.flow import Abandon, Event, Recall, Start, Step, Turn, Wait
from delayq.flows.consume import Consumption
from delayq.message import Batch, Holding, Tools
from delayq.values import Outgoing, OutgoingTable, Receipt
from delayq.verdict import Completion, Verdict

SERVER = 1_700_000_000_000
"""The server's clock in milliseconds while the local one is at `LOCAL`, unless a play says otherwise."""
LOCAL = 100.0
TOKEN = 7


class Ask(NamedTuple):
    """One call of a turn, as the flow made it."""

    name: str
    what: Any
    options: dict[str, Any]


class Asking:
    """Stands for `Calls`: whatever is called, is written down."""

    def __getattr__(self, name: str) -> Any:
        return lambda what=None, **options: Ask(name, _rows(what), options)


def _rows(what: Any) -> Any:
    return list(map(Outgoing, *what)) if isinstance(what, OutgoingTable) else what


def promoted(**seen: int) -> Promoted:
    """An answer of `pending_to_ready` that moved nothing, but for what is given; a play sets `now` itself."""
    nothing = {"moved": 0, "next_due": -1, "next_deadline": -1, "waiting": 0, "garbage": 0, "now": 0}
    return Promoted(**nothing | seen)


def claimed(*ids: str, left: int = 0, token: int = TOKEN, late: int = 0) -> Claimed:
    """An answer of `ready_to_unack` with these ids, due `late` milliseconds ago."""
    deliveries = [Delivery(id, token, b"1", 3, SERVER - late, 1, b"") for id in ids]
    return Claimed(SERVER, SERVER + 30_000, left, deliveries)


_NOTHING: dict[str, Any] = {
    "pending_to_ready": promoted(),
    "ready_to_unack": claimed(),
    "unack_to_retry": Expired(0, 0, -1),
    "collect_garbage": Collected(0, 0, 0),
}


class Play:
    """One flow, and what it has said last."""

    def __init__(self, *, batch: int = 1, burst: bool = False, drift: float = 0.0, **options: Any) -> None:
        self.now = LOCAL
        self.frozen = False
        self.stop_at: float | None = None
        self.step: Step | None = None
        self.flow = Consumption(
            Tools(Asking(), read_settings(options), lambda data: data),  # type: ignore[arg-type]
            holder="me",
            batch=batch,
            burst=burst,
        )
        self.drift = drift
        self._known: dict[str, Holding] = {}
        self._run = self.flow.run()
        self.step = next(self._run)

    # What it says

    @property
    def ended(self) -> bool:
        return self.step is None

    @property
    def asked(self) -> list[str]:
        """The names of the calls of its turn, in order."""
        return [ask.name for ask in self._turn.calls]

    def ask(self, name: str) -> Ask:
        """The only call of that name in its turn."""
        (ask,) = (ask for ask in self._turn.calls if ask.name == name)
        return ask  # type: ignore[no-any-return]

    @property
    def sleeps(self) -> float:
        """For how long it wants to sleep."""
        return round(self._wait.seconds, 6)

    @property
    def listens(self) -> bool:
        return self._wait.listen

    @property
    def held(self) -> list[str]:
        return [holding.delivery.id for holding in self.flow.held.holdings]

    def server(self, at: float) -> int:
        """The server's time (whole ms) of a local time; it stands still where the clock is frozen."""
        if self.frozen:
            return SERVER
        return SERVER + math.floor((at - LOCAL + self.drift) * 1000 + 1e-6)

    def holding(self, id: str) -> Holding:
        return self._known[id]

    def receipts(self, *ids: str) -> list[Receipt]:
        return [self.holding(id).receipt for id in ids]

    # What happens to it

    def tell(
        self,
        *,
        after: float = 0.0,
        answers: Sequence[Any] = (),
        done: Sequence[Completion] = (),
        recalled: Sequence[str] = (),
        signalled: bool = False,
    ) -> None:
        """Send it an event, `after` so many seconds."""
        self.now += after
        back = [self.holding(id) for id in recalled]
        event = Event(self.now, answers, done, back, signalled, self.stop_at)
        try:
            self.step = self._run.send(event)
        except StopIteration:
            self.step = None

    def wake(self, after: float | None = None, **event: Any) -> None:
        """End its sleep: when it is over, or `after` so many seconds."""
        wait = self._wait
        self.tell(after=wait.seconds if after is None else after, **event)

    def answer(self, *, after: float = 0.0, done: Sequence[Completion] = (), **answers: Any) -> list[str]:
        """Answer its turn, by name of call or as nothing special; returns the ids it has started."""
        self.now += after
        read = [self._answer(ask, answers.pop(ask.name, None)) for ask in self._turn.calls]
        assert not answers, f"not asked: {list(answers)}"
        self.tell(answers=read, done=done)
        started: list[str] = []
        if isinstance(self.step, Start):
            for holding in self.step.holdings:
                self._known[holding.delivery.id] = holding
                started.append(holding.delivery.id)
            self.tell()
        return started

    def begin(self, *ids: str) -> None:
        """Workers take these up, one each."""
        for id in ids:
            self.begin_batch(id)

    def begin_batch(self, *ids: str) -> Batch:
        """A worker takes these up together."""
        batch = Batch.begun(self.now)
        for id in ids:
            self.holding(id).batch = batch
        return batch

    def done(
        self,
        id: str | tuple[str, ...],
        verdict: Verdict = Verdict.ACK,
        text: str = "",
        delay: int | None = None,
        took: float | None = 0.0,
    ) -> Completion:
        """The callback of this one, or of these, has ended."""
        ids = (id,) if isinstance(id, str) else id
        return Completion([self.holding(one) for one in ids], verdict, text, delay, took)

    def stop(self, within: float) -> None:
        """From the next event on, a stop has been asked for."""
        self.stop_at = self.now + within

    def hold(self, *ids: str, **answers: Any) -> None:
        """Let a fresh flow make its first turn and claim these; it waits afterwards."""
        self.wake()
        assert self.answer(ready_to_unack=claimed(*ids), **answers) == list(ids)
        self.settle_down()

    def settle_down(self) -> None:
        """Answer as if nothing were there until it sleeps."""
        for _ in range(10):
            if isinstance(self.step, Turn):
                self.answer()
            elif isinstance(self.step, Wait) and self.step.seconds == 0:
                self.wake()
            else:
                return
        raise AssertionError("it does not come to rest")

    def _answer(self, ask: Ask, given: Any) -> Any:
        answer = _NOTHING.get(ask.name) or "1" * len(ask.what) if given is None else given
        return answer._replace(now=self.server(self.now)) if isinstance(answer, Promoted | Claimed) else answer

    @property
    def _turn(self) -> Turn:
        assert isinstance(self.step, Turn), f"it asks Redis nothing: {self.step}"
        return self.step

    @property
    def _wait(self) -> Wait:
        assert isinstance(self.step, Wait), f"it does not wait: {self.step}"
        return self.step

    @property
    def recalls(self) -> bool:
        return isinstance(self.step, Recall)

    @property
    def abandons(self) -> bool:
        return isinstance(self.step, Abandon)
