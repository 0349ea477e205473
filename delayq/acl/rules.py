"""The rights of a role as Redis takes them: the rules of its file, for a prefix and one queue or all."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from importlib.resources import files

from delayq.errors import ConfigurationError, shown
from delayq.keys import check_name


class Role(StrEnum):
    """What a user of Redis is there for; `<role>.acl` holds its rules."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    INSPECTOR = "inspector"
    ADMIN = "admin"


def rules(roles: Iterable[Role | str], *, prefix: str, queue: str | None = None) -> list[str]:
    """Return the rules for roles together, keys before commands: for one queue, or for all under a prefix.

    They take away every other right of a user and leave its passwords.
    """
    check_name(prefix, "prefix")
    name = "*" if queue is None else check_name(queue)
    found: dict[str, None] = {}
    for role in roles:
        if role not in set(Role):
            raise ConfigurationError(f"role must be one of {', '.join(Role)}, not {shown(role)}")
        found |= dict.fromkeys(_read(Role(role)))
    filled = {"PREFIX": prefix, "QUEUE": name}
    keys = [re.sub("PREFIX|QUEUE", lambda word: filled[word[0]], rule) for rule in found if rule.startswith("~")]
    return ["resetkeys", *keys, "resetchannels", "-@all", *(rule for rule in found if rule.startswith("+"))]


def _read(role: Role) -> list[str]:
    text = files("delayq").joinpath("acl", f"{role}.acl").read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]
