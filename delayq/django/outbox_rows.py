"""Rows of the outbox by Django: written in the transaction of the caller, and read until a relay has sent them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.apps import apps
from django.db import DatabaseError, DataError, connections

from delayq.django.tasks_api import InvalidTaskBackend
from delayq.errors import ConfigurationError, OutboxError
from delayq.outbox.relaying.notifications import CHANNEL
from delayq.outbox.relaying.row_store import NO_TABLE, is_told
from delayq.outbox.rows import NOW, REPLACE, SEND, OutboxRow

APP = "delayq.django"
"""The app with the tables."""


def write(alias: str, row: OutboxRow) -> None:
    """Insert a row in the transaction of a database.

    Raises `InvalidTaskBackend` without the app; `OutboxError` without the table, and for a row that the database
    refuses; else what Django raises, such as `TransactionManagementError` in a transaction that has failed.
    """
    require_app()
    connection = connections[alias]
    binary = "_binary %s" if connection.vendor == "mysql" else "%s"
    values = [*["%s"] * 5, *[binary] * 3, now_of(connection)]
    # Not by the model: the same statement tells relays of the commit, without another round trip.
    told = f"RETURNING pg_notify('{CHANNEL}', '')" if connection.vendor == "postgresql" else ""
    columns = ", ".join((*row._fields, "inserted"))
    insert = ("INSERT INTO delayq_outbox (", columns, ") VALUES (", ", ".join(values), ")", told)
    with explained(), connection.cursor() as cursor:
        cursor.execute(" ".join(insert), row)


def find(alias: str, queue: str, id: str) -> Any:
    """Return the row that sends a message, as a model; None if there is none that this transaction sees."""
    require_app()
    from delayq.django.models import OutboxMessage

    sends = OutboxMessage.objects.using(alias).filter(queue=queue, message=id, operation__in=(SEND, REPLACE))
    with explained():
        return sends.order_by("seq").first()


def now_of(connection: Any) -> str:
    """Return the SQL of the time of a database; raise `ConfigurationError` for one that has no outbox."""
    if (now := NOW.get(connection.vendor)) is None:
        raise ConfigurationError(f"an outbox needs PostgreSQL, MySQL, MariaDB or SQLite, not {connection.vendor}")
    return now


def require_app() -> None:
    """Raise `InvalidTaskBackend` where the app is not installed, so that no migration makes the tables."""
    if not apps.is_installed(APP):
        raise InvalidTaskBackend(f"enqueue='outbox' needs the app: add {APP!r} to INSTALLED_APPS, and migrate")


@contextmanager
def explained() -> Iterator[None]:
    """Raise `OutboxError` for a missing table, and for a row that the database refuses."""
    try:
        yield
    except DatabaseError as error:
        if is_told(error.__cause__, NO_TABLE):
            raise OutboxError("the database has no tables of delayq: run manage.py migrate delayq") from error
        if isinstance(error, DataError):
            raise OutboxError(f"the database refuses the row: {error}") from error
        raise
