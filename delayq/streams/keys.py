"""The keys of a stream queue: the stream, which is the user's to name, and what stands beside it on the same node."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Self

from delayq.errors import ConfigurationError, shown

ENTRY = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
"""What an entry of a stream is called."""
_STREAM = re.compile(r"[A-Za-z0-9._:@/+=#{}-]{1,200}")


def hash_tag(key: str) -> str:
    """Return the part of a key that a cluster places it by: what is in its first braces, else the whole key."""
    tagged = re.search(r"\{([^}]+)\}", key) if re.match(r"[^{]*\{[^}]", key) else None
    return tagged[1] if tagged else key


def check_stream(stream: str) -> str:
    """Return a valid key of a stream; raise `ConfigurationError` for any other."""
    if not isinstance(stream, str) or not _STREAM.fullmatch(stream):
        raise ConfigurationError(f"stream must be 1 to 200 of A-Z a-z 0-9 . _ : @ / + = # {{ }} -, not {shown(stream)}")
    if hash_tag(stream) == stream and set(stream) & set("{}"):
        raise ConfigurationError(
            f"braces in the name of a stream must hold its hash tag, as tasks.{{eu}} has: {stream}"
        )
    return stream


@dataclass(frozen=True, slots=True)
class StreamKeys:
    """Every key of one stream queue. The names of all but the stream end in a dot and what they hold."""

    stream: str
    """stream: messages, an entry each with the fields id, payload, retries and so on."""
    ids: str
    """set: ids of living messages that were sent under an id of the sender's."""
    dead: str
    """stream: dead messages with their fields, and attempts, reason and error."""
    errors: str
    """hash: entry → last error; only of messages that have failed."""
    delays: str
    """hash: entry → when it is to be delivered again (ms); only where that is further away than a lease."""
    meta: str
    """hash: schema version, and where the recovery of each group goes on."""
    replies: str
    """hash: call slot → sequence, time and answer of its last call."""

    @classmethod
    def of(cls, stream: str) -> Self:
        """Return the keys that go with a stream, which is validated."""
        tag = "{" + hash_tag(check_stream(stream)) + "}"
        if tag == stream:  # which is what stands beside the stream without the braces
            text = "the name of a stream must be more than its hash tag, as that of tasks.{0} is: {0}"
            raise ConfigurationError(text.format(stream))
        base = stream if tag in stream else tag
        beside = {part.name: f"{base}.{part.name}" for part in fields(cls) if part.name != "stream"}
        return cls(stream=stream, **beside)
