"""The keys of a work queue, as the protocol spells them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from delayq.errors import ConfigurationError, shown

_HASH_TAG = re.compile(r"[^{]*\{[^}]+\}")
_GLOB = re.compile(rb"[\\*?\[\]]")


@dataclass(frozen=True, slots=True)
class KeyPrefix:
    """A text that is put before names to make keys: `KeyPrefix("cv:").of("7")` is `"cv:7"`."""

    prefix: str

    def __post_init__(self) -> None:
        if not isinstance(self.prefix, str):
            raise ConfigurationError(f"a prefix must be a text, not {shown(self.prefix)}")
        try:
            self.prefix.encode()
        except UnicodeEncodeError as error:
            raise ConfigurationError(f"a prefix must be a text in UTF-8, not {shown(self.prefix)}") from error

    def of(self, name: str) -> str:
        """Return the prefix with a name after it."""
        return self.prefix + name

    @classmethod
    def concat(cls, prefix: KeyPrefix, name: str) -> KeyPrefix:
        """Return a prefix with a name after it as a new prefix."""
        return cls(prefix.of(name))


class Keys:
    """Every key of one work queue, as bytes: ids may be any."""

    def __init__(self, name: KeyPrefix) -> None:
        """Spell the keys of the queue of a prefix."""
        self.prefix = name.prefix
        self.queue = name.of(":queue").encode()
        """list: ids to be worked on, added at the left, leased from the right."""
        self.processing = name.of(":processing").encode()
        """list: ids that were leased and not completed."""
        self._item = name.of(":item:").encode()
        self._lease = name.of(":lease:").encode()
        self.tagged = bool(_HASH_TAG.match(name.prefix))
        """Whether the prefix has a hash tag, which keeps all of them on one node of a Cluster."""

    def item(self, id: bytes) -> bytes:
        """string: the data of an item, which is one if and only if this is there."""
        return self._item + id

    def lease(self, id: bytes) -> bytes:
        """string: the session that works on an item; it goes when the lease runs out."""
        return self._lease + id

    @property
    def any_item(self) -> bytes:
        """The pattern that the keys of all items match."""
        return _GLOB.sub(rb"\\\g<0>", self._item) + b"*"

    def id_of(self, item: bytes) -> bytes:
        """Return the id that the key of an item ends in."""
        return item[len(self._item) :]
