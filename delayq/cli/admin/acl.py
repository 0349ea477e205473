"""The rights in Redis of each role, derived from the scripts and plain commands that it uses.

Rights for a script are the commands in its text and the keys in its header. `delayq acl` prints them; `delayq preload`
loads the scripts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import click

from delayq.broker.keys import Keys, check_name, registry
from delayq.broker.scripts import keys_and_commands, names
from delayq.broker.shared_calls import preload as load_scripts
from delayq.broker.transport.operation import together
from delayq.cli.support.engines import ENGINES
from delayq.cli.support.options import QUEUE, engine_option
from delayq.cli.support.output import print_line, print_note
from delayq.cli.support.session import Session
from delayq.errors import ConfigurationError, short_repr
from delayq.streams.keys import StreamKeys, check_stream
from delayq.values.text import pluralize
from delayq.workqueue.keys import KeyPrefix


class Role(StrEnum):
    """What a user of Redis is there for."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    INSPECTOR = "inspector"
    ADMIN = "admin"
    RELAY = "relay"
    """Moves messages of a delay queue into a stream; no use for either alone."""
    NOTIFIER = "notifier"
    """Tells people what goes wrong in a delay queue."""


ROLES = (Role.PRODUCER, Role.CONSUMER, Role.INSPECTOR, Role.ADMIN)
"""The roles of every engine."""
CONNECTING = ("ping", "select", "client|setname", "command", "cluster|slots", "asking", "evalsha")
"""Commands that every role needs."""
OPENING = ("info", "time")
"""Commands that every role of an engine with a start-up check needs."""


class Grant(NamedTuple):
    """What a role uses."""

    scripts: Iterable[str]
    commands: Iterable[str] = ()
    """Commands sent outside of scripts."""
    parts: Iterable[str] = ()
    """Keys used outside of scripts."""
    registry: Iterable[str] = ()
    """Commands on the registry of queues, which all queues of a prefix share."""

    def all_commands(self) -> list[str]:
        """Return every command that the role needs."""
        return sorted(self._used(1).union(self.commands, CONNECTING))

    def all_parts(self) -> list[str]:
        """Return every part of the queue's keys that the role needs; `*` stands for all of them."""
        used = self._used(0).union(self.parts)
        return ["*"] if "*" in used else sorted(used)

    def _used(self, index: int) -> set[str]:
        return {word for name in self.scripts for word in keys_and_commands(name)[index]}


def _of(engine: str, scripts: str) -> list[str]:
    return [f"{engine}/{name}" for name in scripts.split()]


_SCHEDULES = ["schedule_put", "schedule_remove", "schedules_page", "schedules_find"]
_FORECAST = ["forecast", "sample_names"]
_READ_STREAM = _of("streams", "counts find get page")
_READ_ITEMS = ("get", "llen", "lrange")

