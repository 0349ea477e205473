"""The rights of a role as Redis takes them: the rules of its file, for the keys of one queue or of all of a prefix.

`acl/<role>.acl` is of delay queues; those of other engines lie in folders named for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from importlib.resources import files

from delayq.errors import ConfigurationError, shown
from delayq.keys import check_name
from delayq.streams.keys import StreamKeys, check_stream
from delayq.workqueue.keys import KeyPrefix


class Role(StrEnum):
    """What a user of Redis is there for."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    INSPECTOR = "inspector"
    ADMIN = "admin"
    RELAY = "relay"
    """Moves messages of a delay queue into a stream: neither has a use for it alone."""


ROLES = (Role.PRODUCER, Role.CONSUMER, Role.INSPECTOR, Role.ADMIN)
"""Those that every engine has."""
_GLOB = re.compile(r"[\\*?\[\]]")


def rules(
    roles: Iterable[Role | str],
    *,
    engine: str = "delay",
    prefix: str = "delayq",
    queue: str | None = None,
    stream: str | None = None,
) -> list[str]:
    """Return the rules for roles together, keys before commands.

    They are for one queue, or for all delay queues under a prefix; the queue of another engine is the key of a stream,
    or the prefix of a work queue. `stream` is that of a relay. The rules take away every other right of a user, and
    leave its passwords.
    """
    roles = list(roles)
    for role in roles:
        if role not in set(Role):
            raise ConfigurationError(f"role must be one of {', '.join(Role)}, not {shown(role)}")
    if (Role.RELAY in roles) is not (stream is not None):
        raise ConfigurationError("the role relay needs a --stream, and no other has one")
    if engine == "delay":
        words = {"PREFIX": check_name(prefix, "prefix"), "QUEUE": "*" if queue is None else check_name(queue)}
        words |= {} if stream is None else {"STREAM": check_stream(stream)}
    else:
        words = _words(engine, roles, queue)
    found: dict[str, None] = {}
    for role in roles:
        found |= dict.fromkeys(_read(engine, Role(role)))
    keys = [_filled(rule, words) for rule in found if rule.startswith("~")]
    return ["resetkeys", *keys, "resetchannels", "-@all", *(rule for rule in found if rule.startswith("+"))]


def _words(engine: str, roles: list[Role | str], queue: str | None) -> dict[str, str]:
    """Return what is put into the rules of other engines, whose keys are all the user's to name."""
    if Role.RELAY in roles:
        raise ConfigurationError(f"the {engine} engine has no relay: it moves the messages of a delay queue")
    if queue is None:
        raise ConfigurationError(f"with --engine {engine} the rights are those for one queue: name it by --queue")
    if engine == "streams":
        keys = StreamKeys.of(queue)
        return {"STREAM": keys.stream, "BESIDE": keys.ids.removesuffix(".ids")}
    if engine != "workqueue":
        raise ConfigurationError(f"engine must be delay, streams or workqueue, not {shown(engine)}")
    prefix = KeyPrefix(queue).prefix
    if not prefix.isprintable() or re.search(r"[\s'\"]", prefix):
        raise ConfigurationError(
            f"a rule of Redis can hold no blanks and no quotes, as this prefix does: {shown(prefix)}"
        )
    return {"PREFIX": _GLOB.sub(r"\\\g<0>", prefix)}


def _filled(rule: str, words: Mapping[str, str]) -> str:
    return re.sub("|".join(words), lambda word: words[word[0]], rule)


def _read(engine: str, role: Role) -> list[str]:
    folder = files("delayq").joinpath("acl")
    text = (folder if engine == "delay" else folder.joinpath(engine)).joinpath(f"{role}.acl").read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]
