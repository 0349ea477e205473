"""`delayq list` and `delayq show`: messages as they stand, one line each or one in full."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import click
import msgspec

from delayq.cli.engines import engine_option
from delayq.cli.failure import Exit, Failure
from delayq.cli.options import ID, json_option, page_options, queue_argument
from delayq.cli.output import Column, put_json, say, show, table
from delayq.cli.session import Session
from delayq.cli.text import clean, counted, cut, exactly, iso, preview, when
from delayq.inspector import MOST_ROWS, MessageInfo, Page
from delayq.states import State

LONGEST_REASON = 30
"""Characters of a reason in a table, which also shows the error."""

Cell = Callable[[MessageInfo, datetime], str]

_ID = Column("id")
_PAYLOAD = Column("payload", flexible=True)
_ERROR = Column("error", flexible=True)
_COLUMNS: dict[Column, Cell] = {
    _ID: lambda message, _: message.id,
    Column("due"): lambda message, now: when(message.due, now),
    Column("lease ends"): lambda message, now: when(message.deadline, now),
    Column("again"): lambda message, now: when(message.deadline, now),
    Column("died"): lambda message, now: when(message.died, now),
    Column("attempts", right=True): lambda message, _: str(message.attempts),
    Column("retries", right=True): lambda message, _: str(message.retries_left),
    Column("holder"): lambda message, _: message.holder or "",
    Column("reason"): lambda message, _: cut(clean(message.reason), LONGEST_REASON),
    _ERROR: lambda message, _: message.error,
    _PAYLOAD: lambda message, _: preview(message.payload, message.size),
}
_SHOWN = {
    State.PENDING: ("id", "due", "retries", "payload"),
    State.READY: ("id", "due", "attempts", "retries", "payload"),
    State.ACTIVE: ("id", "lease ends", "attempts", "holder", "payload"),
    State.BACKOFF: ("id", "again", "attempts", "retries", "error"),
    State.RETRY: ("id", "due", "attempts", "retries", "error"),
    State.GARBAGE: ("id", "due", "attempts", "error"),
    State.DEAD: ("id", "died", "attempts", "reason", "error"),
}


@click.command("list")
@queue_argument
@engine_option("delay", lacking="list of messages")
@click.option(
    "--state",
    type=click.Choice([state.value for state in State]),
    default="pending",
    show_default=True,
    help="Which messages.",
)
@page_options
@json_option
@click.pass_obj
def list_(
    session: Session,
    queue: str,
    *,
    state: str,
    limit: int,
    cursor: str | None,
    all: bool,  # noqa: A002 - named like its flag
    as_json: bool,
) -> None:
    """List the messages of QUEUE that are in a state, a page at a time.

    JSON, a line a page: {"messages": [{"id", "state", "payload", "encoding", "truncated", "size", "due", "attempts",
    "retries_left", "deadline", "token", "holder", "headers", "error", "reason", "died", "entry"}, …], "cursor"}.
    encoding says what payload is: json, text or base64. The cursor is null on the last page.
    """
    found = session.known(queue)
    which = State(state)
    pages = pages_from(lambda limit, at: found.list(which, limit=limit, cursor=at), limit, cursor, all=all)
    print_pages(pages, which, session.now, f"{which} messages in {queue}", as_json=as_json)


def pages_from(
    read: Callable[[int, str | None], Page],
    limit: int,
    cursor: str | None,
    *,
    all: bool,  # noqa: A002 - named like the flag it comes from
) -> Iterator[Page]:
    """Read one page, or with `all` every page to the last."""
    page = read(MOST_ROWS if all else limit, cursor)
    yield page
    while all and page.cursor:
        page = read(MOST_ROWS, page.cursor)
        yield page


def print_pages(pages: Iterator[Page], state: State, now: datetime, what: str, *, as_json: bool) -> None:
    """Print pages of messages as they come."""
    columns = [column for column in _COLUMNS if column.title in _SHOWN[state]]
    some, page = False, Page([], None)
    for page in pages:
        if as_json:
            put_json({"messages": [facts(message) for message in page.messages], "cursor": page.cursor})
        elif page.messages:
            rows = [[_COLUMNS[column](message, now) for column in columns] for message in page.messages]
            show(table(columns, rows, titles=not some))
            some = True
    if as_json:
        return
    if page.cursor:
        say(f"more: --cursor {page.cursor}, or --all")
    elif not some:
        say(f"no {what}")


@click.command("show")
@queue_argument
@engine_option("delay", lacking="look at a message")
@click.argument("id", type=ID)
@json_option
@click.pass_obj
def show_(session: Session, queue: str, id: str, *, as_json: bool) -> None:
    """Show the message ID of QUEUE, alive or dead.

    JSON: as one message of `delayq list --json`.
    """
    found = session.known(queue).get(id)
    if found is None:
        raise Failure(f"no message {id!r} in {queue}", Exit.NOT_FOUND)
    if as_json:
        put_json(facts(found))
        return
    show(table([Column(""), Column("", wraps=True)], _details(found, session.now), titles=False))
    click.echo()
    click.echo(_in_full(found))


def facts(message: MessageInfo) -> dict[str, Any]:
    """Return a message for machines: every field, times in ISO 8601."""
    payload, encoding, truncated = decoded(message)
    return {
        "id": message.id,
        "state": message.state,
        "payload": payload,
        "encoding": encoding,
        "truncated": truncated,
        "size": message.size,
        "due": iso(message.due),
        "attempts": message.attempts,
        "retries_left": message.retries_left,
        "deadline": iso(message.deadline),
        "token": message.token,
        "holder": message.holder,
        "headers": dict(message.headers),
        "error": message.error,
        "reason": message.reason,
        "died": iso(message.died),
        "entry": message.entry,
    }


def decoded(message: MessageInfo) -> tuple[Any, str, bool]:
    """Return a payload as what it can be read as, the name of that, and whether only its beginning is known.

    A session reads payloads as bytes: which codec a queue uses is not written in Redis.
    """
    return as_read(message.payload, message.size)


def as_read(stored: bytes, size: int) -> tuple[Any, str, bool]:
    """Return the first bytes of a payload of a size as `decoded` does."""
    truncated = len(stored) < size
    if not truncated:
        try:
            return msgspec.json.decode(stored), "json", False
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
    try:
        return stored.decode("utf-8", "ignore" if truncated else "strict"), "text", truncated
    except UnicodeDecodeError:
        return base64.b64encode(stored).decode(), "base64", truncated


def _details(message: MessageInfo, now: datetime) -> Iterator[tuple[str, str]]:
    deadline = "lease ends" if message.state is State.ACTIVE else "again"
    named = {
        "id": message.id,
        "state": str(message.state),
        "due": exactly(message.due, now),
        deadline: exactly(message.deadline, now),
        "attempts": f"{message.attempts}, {counted(message.retries_left, 'retry').replace('retrys', 'retries')} left",
        "holder": message.holder or "",
        "token": str(message.token or ""),
        "died": exactly(message.died, now),
        "reason": message.reason,
        "error": message.error,
        "entry": message.entry or "",
        **{f"header {name}": value for name, value in message.headers.items()},
        "payload": f"{decoded(message)[1]}, {counted(message.size, 'byte')}",
    }
    return ((name, value) for name, value in named.items() if value)


def _in_full(message: MessageInfo) -> str:
    payload, encoding, _ = decoded(message)
    if encoding == "json":
        payload = msgspec.json.format(msgspec.json.encode(payload), indent=2).decode()
    return clean(payload, lines=True)
