"""Hand-off buffer between a consumer loop and its runners, which are threads or tasks.

The driver puts claimed messages in and drains completions. A runner gets a batch, calls the callback with it and
completes it. Nothing here waits, and no lock is needed: threads share only single operations on a deque and a list.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from delayq.broker.context import EngineContext
from delayq.errors import UndecodableError
from delayq.values.breaker import Breaker
from delayq.values.times import monotonic
from delayq.worker.delivery.attempt_log import log_completions, log_success, tells_success
from delayq.worker.delivery.disposition import (
    Completion,
    Disposition,
    before_start,
    describe,
    disposition_of,
    dispositions_of,
    stop_reason_of,
    stored_text,
    undecodable,
)
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.delivery.results import keep_result
from delayq.worker.parts.breakers import Breakers, ClosedScopes, scope_closed
from delayq.worker.parts.part import LoopPart

if TYPE_CHECKING:
    from delayq.worker.loop.consumer_loop import ConsumerLoop

_ACK = Disposition.ACK
_completion: Callable[[tuple[Any, ...]], Completion] = partial(tuple.__new__, Completion)
"""Makes a completion in the fastest way, for the most frequent one: a callback that returned None."""


class Callback(NamedTuple):
    """A registered function: it takes a message, or with `max_batch` a list of at most that many."""

    function: Callable[[Any], Any]
    max_batch: int | None = None
    select: Callable[[Any], Callable[[Any], Any]] | None = None
    """Returns the function that `function` calls for a message, if there are several."""
    limited: bool = False
    """Whether one of these limits how long it may run."""
    breakers: Mapping[str | None, Breaker] = MappingProxyType({})
    """The breakers of names, and for None that of the queue."""
    parts: tuple[Callable[[], LoopPart], ...] = ()
    """What makes further parts of a consumer's loop."""

    @property
    def batch(self) -> int:
        """How many messages it takes at a time."""
        return self.max_batch or 1

    def wrapped(self, wrap: Callable[[Callable[[Any], Any]], Callable[[Any], Any]]) -> Callback:
        """Return a callback that calls what `wrap` makes of its function, or of the one that it selects."""
        if (select := self.select) is None:
            return self._replace(function=wrap(self.function))
        return self._replace(
            function=lambda message: wrap(select(message))(message), select=lambda message: wrap(select(message))
        )


