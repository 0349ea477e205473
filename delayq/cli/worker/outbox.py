"""`delayq outbox`: sends what SQL transactions have committed, and looks after what Redis refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.support.exit_codes import CommandError, Exit, redact
from delayq.cli.support.groups import SuggestingGroup
from delayq.cli.support.logs import configure_logging, log_options
from delayq.cli.support.options import QUEUE, confirm, json_option, yes_option
from delayq.cli.support.output import json_value, print_line, print_result, print_rich, table
from delayq.cli.support.session import Session
from delayq.cli.worker.worker_endpoint import serving
from delayq.queue.consuming.stop_signals import handle_signals
from delayq.queue.repairing.repair_report import Checkup, Finding, FindingKind
from delayq.safe_log import SafeLog
from delayq.values.text import format_duration, pluralize

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

log = SafeLog("delayq.outbox")

BEHIND = 10.0
"""Seconds after which a committed row has waited for too long."""


@click.group(cls=SuggestingGroup)
def outbox() -> None:
    """Send what SQL transactions have committed, see `delayq docs outbox` (pip install 'delayq[sql]').

    DATABASE_URL is that of SQLAlchemy, such as postgresql+psycopg://user@host/name or sqlite:///app.db.
    """


@outbox.command()
@click.argument("database_url", metavar="DATABASE_URL")
@click.argument("queues", metavar="QUEUE...", type=QUEUE, nargs=-1, required=True)
@click.option("--burst", is_flag=True, help="Exit once everything is sent.")
@click.option("--port", type=click.IntRange(0, 65535), help="Serve the metrics of the outbox at this port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen on this address; 0.0.0.0 for all.")
@log_options
@click.pass_obj
def relay(
    session: Session,
    database_url: str,
    queues: tuple[str, ...],
    *,
    burst: bool,
    port: int | None,
    host: str,
    log_level: str,
    log_json: bool,
) -> None:
    """Send to each QUEUE what transactions have committed for it, in order, each message exactly once.

    Start several: one of them works, and another goes on within a second if it ends. PostgreSQL tells it of commits,
    other databases are looked at every 200 ms. If Redis or the database is lost, it connects again.

    A row that Redis refuses stays, and holds up later rows of its id only: see list, retry and drop. SIGTERM or SIGINT
    (Ctrl-C) stops it within about a second.
    """
    configure_logging(log_level, as_json=log_json)
    with _engine(database_url) as engine:
        from delayq.outbox import OutboxRelay, backlog

        with engine.connect() as connection:
            backlog(connection)  # fails here, instead of trying again for ever
        sending = OutboxRelay(engine, *(session.queue(name, codec="bytes") for name in dict.fromkeys(queues)))
        sending.open()
        with handle_signals(lambda *_: sending.stop()), _metrics(engine, host, port):
            log.info("relaying to %s", ", ".join(queues), extra={"queues": queues})
            moved = sending.run(burst=burst)
    print_line(f"relayed {pluralize(moved, 'row')}")


@outbox.command("list")
@click.argument("database_url", metavar="DATABASE_URL")
@json_option
def list_(database_url: str, *, as_json: bool) -> None:
    """List the rows that Redis refuses, in order, at most 1,000, and count those that wait.

    JSON: {"queues": {QUEUE: {"waiting", "oldest", "refused"}, …}, "rows": [{"seq", "queue", "id", "operation",
    "inserted", "reason"}, …]}; "oldest" is in seconds.
    """
    from_outbox = _upkeep()
    with _connection(database_url) as connection:
        waiting, rows = from_outbox.backlog(connection), from_outbox.refused(connection)
    if as_json:
        result = {
            "queues": {name: one._asdict() for name, one in waiting.items()},
            "rows": [json_value(one._asdict()) for one in rows],
        }
        print_result(result, as_json=True)
        return
    for name, one in waiting.items():
        oldest = f", the oldest for {format_duration(one.oldest)}" if one.waiting else ""
        print_line(f"{name}  {pluralize(one.waiting, 'row')} waiting{oldest}, {one.refused:,} refused")
    if rows:
        titles = ["seq", "queue", "operation", "id", "reason"]
        print_rich(table(titles, [(one.seq, one.queue, one.operation, one.id, one.reason) for one in rows], wrap=True))


@outbox.command()
@click.argument("database_url", metavar="DATABASE_URL")
@click.argument("seqs", metavar="[SEQ]...", type=int, nargs=-1)
@json_option
def retry(database_url: str, seqs: tuple[int, ...], *, as_json: bool) -> None:
    """Let relays try refused rows again: those with the numbers SEQ and others of their ids, or all.

    JSON: {"retried"}.
    """
    with _connection(database_url) as connection:
        retried = _upkeep().retry(connection, seqs or None)
    print_result({"retried": retried}, f"{pluralize(retried, 'row')} will be tried again", as_json=as_json)


@outbox.command()
@click.argument("database_url", metavar="DATABASE_URL")
@click.argument("seqs", metavar="SEQ...", type=int, nargs=-1, required=True)
@yes_option
@json_option
def drop(database_url: str, seqs: tuple[int, ...], *, yes: bool, as_json: bool) -> None:
    """Delete the refused rows with the numbers SEQ; what followed them is tried again.

    JSON: {"dropped"}.
    """
    confirm(f"Delete {pluralize(len(seqs), 'row')}, which are never sent?", yes=yes, dry_run=False)
    with _connection(database_url) as connection:
        dropped = _upkeep().drop(connection, seqs)
    print_result({"dropped": dropped}, f"dropped {pluralize(dropped, 'row')}", as_json=as_json)


def examine_outbox(database_url: str, queues: list[str] | None) -> list[Checkup]:
    """Return what is wrong with the outbox of some queues, or of all, for `delayq doctor`."""
    with _connection(database_url) as connection:
        found = _upkeep().backlog(connection)
    checkups = []
    for name, one in found.items():
        behind = one.waiting if one.oldest > BEHIND else 0
        if (queues is None or name in queues) and behind + one.refused:
            text = (
                f"{pluralize(behind, 'row')} waiting for up to {format_duration(one.oldest)}, {one.refused:,} refused"
            )
            checkups.append(Checkup(name, findings=(Finding(FindingKind.OUTBOX, behind + one.refused, 0, text, ()),)))
    return checkups


def _upkeep() -> Any:
    from delayq.outbox import upkeep

    return upkeep


def _metrics(engine: Engine, host: str, port: int | None) -> Any:
    if port is None:
        return nullcontext()
    from delayq.outbox.outbox_collector import OutboxCollector

    return serving((host, port), OutboxCollector(engine))


@contextmanager
def _connection(database_url: str) -> Iterator[Connection]:
    """Yield a connection in a transaction."""
    with _engine(database_url) as engine, engine.begin() as connection:
        yield connection


@contextmanager
def _engine(database_url: str) -> Iterator[Engine]:
    """Yield an engine; raise `CommandError` for what is wrong with the URL or the database."""
    try:
        import sqlalchemy
    except ImportError as error:
        raise click.UsageError("this command needs an extra: pip install 'delayq[sql]'") from error
    try:
        engine = sqlalchemy.create_engine(database_url)
        if engine.dialect.is_async:
            raise click.UsageError(f"{engine.dialect.driver} is a driver for asyncio: name another one in DATABASE_URL")
    except (sqlalchemy.exc.ArgumentError, ImportError) as error:
        raise click.UsageError(f"DATABASE_URL: {redact(str(error))}") from error
    try:
        yield engine
    except sqlalchemy.exc.OperationalError as error:
        (line, *_) = str(error.orig or error).splitlines()
        raise CommandError(f"the database does not answer: {line}", Exit.UNREACHABLE) from error
    finally:
        engine.dispose()
