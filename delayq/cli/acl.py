"""`delayq acl` and `delayq preload`: rights in Redis that are no wider than a role needs."""

from __future__ import annotations

import click

from delayq.acl.rules import Role, rules
from delayq.cli.engines import ENGINES, engine_option
from delayq.cli.options import QUEUE
from delayq.cli.output import put, say
from delayq.cli.session import Session
from delayq.cli.text import counted
from delayq.keys import check_name
from delayq.operation import together
from delayq.values import Command


@click.command()
@click.argument("roles", metavar="ROLE...", type=click.Choice([role.value for role in Role]), nargs=-1, required=True)
@engine_option(*ENGINES)
@click.option("--queue", type=QUEUE, help="Only this queue; by default all delay queues under the prefix.")
@click.option("--stream", metavar="STREAM", help="Into which a relay moves messages.")
@click.option("--user", metavar="NAME", help="Whose rights they are.  [default: delayq-ROLE]")
@click.option("--aclfile", is_flag=True, help="Print the line of an ACL file in place of a command.")
@click.pass_obj
def acl(
    session: Session,
    roles: tuple[str, ...],
    *,
    engine: str,
    queue: str | None,
    stream: str | None,
    user: str | None,
    aclfile: bool,
) -> None:
    """Print the rights in Redis that ROLE needs: producer, consumer, inspector, admin or relay; several add up.

    Pipe it into redis-cli. It replaces the rights of the user, keeps the passwords, and sets none.
    Only an admin may load scripts: run `delayq preload` as one, again after each start of Redis.

    Streams and work queues are named by --queue. A relay has a delay queue and a --stream.
    """
    name = "-".join(["delayq", *dict.fromkeys(roles)]) if user is None else check_name(user, "--user")
    head = ["user", name] if aclfile else ["ACL", "SETUSER", name]
    found = rules(roles, engine=engine, prefix=session.prefix, queue=queue, stream=stream)
    put(" ".join([*head, "on", *found]))
    say(f"a new user needs a password before it can log in: ACL SETUSER {name} '>…'")


@click.command()
@click.option("--engine", type=click.Choice(ENGINES), help="Only those of one kind of queue; by default of all.")
@click.pass_obj
def preload(session: Session, *, engine: str | None) -> None:
    """Load the scripts into Redis, for users that may not: needed once after each start of Redis."""
    loading = [command for name in ENGINES if engine in (None, name) for command in _scripts_of(name)]
    put(f"loaded {counted(len(session.executor.perform(together(loading))), 'script')}")


def _scripts_of(engine: str) -> list[Command[bool]]:
    from delayq import calls
    from delayq.streams.calls import preload as preload_streams
    from delayq.workqueue.calls import preload as preload_work_queues

    return {"delay": calls.preload, "streams": preload_streams, "workqueue": preload_work_queues}[engine]()
