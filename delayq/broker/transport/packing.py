"""Packing of commands, as they go over the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hiredis import pack_command

_pack: Callable[[Any], bytes] = pack_command
_NUMBERS = frozenset((int, float))


def pack(words: Iterable[Any]) -> bytes:
    """Return a command as it goes over the wire.

    Numbers are made text here: hiredis 3.5 would crash the process if a signal handler raised, as Ctrl-C does, while
    it does so.
    """
    texts = tuple([str(word) if word.__class__ in _NUMBERS else word for word in words])
    try:
        return _pack(texts)
    except UnicodeEncodeError:  # an id of another program that is no UTF-8: its bytes are surrogates
        return _pack(tuple([one.encode("utf-8", "surrogateescape") if isinstance(one, str) else one for one in texts]))
