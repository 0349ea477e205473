"""`delayq acl` and `delayq preload`: rights in Redis that are no wider than a role needs."""

from __future__ import annotations

import click

from delayq import calls
from delayq.acl.rules import Role, rules
from delayq.cli.options import QUEUE
from delayq.cli.output import put, say
from delayq.cli.session import Session
from delayq.cli.text import counted
from delayq.keys import check_name
from delayq.operation import together


@click.command()
@click.argument("roles", metavar="ROLE...", type=click.Choice([role.value for role in Role]), nargs=-1, required=True)
@click.option("--queue", type=QUEUE, help="Only this queue; by default all under the prefix.")
@click.option("--user", metavar="NAME", help="Whose rights they are.  [default: delayq-ROLE]")
@click.option("--aclfile", is_flag=True, help="Print the line of an ACL file in place of a command.")
@click.pass_obj
def acl(session: Session, roles: tuple[str, ...], *, queue: str | None, user: str | None, aclfile: bool) -> None:
    """Print the rights in Redis that ROLE needs: producer, consumer, inspector or admin; several add up.

    Pipe it into redis-cli. It replaces the rights of the user, keeps the passwords, and sets none.
    Only an admin may load scripts: run `delayq preload` as one, again after each start of Redis.
    """
    name = "-".join(["delayq", *dict.fromkeys(roles)]) if user is None else check_name(user, "--user")
    head = ["user", name] if aclfile else ["ACL", "SETUSER", name]
    put(" ".join([*head, "on", *rules(roles, prefix=session.prefix, queue=queue)]))
    say(f"a new user needs a password before it can log in: ACL SETUSER {name} '>…'")


@click.command()
@click.pass_obj
def preload(session: Session) -> None:
    """Load the scripts into Redis, for users that may not: needed once after each start of Redis."""
    loaded = session.executor.perform(together(calls.preload()))
    put(f"loaded {counted(len(loaded), 'script')}")
