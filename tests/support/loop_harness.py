"""Plays Redis, the workers and the clock to a consumer's loop, which is thereby tested with none of the three.

harness = LoopHarness(concurrency=2)
harness.wake()                                          # its first wait is over: it asks Redis something
assert harness.asked == ["collect", "pending_to_ready", "ready_to_unack"]
assert harness.answer(ready_to_unack=claimed("a", "b")) == ["a", "b"]           # it has these started
harness.wake(after=0.5, done=[harness.done("a")])          # half a second later a callback has ended
assert harness.ask("ack").what == harness.receipts("a")
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from delayq.broker.context import QueueContext
from delayq.broker.engine import DELAY, EngineCapabilities, Feature
from delayq.broker.keys import Keys
from delayq.broker.replies import ClaimedMessage, ClaimReply, CollectReply, ExpireReply, PromoteReply, TurnReply
from delayq.broker.requests import Outgoing, OutgoingTable, Receipt, Release
from delayq.options import read_settings
from delayq.worker.delivery.disposition import Completion, Disposition
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.loop.consumer_loop import ConsumerLoop
from delayq.worker.loop.loop_steps import Cancel, RoundTrip, Run, Sleep, Step, StepResult, Withdraw

SERVER = 1_700_000_000_000
"""The server's clock in milliseconds while the local one is at `LOCAL`, unless a harness says otherwise."""
LOCAL = 100.0
TOKEN = 7


class Ask(NamedTuple):
    """One call of a turn, as the loop made it."""

    name: str
    what: Any
    options: dict[str, Any]


class Asking:
    """Stands for `Calls`: whatever is called, is written down; of a script that a capability calls, the arguments."""

    keys = Keys.of("delayq", "q")
    now = ""
    clock: Any = None

    def __init__(self, capabilities: EngineCapabilities = DELAY, *, reports: bool = False, plain: bool = True) -> None:
        offers = capabilities.offers if reports else capabilities.offers - {Feature.START_REPORTS}
        offers = offers if plain else offers - {Feature.DELAYS}
        self.capabilities = replace(capabilities, offers=offers)

    def script(self, name: str, args: Sequence[Any], parse: Any) -> Ask:
        return Ask(name, list(args), {})

    def __getattr__(self, name: str) -> Any:
        return lambda what=None, **options: Ask(name, _rows(what), options)


def _rows(what: Any) -> Any:
    return list(map(Outgoing, *what)) if isinstance(what, OutgoingTable) else what


def promoted(**seen: int) -> PromoteReply:
    """An answer of `pending_to_ready` that moved nothing, but for what is given; a harness sets `now` itself."""
    nothing = {"moved": 0, "next_due": -1, "next_deadline": -1, "waiting": 0, "garbage": 0, "now": 0}
    return PromoteReply(**nothing | seen)


def claimed(*ids: str, left: int = 0, token: int = TOKEN, late: int = 0) -> ClaimReply:
    """An answer of `ready_to_unack` with these ids, due `late` milliseconds ago."""
    deliveries = [ClaimedMessage(id, token, b"1", 3, SERVER - late, 1, b"") for id in ids]
    return ClaimReply(SERVER, SERVER + 30_000, left, deliveries)


_NOTHING: dict[str, Any] = {
    "pending_to_ready": promoted(),
    "is_empty": True,
    "ready_to_unack": claimed(),
    "pending_to_unack": claimed(),
    "unack_to_retry": ExpireReply(0, 0, -1),
    "collect": CollectReply(0, 0, 0),
}


