"""The rights in Redis of a role: `delayq acl` prints the fewest that it needs, `delayq preload` loads the scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import click

from delayq.broker.capabilities.shared_calls import preload as load_scripts
from delayq.broker.keys import Keys, check_name, registry
from delayq.broker.transport.operation import together
from delayq.cli.acl.grants import GRANTS, Role
from delayq.cli.support.engines import ENGINES
from delayq.cli.support.options import QUEUE, engine_option
from delayq.cli.support.output import print_line, print_note
from delayq.cli.support.session import Session
from delayq.errors import ConfigurationError, short_repr
from delayq.streams.keys import StreamKeys, check_stream
from delayq.values.text import pluralize
from delayq.workqueue.keys import KeyPrefix

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
