"""`delayq list`: a page of the messages in a state; also how `delayq dead list` prints its pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import click

from delayq.broker.engine import Feature
from delayq.cli.engines import ENGINES
from delayq.cli.message_json import message_json, payload_of
from delayq.cli.options import Paging, group_option, json_option, lease_option, page_options, queue_with
from delayq.cli.output import print_json, print_note, print_rich, table
from delayq.cli.session import Session
from delayq.queue.inspector import MAX_ROWS, Page
from delayq.text import clean, preview, relative_time, truncate

ALL_PAGES = Paging(MAX_ROWS, None, all=True)
MAX_REASON = 30
"""Characters of a reason in a table, which also shows the error."""
_CELLS: dict[str, Callable[[Any, datetime], str | int]] = {
    "id": lambda message, _: message.id,
    "entry": lambda message, _: message.entry or "",
    "due": lambda message, now: relative_time(message.due, now),
    "lease ends": lambda message, now: relative_time(message.deadline, now) or "expired",
    "next try": lambda message, now: relative_time(message.deadline, now),
    "died": lambda message, now: relative_time(message.died, now),
    "attempts": lambda message, _: message.attempts,
    "retries": lambda message, _: message.retries_left,
    "holder": lambda message, _: message.holder or "",
    "reason": lambda message, _: truncate(clean(message.reason), MAX_REASON),
    "error": lambda message, _: message.error,
    "payload": lambda message, _: preview(payload_of(message), message.size),
}
"""The cells of a table of messages, by the title of the column."""


@click.command("list")
@queue_with(Feature.LIST)
@group_option
@lease_option
@click.option(
    "--state",
    type=click.Choice(list(dict.fromkeys(str(state) for one in ENGINES.values() for state in one.capabilities.states))),
    help="List the messages in this state.  [default: pending; streams: ready; workqueue: queued]",
)
@page_options
@json_option
@click.pass_obj
def list_(
    session: Session, /, queue: str, *, engine: str, state: str | None, paging: Paging, as_json: bool, **groups: Any
) -> None:
    """List the messages of QUEUE in one state, page by page.

    A stream has the states ready, active, backoff and dead; a work queue has queued and processing.

    JSON, one line per page: {"messages": [{"id", "state", "payload", "encoding", "truncated", "size", "due",
    "attempts", "retries_left", "deadline", "token", "holder", "headers", "error", "reason", "died", "entry"}, …],
    "cursor"}. "encoding" tells how to read the payload: json, text or base64. "cursor" is null on the last page. An
    item of a work queue has "id", "state", "payload", "encoding", "truncated", "size", "deadline" and "holder".
    """
    capabilities = ENGINES[engine].capabilities
    chosen = capabilities.check_state(state or capabilities.states[0])
    commands = ENGINES[engine].commands(session, **groups)
    pages = pages_from(partial(commands.open_to_read(queue).list, chosen), paging)
    what = f"{chosen} {commands.message}s in {queue}"
    print_pages(pages, commands.columns[chosen], session.now, what, as_json=as_json)


def pages_from(read: Callable[..., Page], paging: Paging) -> Iterator[Page]:
    """Read one page, or all of them with `--all`."""
    page = read(limit=MAX_ROWS if paging.all else paging.limit, cursor=paging.cursor)
    yield page
    while paging.all and page.cursor:
        page = read(limit=MAX_ROWS, cursor=page.cursor)
        yield page


def print_pages(pages: Iterator[Page], titles: Sequence[str], now: datetime, what: str, *, as_json: bool) -> None:
    """Print each page of messages when it was read."""
    is_empty, page = True, Page([], None)
    for page in pages:
        if as_json:
            print_json({"messages": [message_json(message) for message in page.messages], "cursor": page.cursor})
        elif page.messages:
            rows = [[_CELLS[title](message, now) for title in titles] for message in page.messages]
            print_rich(table(titles, rows, fill=True, head=is_empty))
            is_empty = False
    if as_json:
        return
    if page.cursor:
        print_note(f"more: --cursor {page.cursor}, or --all")
    elif is_empty:
        print_note(f"no {what}")
