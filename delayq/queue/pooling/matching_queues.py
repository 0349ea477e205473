"""The queues whose names match a pattern: a worker finds them in the registry, again and again while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from delayq.broker.batches import batched
from delayq.broker.engine import Feature
from delayq.broker.keys import check_pattern
from delayq.broker.transport.operation import Wait
from delayq.errors import DelayqError
from delayq.queue.base import parts_of
from delayq.queue.control.registered import is_in_use, queue_names, register
from delayq.queue.pooling.opening_many import OPENED_TOGETHER, AnyBase, opening_of_many, read_opened
from delayq.safe_log import SafeLog
from delayq.values.text import pluralize
from delayq.worker.pool.pool import PoolQueue
from delayq.worker.pool.pool_chores import ChoreSteps, attempt
from delayq.worker.pool.pool_loop import PoolLoop

log = SafeLog("delayq.worker")

REREAD_EVERY = 10.0
"""Seconds between two readings of the registry."""


class MatchingQueues:
    """The chore of a worker that serves the queues of a pattern: adds those it finds, and drops those that are gone."""

    def __init__(self, pattern: str, like: AnyBase, make: Callable[[AnyBase], PoolQueue]) -> None:
        """Serve each queue like the queue `like`; `make` returns what the pool needs of one."""
        like.context.calls.capabilities.require(Feature.REGISTRY)
        self.pattern = check_pattern(pattern)
        self._like = like
        self._make = make
        self._served: dict[str, PoolQueue] = {}
        self._refused: dict[str, str] = {}
        """Queues that could not be opened, and why."""

    def run(self, loop: PoolLoop, *, burst: bool) -> ChoreSteps[None]:
        """Read the registry now and every 10 s; in a burst only now."""
        waits = False
        while True:
            found = yield from self._read_names()
            if found is not None:
                names = {*found}
                gone, _ = yield from self._sorted_out(sorted(self._served.keys() - names), put_back=True)
                loop.remove([self._served.pop(name) for name in gone])
                _log("not serving %s any more: %s", gone)
                _, new = yield from self._sorted_out(sorted(names - self._served.keys()))
                for some in batched(new, OPENED_TOGETHER):
                    yield from self._add(some, loop)
                _log("serving %s: %s", [name for name in new if name in self._served])
                if not self._served and not waits:
                    log.info("no queue matches %s: %s", self.pattern, "nothing to do" if burst else "waiting for one")
                waits = not self._served
            if burst:
                return
            yield Wait(REREAD_EVERY)

    def _read_names(self) -> ChoreSteps[list[str] | None]:
        """Return the names in the registry that match; None if Redis refuses to tell."""
        names = yield from attempt(queue_names(self._like.prefix, self.pattern))
        if isinstance(names, DelayqError):
            self._log_refusal("", f"cannot read which queues match {self.pattern}: {names}")
            return None
        self._refused.pop("", None)
        return names

    def _sorted_out(self, names: Sequence[str], *, put_back: bool = False) -> ChoreSteps[tuple[list[str], list[str]]]:
        """Return which of these are not in use, by their own keys, and which are; `put_back` registers the latter.

        A user who may write the registry can neither have a queue dropped, nor one opened that nobody has made.
        """
        unused: list[str] = []
        used: list[str] = []
        for some in batched(names, OPENED_TOGETHER):
            replies, _ = yield [is_in_use(self._like.prefix, name) for name in some]
            for name, reply in zip(some, replies, strict=True):
                (unused if reply is False else used).append(name)
        if used and put_back:
            log.warning("%s missing in the registry, but in use: added again", ", ".join(used[:5]))
            yield [register(self._like.prefix, *used)]
        return unused, used

    def _add(self, names: Sequence[str], loop: PoolLoop) -> ChoreSteps[None]:
        queues: list[AnyBase] = [parts_of(self._like).named(name) for name in names]
        replies, _ = yield opening_of_many(queues)
        opened: list[PoolQueue] = []
        for queue, refused in zip(queues, read_opened(queues, replies), strict=True):
            error: Any = refused
            if error is None and queue.handlers.declares:
                error = yield from attempt(parts_of(queue).put_declared())
            if isinstance(error, DelayqError):
                self._log_refusal(queue.name, f"cannot serve {queue.name}: {error}")
                continue
            self._refused.pop(queue.name, None)
            self._served[queue.name] = self._make(queue)
            opened.append(self._served[queue.name])
        loop.add_new(opened)

    def _log_refusal(self, name: str, text: str) -> None:
        if self._refused.get(name) != text:
            self._refused[name] = text
            log.error("%s; trying again every %g s", text, REREAD_EVERY)


def _log(text: str, names: Sequence[str]) -> None:
    if names:
        shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")  # noqa: PLR2004
        log.info(text, pluralize(len(names), "queue"), shown)
