"""The calls that tell how a queue is: all that a probe needs, so that it starts quickly."""

from __future__ import annotations

from delayq.broker.capabilities.script_calls import ScriptCalls
from delayq.broker.replies.replies import CountsReply, read_counts
from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.privacy.redaction import read_paths


class CountCalls(ScriptCalls):
    """One function per script, as `Calls`."""

    __slots__ = ()

    def counts(self) -> ScriptCall[CountsReply]:
        """Count the messages in each state."""
        return self._call("counts", [self._now], read_counts)

    def redact_paths(self) -> RedisCommand[list[str]]:
        """Read which values of payloads are hidden from inspectors."""
        return RedisCommand(("HGET", self.keys.meta, "redact"), read_paths)
