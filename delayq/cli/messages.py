"""`delayq list` and `delayq show`: messages as they stand, one line each or one in full."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

import click
import msgspec

from delayq.cli.engines import ENGINES, STATES, engine_option, open_to_look, state_of
from delayq.cli.failure import Exit, Failure
from delayq.cli.options import ID, group_option, json_option, lease_option, page_options, queue_argument
from delayq.cli.output import Column, put_json, say, show, table
from delayq.cli.session import Session
from delayq.cli.text import clean, counted, cut, exactly, iso, preview, when
from delayq.inspector import MOST_ROWS, MessageInfo, Page
from delayq.states import State

if TYPE_CHECKING:
    from delayq.workqueue import ItemInfo

LONGEST_REASON = 30
"""Characters of a reason in a table, which also shows the error."""

Cell = Callable[[Any, datetime], str]

_ID = Column("id")
_PAYLOAD = Column("payload", flexible=True)
_ERROR = Column("error", flexible=True)
_COLUMNS: dict[Column, Cell] = {
    _ID: lambda message, _: message.id,
    Column("entry"): lambda message, _: message.entry or "",
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
_SHOWN_OF_STREAM = {
    **_SHOWN,
    State.READY: ("id", "entry", "retries", "payload"),
    State.ACTIVE: ("id", "entry", "lease ends", "attempts", "holder", "payload"),
    State.BACKOFF: ("id", "entry", "again", "attempts", "retries", "error"),
}


@click.command("list")
@queue_argument
@engine_option(*ENGINES)
@group_option
@lease_option
@click.option(
    "--state",
    type=click.Choice(list(dict.fromkeys(chain(*STATES.values())))),
    help="Which messages.  [default: pending; of a stream ready; of a work queue queued]",
)
@page_options
@json_option
@click.pass_obj
def list_(
    session: Session,
    queue: str,
    *,
    engine: str,
    group: str | None,
    lease: timedelta | None,
    state: str | None,
    limit: int,
    cursor: str | None,
    all: bool,  # noqa: A002 - named like its flag
    as_json: bool,
) -> None:
    """List the messages of QUEUE that are in a state, a page at a time.

    A stream has the states ready, active, backoff and dead, a work queue queued and processing.

    JSON, a line a page: {"messages": [{"id", "state", "payload", "encoding", "truncated", "size", "due", "attempts",
    "retries_left", "deadline", "token", "holder", "headers", "error", "reason", "died", "entry"}, …], "cursor"}.
    encoding says what payload is: json, text or base64. The cursor is null on the last page. An item of a work queue
    has "id", "state", "payload", "encoding", "truncated", "size", "deadline" and "holder".
    """
    which = state_of(engine, state)
    found = open_to_look(session, engine, queue, group, lease)
    pages = pages_from(lambda limit, at: found.list(which, limit=limit, cursor=at), limit, cursor, all=all)
    what = f"{which} {'items' if engine == 'workqueue' else 'messages'} in {queue}"
    print_pages(pages, columns_of(engine, which), session.now, what, as_json=as_json)


def columns_of(engine: str, state: str) -> dict[Column, Cell]:
    """Return what is shown of the messages in a state, and how."""
    if engine == "workqueue":
        from delayq.cli import work

        return work.columns(state)
    titles = (_SHOWN_OF_STREAM if engine == "streams" else _SHOWN)[State(state)]
    return {column: cell for column, cell in _COLUMNS.items() if column.title in titles}


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


def print_pages(pages: Iterator[Page], columns: dict[Column, Cell], now: datetime, what: str, *, as_json: bool) -> None:
    """Print pages of messages as they come."""
    some, page = False, Page([], None)
    for page in pages:
        if as_json:
            put_json({"messages": [facts(message) for message in page.messages], "cursor": page.cursor})
        elif page.messages:
            rows = [[cell(message, now) for cell in columns.values()] for message in page.messages]
            show(table(list(columns), rows, titles=not some))
            some = True
    if as_json:
        return
    if page.cursor:
        say(f"more: --cursor {page.cursor}, or --all")
    elif not some:
        say(f"no {what}")


@click.command("show")
@queue_argument
@engine_option(*ENGINES)
@click.argument("id", type=ID)
@group_option
@lease_option
@json_option
@click.pass_obj
def show_(
    session: Session,
    queue: str,
    id: str,
    *,
    engine: str,
    group: str | None,
    lease: timedelta | None,
    as_json: bool,
) -> None:
    """Show the message ID of QUEUE, alive or dead.

    Of a stream, ID may be an entry, as `delayq list` shows it, which is found at once; an id is looked for among the
    first 10,000 entries, and the last 10,000 dead ones.

    JSON: as one message of `delayq list --json`.
    """
    looked = open_to_look(session, engine, queue, group, lease)
    found = looked.get(id)
    if found is None:
        raise Failure(
            f"no {'item' if engine == 'workqueue' else 'message'} {id!r} in {queue}{_far(looked, engine)}",
            Exit.NOT_FOUND,
        )
    if as_json:
        put_json(facts(found))
        return
    show(table([Column(""), Column("", wraps=True)], _details(found, session.now), titles=False))
    click.echo()
    click.echo(_in_full(found))


def _far(queue: Any, engine: str) -> str:
    """Return what is to be said of a stream that was not looked through to its end."""
    if engine != "streams":
        return ""
    from delayq.streams.inspector import MOST_SEARCHED

    counts = queue.counts()
    if max(counts.living, counts.dead) <= MOST_SEARCHED:
        return ""
    return f", as far as its first {MOST_SEARCHED:,} entries tell; give the entry"


def facts(message: MessageInfo | ItemInfo) -> dict[str, Any]:
    """Return a message for machines: every field that its engine knows, times in ISO 8601."""
    payload, encoding, truncated = decoded(message)
    told = {
        "id": message.id.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
        "state": message.state,
        "payload": payload,
        "encoding": encoding,
        "truncated": truncated,
        "size": message.size,
        "deadline": iso(message.deadline),
        "holder": message.holder,
    }
    if not isinstance(message, MessageInfo):
        return told
    return told | {
        "due": iso(message.due),
        "attempts": message.attempts,
        "retries_left": message.retries_left,
        "token": message.token,
        "headers": dict(message.headers),
        "error": message.error,
        "reason": message.reason,
        "died": iso(message.died),
        "entry": message.entry,
    }


def decoded(message: MessageInfo | ItemInfo) -> tuple[Any, str, bool]:
    """Return a payload as what it can be read as, the name of that, and whether only its beginning is known.

    A session reads payloads as bytes: which codec a queue uses is not written in Redis.
    """
    return as_read(message.payload if isinstance(message, MessageInfo) else message.data, message.size)


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


def _details(message: MessageInfo | ItemInfo, now: datetime) -> Iterator[tuple[str, str]]:
    deadline = "again" if message.state == State.BACKOFF else "lease ends"
    named = {"id": message.id, "state": str(message.state)}
    if isinstance(message, MessageInfo):
        left = counted(message.retries_left, "retry").replace("retrys", "retries")
        named |= {
            "due": exactly(message.due, now),
            deadline: exactly(message.deadline, now),
            "attempts": f"{message.attempts}, {left} left",
            "holder": message.holder or "",
            "token": str(message.token or ""),
            "died": exactly(message.died, now),
            "reason": message.reason,
            "error": message.error,
            "entry": message.entry or "",
            **{f"header {name}": value for name, value in message.headers.items()},
        }
    else:
        over = "" if message.state == "queued" else "over: a clean puts it back into the queue"
        named |= {deadline: exactly(message.deadline, now) or over, "holder": message.holder or ""}
    named["payload"] = f"{decoded(message)[1]}, {counted(message.size, 'byte')}"
    return ((name, value) for name, value in named.items() if value)


def _in_full(message: MessageInfo | ItemInfo) -> str:
    payload, encoding, _ = decoded(message)
    if encoding == "json":
        payload = msgspec.json.format(msgspec.json.encode(payload), indent=2).decode()
    return clean(payload, lines=True)
