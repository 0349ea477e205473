"""The calls of a delay queue about messages that stay leased: holders renew leases and report, others ask them."""

from __future__ import annotations

from collections.abc import Iterable

from delayq.broker.capabilities.script_calls import ScriptCalls
from delayq.broker.replies import replies
from delayq.broker.replies.foreign import stored_id
from delayq.broker.replies.replies import statuses
from delayq.broker.requests import Receipt, RedisCommand, ScriptCall, flat


class LeaseCalls(ScriptCalls):
    """One function per script, as `Calls`."""

    __slots__ = ()

    def extend(self, receipts: Iterable[Receipt], *, lease: int, started: bool = False) -> ScriptCall[str]:
        """Renew leases (ms from now), or note that callbacks have `started`.

        A status each: 1 done, 2 done and asked to stop, 0 not leased.
        """
        return self._call("extend", [self._now, lease, int(started), *flat(receipts)], statuses)

    def start(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        """Note that callbacks have started; a status each: 1 noted, 2 asked to stop, 0 not leased."""
        return self.extend(receipts, lease=0, started=True)

    def withdraw(self, ids: Iterable[str]) -> ScriptCall[str]:
        """Ask consumers to return what they have not started; a status each: 1 asked, 2 not leased, 0 started."""
        return self._call("withdraw", [self._now, *map(stored_id, ids)], statuses)

    def is_withdrawn(self, ids: Iterable[str]) -> RedisCommand[bool]:
        """Read whether a consumer was asked to return any of its messages."""
        return RedisCommand(("HMGET", self.keys.deliveries, *ids), replies.any_withdrawn)

    def is_stopping(self, ids: Iterable[str]) -> RedisCommand[list[int]]:
        """Read which messages are asked to stop: the tokens of their leases, 0 for the others."""
        return RedisCommand(("HMGET", self.keys.deliveries, *ids), replies.stopping_tokens)
