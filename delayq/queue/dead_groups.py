"""Groups of dead messages that have died of the same: one for each class and shape of their reasons and errors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from delayq.errors import ConfigurationError, short_repr
from delayq.queue.inspecting.message_info import MessageInfo

MAX_SHAPE = 200
"""Characters of a shape."""
MAX_READ = 1_000
"""Characters of a text that are read: what is deleted takes quadratic time to find at worst."""
_GROUP = re.compile(r"[0-9a-f]{8}")
_CLASS = re.compile(r"[A-Za-z_][\w.]*: ")
_HOST = r"(?:[a-z0-9][\w-]{0,62}\.){1,9}[a-z]{2,24}(?![\w.-]*\w)"
"""A name of labels, the last of letters: `api2.example.com`."""
_FILE = re.compile(
    r".*\.(?:bak|bin|csv|dat|docx?|gif|gz|html?|jpe?g|jsonl?|log|parquet|pdf|png|py|sql|tmp|txt|xlsx?|xml|ya?ml|zip)",
    re.IGNORECASE,
)
"""The name of a file has the form of a host, and varies."""
_VARYING = re.compile(
    rf"""(?P<after>\b(?:replied|(?:status|error)(?:[ _]code)?|HTTP(?:/[\d.]+)?)[ :=('"]{{1,3}}[1-5]\d\d)(?![\w.:-]*\w)
      | (?<!\w)(?P<before>[1-5]\d\d)(?=[ ](?:client|server)[ ]error\b|,[ ]message=)  # these are status codes
      | \b(?P<ended>(?:exit[ ]code|signal)[ ]\d{{1,3}})(?![\w.:-]*\w)
      | (?<!\w)(?P<quote>['"`])(?P<quoted>.*?)(?P=quote)(?!\w)   # a text in quotes; an apostrophe is none
      | [\w.%+-]+@[\w.-]+                             # an email address
      | (?<![\w.:-])(?P<host>{_HOST})(?P<port>:\d+)?
      | [\w.:-]*\d[\w.:-]*                            # a number, a time, an id: every word with a digit""",
    re.VERBOSE | re.IGNORECASE,
)
_QUOTED_HOST = re.compile(
    rf"(?:[a-z][a-z0-9+.-]{{0,20}}://)?(?:[^/@\s]*@)?(?P<host>{_HOST})(?::\d+)?(?:[/?]|\Z)", re.IGNORECASE
)
"""The host of a text in quotes that is a URL or a host."""


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Dead messages whose reasons and errors have the same shape. Its `repr` contains no payload."""

    group: str
    """Its name, 8 hexadecimal digits: the same for the same shape, in every queue."""
    reason: str
    """The shape of the reasons: a line with `#` in place of numbers, ids and addresses, and `'…'` of quoted texts.

    The names of hosts stay, and so do status codes, as in `replied 404`.
    """
    error: str
    """The shape of the last errors; '' if there were none."""
    count: int
    first: datetime
    """When the first of them died."""
    last: datetime
    """When the last of them died."""
    sample: str
    """The entry (`id:token`) of the one that died last."""


def check_group(group: str) -> str:
    """Return the valid name of a group; raise `ConfigurationError` for anything else."""
    if not isinstance(group, str) or not _GROUP.fullmatch(group):
        raise ConfigurationError(f"group must be 8 hexadecimal digits, as in DeadGroup.group, not {short_repr(group)}")
    return group


def shape_of(text: str) -> str:
    """Return what texts of one kind have in common: their first line, without numbers, ids, addresses and quoted texts.

    The class of an error stays as it is, and so do the names of hosts and status codes, which say whose error it is.
    """
    line = text.strip().partition("\n")[0][:MAX_READ]
    head = found[0] if (found := _CLASS.match(line)) else ""
    return (head + _VARYING.sub(_stand_in, line[len(head) :]))[:MAX_SHAPE]


def group_of(message: Any) -> str:
    """Return the name of the group of a dead message."""
    return _name_of(shape_of(message.reason), shape_of(message.error))


def group_name(reason: str, error: str) -> str:
    """Return the name of the group of messages with such shapes."""
    return _name_of(reason, error)


def grouped(messages: Iterable[MessageInfo]) -> list[DeadGroup]:
    """Return the groups of dead messages, given in the order of their deaths; the largest group first."""
    groups: dict[tuple[str, str], DeadGroup] = {}
    for message in messages:
        if message.died is None or message.entry is None:  # written by another program
            continue
        shapes = shape_of(message.reason), shape_of(message.error)
        before = groups.get(shapes)
        if before is None:
            before = DeadGroup(_name_of(*shapes), *shapes, 0, message.died, message.died, message.entry)
        groups[shapes] = replace(before, count=before.count + 1, last=message.died, sample=message.entry)
    return sorted(groups.values(), key=lambda one: (-one.count, one.group))


def _stand_in(found: re.Match[str]) -> str:
    if code := found["after"] or found["before"] or found["ended"]:
        return code
    if quote := found["quote"]:
        within = _QUOTED_HOST.match(found["quoted"])
        return f"{quote}{_kept_host(within['host']) if within else ''}…{quote}"
    if host := _kept_host(found["host"] or ""):
        return host + (":#" if found["port"] else "")
    return "#" if not found["host"] or any(map(str.isdigit, found[0])) else found[0]


def _kept_host(text: str) -> str:
    """Return a host as it is; '' for the name of a file."""
    return "" if _FILE.fullmatch(text) else text


def _name_of(reason: str, error: str) -> str:
    return hashlib.blake2b(f"{reason}\n{error}".encode(), digest_size=4).hexdigest()
