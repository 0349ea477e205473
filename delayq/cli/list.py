"""`delayq list`: a page of the messages in a state; also how `delayq dead list` prints its pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any

import click

from delayq.broker.engine import Feature
from delayq.cli.engines import ENGINES
from delayq.cli.message_formats import Format, format_options, page_printer
from delayq.cli.options import WHEN, Paging, group_option, lease_option, page_options, queue_with, reveal_option
from delayq.cli.output import print_note
from delayq.cli.session import Session
from delayq.cli.zones import zoned_iso
from delayq.errors import ConfigurationError
from delayq.queue.inspector import MAX_ROWS
from delayq.queue.message_info import Page
from delayq.states import State

STATES = list(dict.fromkeys(str(state) for one in ENGINES.values() for state in one.capabilities.states))
ALL_PAGES = Paging(MAX_ROWS, None, all=True)


@click.command("list")
@queue_with(Feature.LIST)
@group_option
@lease_option
@click.option(
    "--state",
    type=click.Choice(STATES),
    metavar="STATE",
    help=f"List the messages in this state: {', '.join(STATES)}."
    "  [default: pending; streams: ready; workqueue: queued]",
)
@click.option("--from", "due_from", type=WHEN, metavar="WHEN", help="List pending messages due from then on.")
@click.option("--to", "due_to", type=WHEN, metavar="WHEN", help="List pending messages due before then.")
@page_options
@reveal_option
@format_options
@click.pass_obj
def list_(
    session: Session,
    /,
    queue: str,
    *,
    engine: str,
    state: str | None,
    due_from: datetime | None,
    due_to: datetime | None,
    paging: Paging,
    reveal: bool,
    form: Format,
    **groups: Any,
) -> None:
    """List the messages of QUEUE in one state, page by page.

    WHEN is a time (2027-01-31T09:00), now, or a time from now: +2h, -1d. A stream
    has the states ready, active, backoff and dead; a work queue has queued and processing.

    JSON, one line per page: {"messages": [{"id", "state", "payload", "encoding", "truncated", "size", "due",
    "attempts", "retries_left", "deadline", "token", "holder", "headers", "error", "reason", "died", "entry",
    "name", "snoozes", "expires", "priority", "timeout", "cancel_requested", "progress", "retention", "completed",
    "kept_until", "result", "sent", "after_outage", "unhandled"}, …], "cursor"}. "encoding" tells how to read the
    payload: json, text, base64, encrypted (in base64), or redacted (JSON, with "[redacted]" for what the queue hides).
    "cursor" is null on the last page. An item of a work queue has "id", "state", "payload", "encoding", "truncated",
    "size", "deadline" and "holder". --jsonl prints these objects, one per line. --csv prints their fields as columns,
    with ' before what looks like a formula.
    """
    capabilities = ENGINES[engine].capabilities
    chosen = capabilities.check_state(state or capabilities.states[0])
    commands = ENGINES[engine].commands(session, **groups)
    period = {name: at for name, at in (("due_from", due_from), ("due_to", due_to)) if at}
    if period:
        capabilities.require(Feature.DELAYS)
        _check_period(chosen, due_from, due_to)
    pages = pages_from(partial(commands.open_to_read(queue, reveal=reveal).list, chosen, **period), paging)
    what = f"{chosen} {commands.message}s in {queue}{' in this time' if period else ''}"
    print_pages(pages, what, form, page_printer(form, commands.page_class(), commands.columns[chosen], session.now))


def _check_period(state: str, due_from: datetime | None, due_to: datetime | None) -> None:
    """Refuse a period that selects nothing, by the names of the options."""
    if state != State.PENDING:
        raise ConfigurationError(f"--from and --to work with pending messages, not with {state} ones")
    if due_from and due_to and due_from > due_to:
        raise ConfigurationError(f"--from {zoned_iso(due_from)} is after --to {zoned_iso(due_to)}")


def pages_from(read: Callable[..., Page], paging: Paging) -> Iterator[Page]:
    """Read one page, or all of them with `--all`."""
    page = read(limit=MAX_ROWS if paging.all else paging.limit, cursor=paging.cursor)
    yield page
    while paging.all and page.cursor:
        page = read(limit=MAX_ROWS, cursor=page.cursor)
        yield page


def print_pages(pages: Iterator[Page], what: str, form: Format, print_page: Callable[[Page], None]) -> None:
    """Print each page of messages when it was read."""
    is_empty, page = True, Page([], None)
    for page in pages:
        print_page(page)
        is_empty = is_empty and not page.messages
    if form.as_json:
        return
    if page.cursor:
        print_note(f"more: --cursor {page.cursor}, or --all")
    elif is_empty and form.is_table:
        print_note(f"no {what}")
