"""The keys of a stream queue: the stream, which the user names, and its companion keys on the same node."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Self

from delayq.errors import ConfigurationError, short_repr

ENTRY = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
"""The syntax of an entry id."""
_STREAM = re.compile(r"[A-Za-z0-9._:@/+=#{}-]{1,200}")


def hash_tag(key: str) -> str:
    """Return the hash tag of a key, which selects its node in a cluster: the text in its first braces, else the key."""
    tagged = re.search(r"\{([^}]+)\}", key) if re.match(r"[^{]*\{[^}]", key) else None
    return tagged[1] if tagged else key


def check_stream(stream: str) -> str:
    """Return a valid key of a stream; raise `ConfigurationError` for any other."""
    if not isinstance(stream, str) or not _STREAM.fullmatch(stream):
        raise ConfigurationError(
            f"stream must be 1 to 200 of A-Z a-z 0-9 . _ : @ / + = # {{ }} -, not {short_repr(stream)}"
        )
    if hash_tag(stream) == stream and set(stream) & set("{}"):
        raise ConfigurationError(
            f"braces in the name of a stream must enclose a hash tag, as in tasks.{{eu}}, not {short_repr(stream)}"
        )
    return stream


@dataclass(frozen=True, slots=True)
class StreamKeys:
    """Every key of one stream queue. All names but that of the stream end in a dot and the name of the field."""

    stream: str
    """stream: one entry per message, with the fields id, payload, retries and so on."""
    ids: str
    """set: ids of messages that were sent with an explicit id and are not settled."""
    dead: str
    """stream: dead messages with their own fields and attempts, reason and error."""
    errors: str
    """hash: entry → last error; only for messages that have failed."""
    delays: str
    """hash: entry → time of its next delivery (ms), if longer than a lease away, and how many deliveries were free."""
    meta: str
    """hash: schema version, and where the search for expired leases continues, per group."""
    replies: str
    """hash: call slot → sequence, time and reply of its last call."""

    @classmethod
    def of(cls, stream: str) -> Self:
        """Return the keys of a stream; raise `ConfigurationError` for an invalid name."""
        tag = "{" + hash_tag(check_stream(stream)) + "}"
        if tag == stream:  # its companion keys would be those of the stream without braces
            text = "the name of a stream must be more than its hash tag: use a name such as tasks.{0}, not {0}"
            raise ConfigurationError(text.format(stream))
        base = stream if tag in stream else tag
        companions = {part.name: f"{base}.{part.name}" for part in fields(cls) if part.name != "stream"}
        return cls(stream=stream, **companions)
