"""The keys of a work queue, as the protocol spells them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from delayq.errors import ConfigurationError, short_repr

_HASH_TAG = re.compile(r"[^{]*\{[^}]+\}")
_GLOB = re.compile(rb"[\\*?\[\]]")


@dataclass(frozen=True, slots=True)
class KeyPrefix:
    """A text that is put before names to make keys: `KeyPrefix("cv:").of("7")` is `"cv:7"`."""

    prefix: str

    def __post_init__(self) -> None:
        if not isinstance(self.prefix, str):
            raise ConfigurationError(f"prefix must be a str, not {short_repr(self.prefix)}")
        try:
            self.prefix.encode()
        except UnicodeEncodeError as error:
            raise ConfigurationError(f"prefix must be valid UTF-8 text, not {short_repr(self.prefix)}") from error

    def of(self, name: str) -> str:
        """Return the prefix with a name after it."""
        return self.prefix + name

    @classmethod
    def concat(cls, prefix: KeyPrefix, name: str) -> KeyPrefix:
        """Return a prefix with a name after it as a new prefix."""
        return cls(prefix.of(name))


class WorkQueueKeys:
    """Every key of one work queue, as bytes, since ids may be any bytes."""

    def __init__(self, name: KeyPrefix) -> None:
        self.prefix = name.prefix
        self.queue = name.of(":queue").encode()
        """list: ids that wait, added at the left, leased from the right."""
        self.processing = name.of(":processing").encode()
        """list: ids that were leased and are not completed."""
        self._item = name.of(":item:").encode()
        self._lease = name.of(":lease:").encode()
        self.tagged = bool(_HASH_TAG.match(name.prefix))
        """Whether the prefix has a hash tag, which keeps all keys on one node of a Cluster."""

    def item(self, id: bytes) -> bytes:
        """string: the data of an item. The item exists if and only if this key does."""
        return self._item + id

    def lease(self, id: bytes) -> bytes:
        """string: the session that works on an item; it expires with the lease."""
        return self._lease + id

    @property
    def any_item(self) -> bytes:
        """The pattern that the keys of all items match."""
        return _GLOB.sub(rb"\\\g<0>", self._item) + b"*"

    def id_of(self, item: bytes) -> bytes:
        """Return the id in the key of an item."""
        return item[len(self._item) :]

    def check_for_cluster(self) -> None:
        """Raise `ConfigurationError` if a Redis Cluster would spread the keys over several nodes."""
        if not self.tagged:
            raise ConfigurationError(
                f"on a Redis Cluster the prefix of a work queue needs a hash tag, such as {{jobs}}: {self.prefix!r}"
            )