class LoopHarness:
    """One loop, and what it has said last."""

    def __init__(
        self,
        *,
        batch: int = 1,
        burst: bool = False,
        drift: float = 0.0,
        reports: bool = False,
        promotes: bool = True,
        plain: bool = False,
        **options: Any,
    ) -> None:
        self.now = LOCAL
        self.frozen = False
        self.stop_at: float | None = None
        self.step: Step | None = None
        self.loop = ConsumerLoop(
            QueueContext(Asking(reports=reports, plain=plain), read_settings(options), lambda data: data, "q"),  # type: ignore[arg-type]
            "me",
            batch=batch,
            burst=burst,
            promotes=promotes,
        )
        self.drift = drift
        self._known: dict[str, InFlightDelivery] = {}
        self._run = self.loop.run()
        self.step = next(self._run)

    # What it says

    @property
    def ended(self) -> bool:
        return self.step is None

    @property
    def asked(self) -> list[str]:
        """The names of the calls of its turn, in order; none if it has no reason to ask."""
        return [ask.name for ask in self._asks] if isinstance(self.step, RoundTrip) else []

    def ask(self, name: str) -> Ask:
        """The only call of that name in its turn."""
        (ask,) = (ask for ask in self._asks if ask.name == name)
        return ask

    @property
    def sleeps(self) -> float:
        """For how long it wants to sleep."""
        return round(self._wait.seconds, 6)

    @property
    def listens(self) -> bool:
        return self._wait.listen

    @property
    def in_flight(self) -> list[str]:
        """The ids that are leased: those whose settlement Redis has not confirmed, then those not completed."""
        unconfirmed = chain.from_iterable(self.loop.settlements._queues.values())
        return [delivery.claimed.id for delivery in chain(unconfirmed, self.loop.in_flight.deliveries)]

    @property
    def capacity(self) -> int:
        """How many more messages it may claim."""
        return self.loop._capacity()

    def server(self, at: float) -> int:
        """The server's time (whole ms) of a local time; it stands still where the clock is frozen."""
        if self.frozen:
            return SERVER
        return SERVER + math.floor((at - LOCAL + self.drift) * 1000 + 1e-6)

    def micros(self, at: float) -> int:
        """The server's time (microseconds) of a local time."""
        return SERVER * 1000 + round((at - LOCAL + self.drift) * 1_000_000)

    def delivery(self, id: str) -> InFlightDelivery:
        return self._known[id]

    def receipts(self, *ids: str) -> list[Receipt]:
        return [self.delivery(id).receipt for id in ids]

    def releases(self, *ids: str) -> list[Release]:
        return [Release(*receipt, unstarted=True) for receipt in self.receipts(*ids)]

    # What happens to it

    def tell(
        self,
        *,
        after: float = 0.0,
        replies: Sequence[Any] = (),
        done: Sequence[Completion] = (),
        withdrawn: Sequence[str] = (),
        woken: bool = False,
    ) -> None:
        """Send it an result, `after` so many seconds."""
        self.now += after
        back = [self.delivery(id) for id in withdrawn]
        result = StepResult(self.now, replies, done, back, woken, self.stop_at)
        try:
            self.step = self._run.send(result)
        except StopIteration:
            self.step = None

    def wake(self, after: float | None = None, **result: Any) -> None:
        """End its sleep: when it is over, or `after` so many seconds."""
        wait = self._wait
        self.tell(after=wait.seconds if after is None else after, **result)

    def reply(self, *, after: float = 0.0, done: Sequence[Completion] = (), **replies: Any) -> list[str]:
        """Answer its turn, if it has asked anything, by name of call or as nothing special.

        Returns the ids it has started.
        """
        self.now += after
        asks = self._asks if isinstance(self.step, RoundTrip) else []
        read = [self._answer(ask, replies.pop(ask.name, None)) for ask in asks]
        assert not replies, f"not asked: {list(replies)}"
        if asks:
            self.tell(replies=read, done=done)
        started: list[str] = []
        if isinstance(self.step, Run):
            for delivery in self.step.deliveries:
                self._known[delivery.claimed.id] = delivery
                started.append(delivery.claimed.id)
            self.tell()
        return started

    def begin(self, *ids: str) -> None:
        """Workers take these up, one each."""
        for id in ids:
            self.begin_batch(id)

    def begin_batch(self, *ids: str) -> Batch:
        """A worker takes these up together."""
        batch = Batch(self.now, [True])
        for id in ids:
            self.delivery(id).batch = batch
        return batch

    def done(
        self,
        id: str | tuple[str, ...],
        disposition: Disposition = Disposition.ACK,
        text: str = "",
        delay: int | None = None,
        took: float | None = 0.0,
    ) -> Completion:
        """The callback of this one, or of these, has ended."""
        ids = (id,) if isinstance(id, str) else id
        return Completion([self.delivery(one) for one in ids], disposition, text, delay, took)

    def stop(self, within: float) -> None:
        """From the next result on, a stop has been asked for."""
        self.stop_at = self.now + within

    def hold(self, *ids: str, **replies: Any) -> None:
        """Let a fresh loop make its first turn and claim these; it waits afterwards."""
        self.wake()
        assert self.reply(ready_to_unack=claimed(*ids), **replies) == list(ids)
        self.settle_down()

    def settle_down(self) -> None:
        """Answer as if nothing were there until it sleeps."""
        for _ in range(10):
            if isinstance(self.step, RoundTrip):
                self.reply()
            elif isinstance(self.step, Sleep) and self.step.seconds == 0:
                self.wake()
            else:
                return
        raise AssertionError("it does not come to rest")

    def _answer(self, ask: Ask, given: Any) -> Any:
        if given is None and ask.name == "is_withdrawn":
            given = False
        if ask.name == "turn":
            return self._answer_turn(ask, given)
        if given is None and ask.name != "HSET":
            given = _NOTHING.get(ask.name) or "1" * len(ask.what)
        reply = given
        return reply._replace(now=self.server(self.now)) if isinstance(reply, PromoteReply | ClaimReply) else reply

    def _answer_turn(self, ask: Ask, given: TurnReply | ClaimReply | None) -> TurnReply:
        """Return a reply that settles what was asked and brings a claim, if no other is given."""
        if isinstance(given, TurnReply):
            return given
        reply = (given or claimed())._replace(now=self.server(self.now))
        return TurnReply("1" * len(ask.options["receipts"]), reply, self.micros(self.now))

    @property
    def _asks(self) -> list[Ask]:
        """Its turn; a plain command counts as a call of its name."""
        calls: Iterable[Any] = self._turn.calls
        return [call if isinstance(call, Ask) else Ask(call.args[0], list(call.args[1:]), {}) for call in calls]

    @property
    def _turn(self) -> RoundTrip:
        assert isinstance(self.step, RoundTrip), f"it asks Redis nothing: {self.step}"
        return self.step

    @property
    def _wait(self) -> Sleep:
        assert isinstance(self.step, Sleep), f"it does not wait: {self.step}"
        return self.step

    @property
    def recalls(self) -> bool:
        return isinstance(self.step, Withdraw)

    @property
    def abandons(self) -> bool:
        return isinstance(self.step, Cancel)
