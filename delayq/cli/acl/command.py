"""`delayq acl` prints the minimal rights in Redis of a role; `delayq preload` loads the scripts."""

from __future__ import annotations

from typing import Any

import click

from delayq.broker.keys import check_name
from delayq.broker.shared_calls import preload as load_scripts
from delayq.broker.transport.operation import together
from delayq.cli.acl.grants import Role
from delayq.cli.acl.roles import rules
from delayq.cli.support.engines import ENGINES
from delayq.cli.support.options import QUEUE, engine_option
from delayq.cli.support.output import print_line, print_note
from delayq.cli.support.session import Session
from delayq.values.text import pluralize


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
