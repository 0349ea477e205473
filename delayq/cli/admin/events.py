"""`delayq events`: prints the event log of a queue."""

from __future__ import annotations

from typing import Any

import click

from delayq.broker.engine import Feature
from delayq.broker.event_log import MIN_TIME_OFFSET
from delayq.cli.support.logs import configure_logging
from delayq.cli.support.options import ID, json_option, queue_with
from delayq.cli.support.output import json_fields, print_json, print_line, print_note
from delayq.cli.support.session import Session
from delayq.cli.support.zones import zoned_iso
from delayq.errors import ConfigurationError
from delayq.queue.inspecting.event_log import BEGINNINGS, EventKind, MessageEvent


@click.command()
@queue_with(Feature.EVENTS)
@click.option("--follow", is_flag=True, help="Wait for new events until Ctrl-C, also while Redis is down.")
@click.option("--after", metavar="OFFSET", help="Start after this offset; 'now' prints only new events.")
@click.option("--id", type=ID, multiple=True, help="Print only events of this message; repeatable.")
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in EventKind]),
    multiple=True,
    metavar="KIND",
    help=f"Print only events of this kind; repeatable: {', '.join(EventKind)}.",
)
@click.option("--on/--off", "switch", default=None, help="Turn the log on or off for all processes, and exit.")
@click.option(
    "--max-len",
    type=click.IntRange(1000),
    metavar="ENTRIES",
    help="With --on: keep about so many, see also the option events_max_bytes.  [default: 100000]",
)
@json_option
@click.pass_obj
def events(
    session: Session,
    /,
    queue: str,
    *,
    follow: bool,
    after: str | None,
    switch: bool | None,
    max_len: int | None,
    as_json: bool,
    **only: Any,
) -> None:
    """Print the event log of QUEUE, oldest first: what happened to each message, and when.

    The log is off until you turn it on, with --on or with the option events of a queue.

    JSON, one line per event: {"offset", "index", "kind", "at", "id", "due", "attempt", "token", "retries_left",
    "holder", "run", "reason", "error", "name"}.
    """
    if max_len is not None and not switch:
        raise click.UsageError("--max-len goes with --on")
    if switch is not None:
        session.queue(queue, events=switch, **({} if max_len is None else {"events_max_len": max_len})).open()
        print_note(f"the event log of {queue} is {'on' if switch else 'off'}")
        return
    opened = session.existing_queue(queue)
    if follow:
        configure_logging("warning", as_json=False)  # that Redis does not answer, and answers again
    is_empty, first = True, None
    unbegun = set(only["id"]) if after is None and not only["kind"] and not as_json else set()
    try:
        for event in opened.events(_offset(after), follow=follow):
            first = first or event
            if any(wanted and getattr(event, name) not in wanted for name, wanted in only.items()):
                continue
            if event.id in unbegun:
                unbegun.discard(event.id)
                _note_beginning(event, first)
            is_empty = False
            if as_json:
                print_json(_fields(event))
            else:
                print_line(_line(event))
    except KeyboardInterrupt:
        return  # the way to end --follow
    if is_empty and not as_json:
        print_note(_nothing(queue, first))


def _nothing(queue: str, first: MessageEvent | None) -> str:
    """Return what to say if no event was printed of a log with this first one."""
    if first is None:
        return f"no events in {queue}; if its log is off, turn it on: delayq events {queue} --on"
    begins = f", which begins at {zoned_iso(first.at)}" if _is_trimmed(first) else ""
    return f"no such event in the log of {queue}{begins}"


def _fields(event: MessageEvent) -> dict[str, Any]:
    """Return an event for JSON; its partition only where there are some."""
    fields = json_fields(event)
    if event.partition is None:
        del fields["partition"]
    return fields


def _note_beginning(event: MessageEvent, first: MessageEvent) -> None:
    """Say that the story of a message has lost its beginning, if this first event of it tells so."""
    if event.kind not in BEGINNINGS and _is_trimmed(first):
        print_note(f"the log begins at {zoned_iso(first.at)}: what happened before was trimmed")


def _is_trimmed(first: MessageEvent) -> bool:
    """Return whether a log with this first event had earlier ones. Of Redis 6 it is not known."""
    return 1 < first.offset < MIN_TIME_OFFSET


def _offset(after: str | None) -> int | str:
    if after is None or after == "now":
        return after or 0
    if not after.isdecimal():
        raise ConfigurationError(f"--after must be an offset of the event log or 'now', not {after!r:.40}")
    return int(after)


def _line(event: MessageEvent) -> str:
    details = [
        f"due {zoned_iso(event.due)}" if event.due else "",
        "" if event.attempt is None else f"attempt {event.attempt}",
        "" if event.retries_left is None else f"retries left {event.retries_left}",
        f"by {event.holder}" if event.holder else "",
        f"run {event.run}" if event.run else "",
        f"name {event.name}" if event.name else "",
        f"({event.reason})" if event.reason else "",
        event.error or "",
    ]
    text = " ".join(detail for detail in details if detail)
    return f"{zoned_iso(event.at)}  {event.offset:>8}  {event.kind:<11}  {event.id or '-'}  {text}".rstrip()