class WorkBuffer:
    """Messages that the runners of one consumer are to process, and the completions of those processed."""

    def __init__(self, callback: Callback, kind: Callable[..., Any], context: EngineContext, executor: Any) -> None:
        """Start empty; the callback receives messages of class `kind`."""
        self._single = callback.max_batch is None
        self._batch = callback.batch
        self._kind = kind
        self._context = context
        self._executor = executor
        self._backlog: deque[InFlightDelivery] = deque()
        self._completions: list[Completion] = []
        self._scopes: Any = None
        self._closed: Mapping[str | None, float] = {}
        """The scopes that are closed now: a plain mapping, since each message looks whether it is empty."""
        self._count: Callable[[Sequence[Completion]], None] | None = None
        self._tells_success = tells_success()
        self.stop_reason: str | None = None
        """Why a callback has stopped the consumer; None if none has."""

    def connect(self, loop: ConsumerLoop) -> None:
        """Start nothing of a closed scope; tell breakers of outcomes at once, before others start."""
        if scopes := loop.parts.find(ClosedScopes):
            self._scopes, self._closed = scopes, scopes.closed
        if breakers := loop.parts.find(Breakers):
            self._count = breakers.count

    # For the driver

    def put(self, deliveries: Iterable[InFlightDelivery]) -> None:
        """Add deliveries to process, in this order."""
        self._backlog.extend(deliveries)

    def withdraw(self, withdrawn: list[InFlightDelivery]) -> None:
        """Move all deliveries that no runner has taken to the end of `withdrawn`."""
        try:
            while True:
                withdrawn.append(self._backlog.popleft())
        except IndexError:
            return

    def drain(self) -> list[Completion]:
        """Remove and return all completions."""
        taken = self._completions[:]
        del self._completions[: len(taken)]  # runners append meanwhile
        return taken

    @property
    def waiting(self) -> bool:
        """Whether a delivery waits for a runner, and the queue is not closed."""
        if not self._closed:
            return bool(self._backlog)
        try:
            return not self._scopes.closes_queue(self._backlog[0])
        except IndexError:
            return False

    @property
    def backlog(self) -> int:
        """How many deliveries wait for a runner."""
        return len(self._backlog)

    @property
    def finished(self) -> bool:
        """Whether a completion waits for the driver."""
        return bool(self._completions)

    # For a runner

    def get(self) -> tuple[Batch, list[InFlightDelivery], Any] | None:
        """Take the deliveries for one call of the callback; None if there are none.

        Returns the batch, its deliveries, and the argument of the callback: a message, a list of them, or None if no
        message is left. Deliveries that lost their lease are left out, and released if only its time is over, or if
        their scope is closed; undecodable ones have failed.
        """
        if self._single:
            return self._get_one()
        deliveries = self.take()
        return self.open(deliveries, Batch(monotonic(), [True], self._context.queue)) if deliveries else None

    def take(self) -> list[InFlightDelivery]:
        """Remove and return the deliveries for one call of the callback."""
        deliveries: list[InFlightDelivery] = []
        with suppress(IndexError):
            while len(deliveries) < self._batch and (not self._closed or self.waiting):
                deliveries.append(self._backlog.popleft())
        return deliveries

    def open(self, deliveries: list[InFlightDelivery], batch: Batch) -> tuple[Batch, list[InFlightDelivery], Any]:
        """Return what `get` does for deliveries that were taken, as this batch."""
        started = batch.started
        for delivery in deliveries:
            delivery.batch = batch
        messages = [one for one in (self._message(delivery, started) for delivery in deliveries) if one is not None]
        if len(messages) < len(deliveries):
            deliveries = [message.delivery for message in messages]
        if self._single:
            return batch, deliveries, messages[0] if messages else None
        return batch, deliveries, messages or None

    def _get_one(self) -> tuple[Batch, list[InFlightDelivery], Any] | None:
        if self._closed and not self.waiting:
            return None
        try:
            delivery = self._backlog.popleft()
        except IndexError:
            return None
        started = monotonic()
        delivery.batch = batch = Batch(started, [True], self._context.queue)
        message = self._message(delivery, started)
        return batch, [] if message is None else [delivery], message

    def _message(self, delivery: InFlightDelivery, started: float) -> Any:
        """Return the message of a delivery; None if its callback cannot start, and add its completion."""
        if delivery.lost or started > delivery.deadline:
            self._completions.append(
                Completion([delivery], Disposition.NOTHING if delivery.lost else Disposition.RELEASE)
            )
            return None
        if self._closed and self._scopes.closes(delivery):
            self._completions.append(Completion([delivery], Disposition.RELEASE))
            return None
        if delivery.claimed.attributes and (instead := before_start(delivery, started, self._context)):
            self._completions.append(instead)
            return None
        raised: BaseException
        try:
            return self._kind(delivery, self._context, self._executor, started)
        except UndecodableError as error:
            failed, raised = undecodable(delivery, error, policy := self._context.settings.policy), error
        except BaseException as error:  # noqa: BLE001 - whatever a codec raises costs one retry only
            policy = self._context.settings.policy
            failed, raised = Completion([delivery], Disposition.NACK, stored_text(error, policy)), error
        self._completions += log_completions([failed], raised, policy, self._context.queue, when=" to be decoded")
        return None

    def complete(
        self, batch: Batch, deliveries: list[InFlightDelivery], result: object, error: BaseException | None
    ) -> float:
        """Add the completion of a batch by what its callback returned or raised; returns the local time."""
        now = monotonic()
        took = now - batch.started
        if error is None and result is None:
            completion = _completion((deliveries, _ACK, "", None, took))
            if self._count is not None:
                self._count((completion,))
            if self._tells_success:
                log_success(deliveries, took)
            self._completions.append(completion)
            return now
        policy = deliveries[0].policy or self._context.settings.policy
        raised: BaseException | list[Any] | None = error
        when = ""
        try:
            if self.stop_reason is None:  # before the completion is there: the loop must not claim the message again
                self.stop_reason = stop_reason_of(result, error)
            if self._single:
                completions = [Completion(deliveries, *disposition_of(deliveries, result, error, policy), took)]
            else:
                completions = dispositions_of(deliveries, result, error, took, policy)
                if error is None and isinstance(result, list) and len(completions) == len(result):
                    raised = result
        except BaseException as failure:  # noqa: BLE001 - a user's outcome may raise anything
            raised, when = failure, " when its result was read"
            completions = [Completion(deliveries, Disposition.NACK, stored_text(failure, policy), None, took)]
        if self._tells_success or any(one.disposition is not _ACK for one in completions):
            completions = log_completions(completions, raised, policy, self._context.queue, when=when)
        if error is None and any(delivery.attributes.retention for delivery in deliveries):
            self._keep_results(completions, result)
        self._hold_back(completions)
        self._completions.extend(completions)
        return now

    def fail(self, _: Batch, deliveries: list[InFlightDelivery], error: BaseException) -> None:
        """Add a failure as the completion of a batch that could not be completed."""
        self._completions.append(Completion(deliveries, Disposition.NACK, describe(error)))

    def _hold_back(self, completions: list[Completion]) -> None:
        """Start nothing more of what a callback closes, or whose breaker trips; before the loop learns of it."""
        if self._count is not None:
            self._count(completions)
        if self._scopes is None:
            return
        for deliveries, disposition, scope, _, _ in completions:
            if disposition is Disposition.SNOOZE and scope:
                for name in {scope_closed(one, scope) for one in deliveries if not one.settled} - {""}:
                    self._scopes.close(name)

    def _keep_results(self, completions: list[Completion], result: Any) -> None:
        """Encode what a callback returned, here and not in the consumer's loop, if it is to be kept."""
        results = [result] if self._single else result if type(result) is list else []
        deliveries = [(delivery, done.disposition) for done in completions for delivery in done.deliveries]
        for (delivery, disposition), value in zip(deliveries, results, strict=False):
            if disposition is _ACK and delivery.result is None:
                keep_result(delivery, value, self._context)
