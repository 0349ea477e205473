"""`delayq list`, `show` and `result`: a page of messages, one in full, and what its callback has returned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from delayq.broker.engine import Feature
from delayq.cli.messages.message_formats import (
    Format,
    format_options,
    message_json,
    page_printer,
    payload_of,
    unhandled_text,
)
from delayq.cli.support.engines import ENGINES
from delayq.cli.support.exit_codes import CommandError, Exit
from delayq.cli.support.options import (
    DURATION,
    ID,
    STORED_ID,
    WHEN,
    Paging,
    group_option,
    json_option,
    lease_option,
    page_options,
    queue_with,
    reveal_option,
)
from delayq.cli.support.output import print_details, print_json, print_line, print_note
from delayq.cli.support.session import Session
from delayq.cli.support.zones import exact_time, zoned_iso, zoned_text
from delayq.errors import ConfigurationError, MessageFailedError
from delayq.privacy.ciphertext import describe_encrypted
from delayq.privacy.redaction import preview
from delayq.queue.inspecting.decoded_payload import decode_payload, payload_text
from delayq.queue.inspecting.inspector import MAX_ROWS
from delayq.queue.inspecting.message_info import MessageInfo, Page
from delayq.values.states import State
from delayq.values.text import clean, format_duration, pluralize

if TYPE_CHECKING:
    from delayq.workqueue import ItemInfo

STATES = list(dict.fromkeys(str(state) for one in ENGINES.values() for state in one.capabilities.states))
_ENDED = {State.DEAD, State.COMPLETED}
_WITH_PERIOD = (State.PENDING, State.READY)
ALL_PAGES = Paging(MAX_ROWS, None, all=True)


@click.command("list")
@queue_with(Feature.LIST)
@group_option
@lease_option
@click.option(
    "--state",
    type=click.Choice(STATES),
    metavar="STATE",
    help=f"List the messages in this state: {', '.join(STATES)}.  [default: all but dead and completed]",
)
@click.option("--from", "due_from", type=WHEN, metavar="WHEN", help="List pending and ready messages due from then on.")
@click.option("--to", "due_to", type=WHEN, metavar="WHEN", help="List pending and ready messages due before then.")
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
    """List the messages of QUEUE, page by page: all that live, with their states, or those in one state.

    What waits for its due time is pending, and what is due is ready. One state is listed after the other; a message
    that moves on meanwhile may appear twice. `delayq dead list` lists the dead, `--state completed` kept results.

    WHEN is a time (2027-01-31T09:00), now, or a time from now: +2h, -1d. A stream
    has the states ready, active, backoff and dead; a work queue has queued and processing.

    JSON, one line per page: {"messages": [{"id", "state", "payload", "encoding", "truncated", "size", "due",
    "attempts", "retries_left", "deadline", "token", "consumer", "headers", "error", "reason", "died", "entry", "name",
    "key", "group", "snoozes", "expires", "hours", "tz", "priority", "timeout", "cancel_requested", "progress",
    "retention", "completed", "kept_until", "result", "sent", "unhandled"}, …], "cursor"}. "encoding" tells how to read
    the payload: json, text, base64, encrypted (in base64), or redacted (JSON, with "[redacted]" for what the queue
    hides). "cursor" is null on the last page. An item of a work queue has "id", "state", "payload", "encoding",
    "truncated", "size", "deadline" and "consumer". --jsonl prints these objects, one per line. --csv prints their
    fields as columns, with ' before what looks like a formula.
    """
    capabilities = ENGINES[engine].capabilities
    commands = ENGINES[engine].commands(session, **groups)
    chosen = [capabilities.check_state(state)] if state else [one for one in capabilities.states if one not in _ENDED]
    period = {name: at for name, at in (("due_from", due_from), ("due_to", due_to)) if at}
    if period:
        capabilities.require(Feature.DELAYS)
        _check_period(state, due_from, due_to)
        chosen = [one for one in chosen if one in _WITH_PERIOD]
    opened = commands.open_to_read(queue, reveal=reveal)
    read = partial(_read_in_period, opened, period) if period else opened.list
    pages = pages_from(partial(read, state) if state else partial(_read_all, read, chosen), paging)
    kind = state or ("" if _ENDED.isdisjoint(capabilities.states) else "living")
    what = f"{kind} {commands.message}s in {queue}{' in this time' if period else ''}".lstrip()
    print_pages(pages, what, form, page_printer(form, commands.page_class(), commands.columns[state], session.now))


def _check_period(state: str | None, due_from: datetime | None, due_to: datetime | None) -> None:
    """Refuse a period that selects nothing, by the names of the options."""
    if state and state not in _WITH_PERIOD:
        raise ConfigurationError(f"--from and --to work with pending and ready messages, not with {state} ones")
    if due_from and due_to and due_from > due_to:
        raise ConfigurationError(f"--from {zoned_iso(due_from)} is after --to {zoned_iso(due_to)}")


def _read_in_period(opened: Any, period: dict[str, datetime], state: str, **paging: Any) -> Page:
    """Read a page of the messages due in a period. What is ready is not sorted by time, so a page may have fewer."""
    if state == State.PENDING:
        return opened.list(state, **paging, **period)  # type: ignore[no-any-return]  # a queue of any engine
    page = opened.list(state, **paging)
    low, high = period.get("due_from"), period.get("due_to")
    dues = [(message, message.due) for message in page.messages]
    return Page([one for one, due in dues if due and (not low or due >= low) and (not high or due < high)], page.cursor)


def _read_all(read: Callable[..., Page], states: Sequence[str], *, limit: int, cursor: str | None = None) -> Page:
    """Read a page across states, in the order of a message's life, so that none is missed that moves on meanwhile.

    Its cursor begins with the state in which to go on.
    """
    first, _, position = (cursor or f"{states[0]}:").partition(":")
    if first not in states:
        raise ConfigurationError(f"cursor {cursor!r:.60} is of another list: give the --state that it was printed with")
    messages: list[Any] = []
    for state in states[states.index(first) :]:
        missing = limit - len(messages)
        page = read(state, limit=missing or 1, cursor=position or None)
        if not missing and page.messages:
            return Page(messages, f"{state}:")
        messages += page.messages
        if page.cursor:
            return Page(messages, f"{state}:{page.cursor}")
        position = ""
    return Page(messages, None)


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


@click.command("show")
@queue_with(Feature.GET)
@click.argument("id", type=STORED_ID)
@group_option
@lease_option
@reveal_option
@json_option
@click.pass_obj
def show_(session: Session, /, queue: str, id: str, *, engine: str, reveal: bool, as_json: bool, **groups: Any) -> None:
    """Show the message ID of QUEUE, alive or dead.

    ID may also be an entry of the dead letter (id:token), the last of its id. What has happened to a message is in the
    event log, if that is on: `delayq events QUEUE --id ID`. A message that is done is gone, unless its result is kept.
    Its progress is what its callback reported last, from which the next attempt may go on.

    For a stream, ID may be an entry from `delayq list`, which is found at once. An id is searched among the first
    10,000 entries and the last 10,000 dead ones.

    JSON: like one message of `delayq list --json`.
    """
    commands = ENGINES[engine].commands(session, **groups)
    opened = commands.open_to_read(queue, reveal=reveal)
    found = opened.get(id) or _last_death(opened, id)
    if found is None:
        raise CommandError(
            f"no {commands.message} {id!r} in {queue}{commands.absence_note(opened, id)}", Exit.NOT_FOUND
        )
    if as_json:
        print_json(message_json(found))
        return
    details = _details(found, session.now)
    if commands.capabilities.has(Feature.WHY) and found.state not in _ENDED:
        details |= {"why": zoned_text("\n".join(reason.text for reason in opened.why(found.id).reasons))}
    if found.state == State.COMPLETED:
        print_details(details)
        return
    payload, encoding, _ = decode_payload(payload_of(found), found.size)
    if encoding == "encrypted":
        print_details(details | {"payload": describe_encrypted(found.size)})
        return
    print_details(details | {"payload": f"{encoding}, {pluralize(found.size, 'byte')}"})
    click.echo()
    click.echo(clean(payload_text(payload, encoding), lines=True))


def _last_death(opened: Any, entry: str) -> MessageInfo | None:
    """Return the message of an entry, such as `dead groups` and notices name; None unless its id died there last."""
    id, _, token = entry.rpartition(":")
    found = opened.get(id) if id and token.isdecimal() else None
    return found if found is not None and getattr(found, "entry", None) == entry else None


def _details(message: MessageInfo | ItemInfo, now: datetime) -> dict[str, str]:
    details = {"id": message.id, "state": str(message.state)}
    if not isinstance(message, MessageInfo):
        expired = "" if message.state == "queued" else "expired: a clean requeues it"
        return details | {
            "lease ends": exact_time(message.deadline, now) or expired,
            "consumer": message.consumer or "",
        }
    retries = f"{message.retries_left:,} {'retry' if message.retries_left == 1 else 'retries'}"
    return details | {
        "name": message.name,
        "key": message.key,
        "due": exact_time(message.due, now),
        "next try" if message.state == State.BACKOFF else "lease ends": exact_time(message.deadline, now),
        "attempts": f"{message.attempts}, {retries} left",
        "expires": exact_time(message.expires, now),
        "joins the group": message.group,
        "hours": f"{message.hours} {message.tz}".strip(),
        "priority": f"{message.priority:+d}" if message.priority else "",
        "timeout": format_duration(message.timeout) if message.timeout else "",
        "snoozes": f"{message.snoozes:,}" if message.snoozes else "",
        "unhandled": unhandled_text(message),
        "consumer": message.consumer or "",
        "cancel": "requested" if message.cancel_requested else "",
        "token": str(message.token or ""),
        "progress": _text(message.progress),
        "retention": format_duration(message.retention.total_seconds()) if message.retention else "",
        "completed": exact_time(message.completed, now),
        "kept until": exact_time(message.kept_until, now),
        "result": _text(message.result),
        "died": exact_time(message.died, now),
        "reason": message.reason,
        "error": message.error,
        "entry": message.entry or "",
        **{f"header {name}": value for name, value in message.headers.items()},
    }


def _text(stored: bytes | None) -> str:
    """Return a result or progress as one line; '' for none."""
    return "" if stored is None else preview(stored, len(stored))


@click.command()
@queue_with(Feature.RESULTS)
@click.argument("id", type=ID)
@click.option("--timeout", type=DURATION, default="0s", help="Wait so long for the end of the message.")
@reveal_option
@json_option
@click.pass_obj
def result(session: Session, queue: str, id: str, *, timeout: timedelta, reveal: bool, as_json: bool) -> None:
    """Print the result of the message ID of QUEUE, which was sent with --retention.

    Exit code 1 if the message has failed, or has not ended in time; 3 if there is no result of it.

    JSON: {"queue", "id", "result", "encoding"}; the encoding is json, text, base64, encrypted (in base64) or redacted.
    Of a message that has failed:
    {"queue", "id", "error": {"reason", "error", "attempts"}}.
    """
    try:
        stored = session.existing_queue(queue, reveal=reveal).result(id, timeout=timeout)
    except MessageFailedError as error:
        if as_json:
            failure = {"reason": error.reason, "error": error.error, "attempts": error.attempts}
            print_json({"queue": queue, "id": id, "error": failure})
        raise
    value, encoding, _ = (None, "json", False) if stored is None else decode_payload(stored, len(stored))
    if as_json:
        print_json({"queue": queue, "id": id, "result": value, "encoding": encoding})
    elif stored is not None and encoding == "encrypted":
        print_line(preview(stored, len(stored)))
    else:
        click.echo(clean("null" if stored is None else stored.decode("utf-8", "replace"), lines=True))