GRANTS: Mapping[str, Mapping[Role, Grant]] = {
    "delay": {
        # Without the lists and the dead letter a producer neither claims nor purges. It cannot reuse an id without
        # retries left until a consumer has moved that message to the dead letter. It waits for results. While the
        # number of partitions changes, it moves what it acts on.
        Role.PRODUCER: Grant(
            [
                *("send", "send_one", "debounce", "collect", "cancel", "reschedule", "withdraw"),
                *("begin_run", "end_run", "keep_plan", "outcomes", "await_ends"),
                *("move_out", "move_in", "schedules_out", "schedules_in", "moved", "repartition"),
                *_SCHEDULES,
            ],
            (*OPENING, "hsetnx", "wait", "xread"),
            ("ends",),
            ("sadd",),
        ),
        # Without the run ledger a consumer does not send, and without HEXISTS it neither cancels nor redrives. A
        # callback that sends or waits for results also needs the rights of a producer. With SSCAN it sees the names of
        # all queues. Spark, as a consumer, looks with HGETALL for readers that are gone.
        Role.CONSUMER: Grant(
            [
                *("pending_to_ready", "ready_to_unack", "pending_to_unack", "turn", "unack_to_retry"),
                *("stage", "commit_staged"),
                *("collect_garbage", "wake"),
                *("ack", "complete", "nack", "extend", "release", "reject", "withdraw", "report", "ack_some", "join"),
                *("close", "declare"),
                *("counts", "get", "page", "limits_page", *_FORECAST),
                *("presence", "keep_presence", "workers_page", "history"),
                *("fire", "schedules_due", *_SCHEDULES),
            ],
            (*OPENING, "hsetnx", "exists", "blpop", "hgetall"),
            registry=("sadd", "sscan"),
        ),
        # Reads payloads and headers, too. None of its commands can write.
        Role.INSPECTOR: Grant(
            [
                *("counts", "get", "page", "limits_page", "workers_page", "history", "snapshot", "outcomes"),
                *_FORECAST,
                *("schedules_page", "schedules_find"),
            ],
            (*OPENING, "exists", "hgetall", "memory|usage", "xinfo|stream", "xrange", "xrevrange", "xread"),
            ("events", "runs", "refusals", "archives", "plans"),
            ("sscan",),
        ),
        # A user who may load scripts may run any script within these keys and commands.
        Role.ADMIN: Grant(
            names(),
            (
                *(*OPENING, "hsetnx", "wait", "blpop", "exists", "hgetall", "memory|usage", "script|load"),
                *("xinfo|stream", "xrange", "xrevrange", "xread", "xtrim"),
            ),
            ("*",),
            ("sadd", "sscan", "srem"),
        ),
        # Also does for the queue what a consumer would: fills the dead letter and fires schedules. Does not read the
        # stream. Without LPUSH, which it does not need itself, its user could release a message by half.
        Role.RELAY: Grant(
            [
                *("streams/relay", "unack_to_retry", "collect_garbage", "fire", "schedules_due", "wake"),
                *("presence", "keep_presence"),
            ],
            (*OPENING, "hsetnx", "blpop", "lpush"),
            registry=("sadd",),
        ),
        # Counts, and reads the event log, which has no payloads; writes what it has told.
        Role.NOTIFIER: Grant(
            ["counts"],
            (*OPENING, "exists", "hget", "hset", "xrange", "xrevrange"),
            ("events", "notifiers"),
        ),
    },
    "streams": {
        # Without the dead letter and the errors a producer neither claims nor settles nor inspects.
        Role.PRODUCER: Grant(["streams/send"], (*OPENING, "hsetnx", "hget", "xlen", "hincrby", "wait")),
        # Without SISMEMBER a consumer neither sends nor redrives nor purges.
        Role.CONSUMER: Grant(
            [*_READ_STREAM, *_of("streams", "claim ack nack reject release extend look prune")],
            (*OPENING, "hsetnx", "hget", "xlen", "xreadgroup", "exists", "xinfo|groups", "xrange"),
        ),
        Role.INSPECTOR: Grant(_READ_STREAM, (*OPENING, "exists", "xinfo|groups", "xrange")),
        Role.ADMIN: Grant(
            [name for name in names("streams") if name != "streams/relay"],
            (
                *(*OPENING, "hsetnx", "hget", "xlen", "hincrby", "wait", "xreadgroup", "exists", "xinfo|groups"),
                *("xrange", "xrevrange", "script|load"),
            ),
        ),
    },
    "workqueue": {
        # Without the other keys a producer neither leases nor completes.
        Role.PRODUCER: Grant(["workqueue/add"]),
        # A consumer also cleans: SCAN shows the names of all keys of the database. Putting items back lets it add some.
        Role.CONSUMER: Grant(
            _of("workqueue", "claim complete lease_suspects restore counts view"),
            ("blmove", "mget", "scan", *_READ_ITEMS),
        ),
        Role.INSPECTOR: Grant(_of("workqueue", "counts view"), _READ_ITEMS),
        # Adding in pipelines needs EVAL: a user who has it may run any script within these keys and commands.
        Role.ADMIN: Grant(names("workqueue"), ("blmove", "mget", "scan", "eval", "script|load", *_READ_ITEMS)),
    },
}


_GLOB = re.compile(r"[\\*?\[\]]")
_NARROWED = {"+srem": ("garbage",), "+pexpire": ("done", "completed", "results")}
"""Commands that would take names off the registry, and the only keys that scripts use them on."""


def rules(
    roles: Iterable[Role | str],
    *,
    engine: str = "delay",
    prefix: str = "delayq",
    queue: str | None = None,
    stream: str | None = None,
    selectors: bool = True,
) -> list[str]:
    """Return the rules for several roles together, keys before commands.

    They cover one queue, or all delay queues under a prefix. For another engine, `queue` is the key of a stream or the
    prefix of a work queue. `stream` is that of a relay. The rules remove all other rights of the user, but no password.

    What a role may do with the registry of queues is a selector of its own, which Redis has from 7.0 on. Without
    `selectors`, a user of one queue cannot take names off it either, but has its other commands on it.
    """
    chosen = [_role(role) for role in roles]
    if (Role.RELAY in chosen) is not (stream is not None):
        raise ConfigurationError("the role relay needs a --stream, and no other role takes one")
    if engine not in GRANTS:
        raise ConfigurationError(f"engine must be one of {', '.join(GRANTS)}, not {short_repr(engine)}")
    for role in chosen:
        if role not in GRANTS[engine]:
            raise ConfigurationError(f"the {engine} engine has no {role}: that is a role of delay queues")
    grants = [GRANTS[engine][role] for role in chosen]
    key = _KEYS[engine](prefix, queue, stream)
    keys = [f"~{key(part)}" for grant in grants for part in grant.all_parts()]
    commands = [f"+{command}" for grant in grants for command in grant.all_commands()]
    listing = [f"+{command}" for grant in grants for command in grant.registry]
    if queue is not None:  # one queue's admin takes no name off: any may be that of another queue
        listing = [command for command in listing if command != "+srem"]
    if listing and not selectors:
        keys.append(f"~{registry(prefix)}")
        commands += listing
        if queue is not None:
            commands = [
                f"{command}|{key(part)}" if part else command
                for command in commands
                for part in _NARROWED.get(command, ("",))
            ]
    shared = f"(~{registry(prefix)} {' '.join(dict.fromkeys(listing))})" if listing and selectors else ""
    return [
        *(("clearselectors",) if selectors else ()),
        *("resetkeys", *dict.fromkeys(keys)),
        *("resetchannels", "-@all", *dict.fromkeys(commands)),
        *((shared,) if shared else ()),
    ]


