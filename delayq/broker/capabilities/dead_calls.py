"""The calls of a delay queue about its dead letter: how messages get there, and how they leave it."""

from __future__ import annotations

from collections.abc import Iterable

from delayq.broker.capabilities.script_calls import ScriptCalls
from delayq.broker.replies import replies
from delayq.broker.replies.foreign import stored_id
from delayq.broker.replies.replies import integers, statuses
from delayq.broker.requests import ImportedDeath, ScriptCall, flat
from delayq.broker.scripts import COLLECT_LIMIT, SLOT_TTL
from delayq.options import Settings


class DeadCalls(ScriptCalls):
    """One function per script, as `Calls`."""

    __slots__ = ()

    def kill(self, ids: Iterable[str]) -> ScriptCall[str]:
        """Move waiting messages to the dead letter: the first ones, if their payloads are large.

        A status each: 1 killed, 2 running, 3 dead, 0 gone.
        """
        return self._call("kill", [self._now, *map(stored_id, ids)], statuses)

    def collect(self, settings: Settings, *, ids: Iterable[str] = ()) -> ScriptCall[replies.CollectReply]:
        """Collect garbage (`ids`, or any). The limits of `settings` count unless the queue has its own."""
        dead_max, dead_ttl = settings.dead_max, settings.dead_ttl
        return self.collect_garbage(COLLECT_LIMIT, dead_max=dead_max, dead_ttl=dead_ttl, slot_ttl=SLOT_TTL, ids=ids)

    def collect_garbage(
        self, limit: int, *, dead_max: int, dead_ttl: int, slot_ttl: int, ids: Iterable[str] = ()
    ) -> ScriptCall[replies.CollectReply]:
        """Move spent messages (`ids`, or any) to the dead letter, trim it, delete unused slots (TTLs in ms)."""
        args = [self._now, limit, dead_max, dead_ttl, slot_ttl, *ids]
        return self._call("collect_garbage", args, lambda reply: replies.CollectReply(*integers(reply)))

    def redrive(
        self,
        entries: Iterable[str],
        *,
        retries: int | None,
        first: float = 0,
        interval: float = 0,
        payloads: Iterable[bytes] | None = None,
    ) -> ScriptCall[str]:
        """Send dead messages again; a status each: 1 redriven, 2 a message with this id exists, 0 gone.

        The first is due after `first` ms, each other `interval` ms after the one before it. With `payloads`, each gets
        the one in its place.
        """
        how = (self._now, "" if retries is None else retries, f"{first:.3f}", f"{interval:.3f}")
        entries = list(map(stored_id, entries))
        rows = entries if payloads is None else flat(zip(entries, payloads, strict=True))
        return self._call("redrive", [*how, int(payloads is not None), *rows], statuses)

    def dead_purge(self, entries: Iterable[str]) -> ScriptCall[str]:
        """Delete entries of the dead letter; a status each: 1 deleted, 0 gone."""
        return self._call("dead_purge", [self._now, *map(stored_id, entries)], statuses)

    def dead_import(self, messages: Iterable[ImportedDeath], *, run: str = "") -> ScriptCall[str]:
        """Put messages that died elsewhere into the dead letter; a status each: 1 new, 0 exists, 5 settled since.

        The statuses are added up in the run ledger under the name of a `run`.
        """
        return self._call("dead_import", [self._now, run, *flat(messages)], statuses)
