"""How much large replies may carry: less, while a server closes the connections that wait for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delayq.broker.requests import ScriptCall
from delayq.broker.scripts import BUDGETS, whole
from delayq.broker.transport.failures import is_cut
from delayq.safe_log import SafeLog
from delayq.values.times import monotonic

if TYPE_CHECKING:
    from delayq.broker.transport.protocol import PendingRequest

log = SafeLog("delayq.executor")

RAISE_AFTER = 60.0
"""Seconds without such an end of a connection, after which more is asked for again."""


class ReplyBudget:
    """What the calls to one server ask for at a time."""

    def __init__(self) -> None:
        """Start with all that the scripts read by themselves."""
        self.reduced = 0
        """How many of `BUDGETS` were too large, and one more; 0 for none."""
        self._raise_at = 0.0

    def fit(self, request: ScriptCall[Any]) -> ScriptCall[Any]:
        """Return the request with the budget of now; of use while it is reduced."""
        now = monotonic()
        if now >= self._raise_at:
            self.reduced, self._raise_at = self.reduced - 1, now + RAISE_AFTER
        return _reading(request, BUDGETS[self.reduced - 1]) if self.reduced else request

    def reduce(self, error: Exception, waiting: Iterable[PendingRequest]) -> None:
        """Have those that wait for a large reply ask for less, if the error is that the server closes the connection.

        The first end is not counted, as servers restart. In the end a claim is made again for the sizes of large
        payloads in their place.
        """
        large = [one for one in waiting if isinstance(one.request, ScriptCall) and one.request.script.has_budget]
        if not large or not is_cut(error):
            return
        seen = self.reduced or any(one.cut for one in large)
        for one in large:
            one.cut = True
        if not seen:
            return
        self._raise_at = monotonic() + RAISE_AFTER
        budget = BUDGETS[self.reduced]
        if budget:  # the last is for these calls alone: the next claim asks for payloads again
            self.reduced += 1
        for one in large:
            one.repack(lambda call: _reading(call, budget))
        if all(one.least for one in large):
            return  # it is said already
        for one in large:
            one.least = not budget
        text = "Redis closed the connection while %s waited for a reply: asking for %s; is %s too small?"
        what = f"{budget:,} bytes of payloads at a time" if budget else "no large payload"
        log.warning(text, ", ".join(sorted({one.name for one in large})), what, "client-output-buffer-limit")


def _reading(request: ScriptCall[Any], budget: int) -> ScriptCall[Any]:
    script = request.script.reading(budget)  # another one, unless it has no budget
    if script is request.script:
        return request
    parse = request.parse
    return replace(request, script=script, parse=lambda reply: parse(whole(reply)))
