"""A program of a Django project that is killed at each of its steps, and what is there afterwards.

It writes rows together with tasks, and relays them; each process that does so dies before or after one statement,
commit or exchange with Redis. Then another one goes on: what was committed has had its effect once, and nothing else.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import django

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection, connections, transaction  # noqa: E402
from django.db.backends.base.base import BaseDatabaseWrapper  # noqa: E402
from django.db.backends.utils import CursorWrapper  # noqa: E402

from delayq.broker.transport.connections import Connections  # noqa: E402
from delayq.django import backend  # noqa: E402
from tests.support.django_app.tasks import note  # noqa: E402

ENDS = ("commit", "roll back", "savepoint", "autocommit")
"""How the transaction of a number ends, in turn."""


def forget() -> None:
    """Close all connections: a process that is forked makes its own."""
    for queue, _ in backend._queues.values():
        queue.close()
    backend._queues.clear()
    connections.close_all()


def run(statement: str, *values: Any) -> list[Any]:
    """Return what a statement reads, if it does."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall()) if cursor.description else []


def make(number: int) -> None:
    """Write a row with its task."""
    run("INSERT INTO made (n) VALUES (%s)", number)
    note.enqueue(number)


def write(number: int) -> None:
    """Write rows in a transaction that ends in one of several ways; negative ones are rolled back."""
    how = ENDS[number % len(ENDS)]
    if how == "autocommit":
        note.enqueue(number)
        return
    with transaction.atomic():
        make(number)
        if how == "savepoint":
            with transaction.atomic():
                make(-number)
                transaction.set_rollback(True)
        transaction.set_rollback(how == "roll back")


def relay(_: int) -> None:
    """Send what was committed."""
    call_command("delayq_outbox", burst=True, stdout=sys.stderr)


def work() -> None:
    """Run the tasks that were sent."""
    call_command("delayq_worker", burst=True)


def die_at(step: int) -> None:
    """Kill this process before or after its so-manieth statement, commit or exchange."""
    left = [step]

    def dying(method: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            advance()
            returned = method(*args, **options)
            advance()
            return returned

        return called

    def advance() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    for owner, name in (
        (CursorWrapper, "execute"),
        (CursorWrapper, "executemany"),
        (BaseDatabaseWrapper, "_commit"),
        (Connections, "exchange"),
    ):
        setattr(owner, name, dying(getattr(owner, name)))


def survives(do: Callable[[int], None], number: int, step: int) -> bool:
    """Run something in a process that dies at a step; returns whether it came to its end before."""
    forget()
    child = os.fork()
    if child == 0:
        die_at(step)
        do(number)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def check(told: str) -> None:
    """Let all that was committed have its effect, and compare."""
    work()  # what the dead relay has sent is done before it is sent again
    relay(0)
    work()
    made, effects = (sorted(n for (n,) in run(f"SELECT n FROM {table}")) for table in ("made", "effects"))
    # In autocommit the row of the outbox is all that was committed, if it was.
    alone = [n for n in effects if n % len(ENDS) == ENDS.index("autocommit")]
    assert len(set(alone)) == len(alone), (told, alone)
    assert [n for n in effects if n not in alone] == made, told
    assert not run("SELECT seq FROM delayq_outbox"), told


def main() -> None:
    """Kill at every step; print how many there were."""
    for table in ("made", "effects"):
        run(f"CREATE TABLE {table} (n INTEGER)")
    number = 0
    for how in range(len(ENDS)):
        for step in count(1):
            number += len(ENDS)
            if survives(write, number + how, step):
                break
            check(f"write {ENDS[how]} {step}")
        check(f"write {ENDS[how]}")
        print("write", how, step, flush=True)
    for step in count(1):
        number += len(ENDS)
        write(number)
        if survives(relay, 0, step):
            break
        check(f"relay {step}")
    check("relay")
    print("relay 0", step, flush=True)


if __name__ == "__main__":
    main()