def _role(role: Role | str) -> Role:
    if role not in set(Role):
        raise ConfigurationError(f"role must be one of {', '.join(Role)}, not {short_repr(role)}")
    return Role(role)


def _delay_keys(prefix: str, queue: str | None, stream: str | None) -> Callable[[str], str]:
    base = Keys.of(prefix, "any" if queue is None else queue).pending.removesuffix("pending")
    base = base if queue is not None else base.replace("{any}", "{*}")
    target = "" if stream is None else check_stream(stream)
    return lambda part: target if part == "stream" else base + part


def _stream_keys(_prefix: str, queue: str | None, _stream: str | None) -> Callable[[str], str]:
    keys = StreamKeys.of(_named("streams", queue))
    return lambda part: str(getattr(keys, part))


def _work_queue_keys(_prefix: str, queue: str | None, _stream: str | None) -> Callable[[str], str]:
    prefix = KeyPrefix(_named("workqueue", queue)).prefix
    if not prefix.isprintable() or re.search(r"[\s'\"]", prefix):
        raise ConfigurationError(f"access rules cannot contain blanks or quotes, as this prefix does: {prefix!r:.100}")
    literal = _GLOB.sub(r"\\\g<0>", prefix)
    return lambda part: f"{literal}:{part}{':*' if part in {'item', 'lease'} else ''}"


def _named(engine: str, queue: str | None) -> str:
    if queue is None:
        raise ConfigurationError(f"with --engine {engine} the rules cover one queue: name it by --queue")
    return queue


_KEYS = {"delay": _delay_keys, "streams": _stream_keys, "workqueue": _work_queue_keys}
"""Functions that return, for a queue, the function from a part of its keys to a pattern."""


@click.command()
@click.argument("roles", metavar="ROLE...", type=click.Choice([role.value for role in Role]), nargs=-1, required=True)
@engine_option()
@click.option("--queue", type=QUEUE, help="Limit the rights to this queue.  [default: all under the prefix]")
@click.option("--stream", metavar="STREAM", help="Let the relay move messages into this stream.")
@click.option("--user", metavar="NAME", help="Grant the rights to this Redis user.  [default: delayq-ROLE]")
@click.option("--no-selectors", is_flag=True, help="Print rules for Redis 6.2, which has no selectors.")
@click.option("--aclfile", is_flag=True, help="Print a line for an ACL file instead of a command.")
@click.pass_obj
def acl(
    session: Session,
    /,
    roles: tuple[str, ...],
    *,
    user: str | None,
    aclfile: bool,
    no_selectors: bool,
    **options: Any,
) -> None:
    """Print the Redis ACL command for ROLE: producer, consumer, inspector, admin, notifier or relay.

    Several are combined.

    Pipe it into redis-cli. It replaces the rights of the user and keeps its passwords; it does not set one.
    Only an admin may load scripts: run `delayq preload` as an admin after each start of Redis.

    For a stream or a work queue, give --queue. A relay needs --stream.
    """
    name = "-".join(["delayq", *dict.fromkeys(roles)]) if user is None else check_name(user, "--user")
    granted = rules(roles, prefix=session.prefix, selectors=not no_selectors, **options)
    head = ["user", name] if aclfile else ["ACL", "SETUSER", name]
    print_line(" ".join([*head, "on", *granted]))
    print_note(f"a new user needs a password before it can log in: ACL SETUSER {name} '>…'")


@click.command()
@click.option("--engine", type=click.Choice(list(ENGINES)), help="Load only the scripts of this engine.")
@click.pass_obj
def preload(session: Session, *, engine: str | None) -> None:
    """Load the scripts into Redis, for users without that right. Run it after each start of Redis."""
    chosen = [name for name in ENGINES if engine in (None, name)]
    loading = [command for name in chosen for command in load_scripts("" if name == "delay" else name)]
    print_line(f"loaded {pluralize(len(session.executor.perform(together(loading))), 'script')}")
