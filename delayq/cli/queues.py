"""`delayq queues` and `delayq stats`: the queues in use, and the counts of one."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.engines import ENGINES, Tally, engine_option, tally
from delayq.cli.options import DURATION, group_option, json_option, queue_argument
from delayq.cli.output import Column, console, put_json, say, show, table
from delayq.cli.session import Session
from delayq.cli.text import clean, exactly, iso, span, when
from delayq.inspector import Stats
from delayq.states import State

if TYPE_CHECKING:
    from rich.console import RenderableType

Read = Stats | Tally
"""What is known of a queue; of another engine's little more than the counts."""

_ALWAYS = (State.PENDING, State.READY, State.ACTIVE, State.BACKOFF, State.RETRY, State.DEAD)
"""States shown even when nothing is in them; garbage is collected within seconds."""


@click.command()
@engine_option("delay", lacking="list of its queues")
@json_option
@click.pass_obj
def queues(session: Session, *, as_json: bool) -> None:
    """List the queues in use, with how many messages are in each state.

    JSON: {"queues": [{"queue", "pending", "ready", "active", "backoff", "retry", "garbage", "dead", "next_due",
    "oldest_due"}, …]}.
    """
    names = session.names()
    found = dict(zip(names, session.stats(names), strict=True))
    if as_json:
        put_json({"queues": [{"queue": name, **_counts(stats), **_times(stats)} for name, stats in found.items()]})
    elif not found:
        say(f"no queues under the prefix {session.prefix!r}: a queue is known once something was sent to it")
    else:
        columns = [
            Column("queue"),
            *(Column(state, right=True) for state in _ALWAYS),
            Column("next due"),
            Column("lag"),
        ]
        show(table(columns, [_row(name, stats) for name, stats in found.items()]))


def _row(name: str, stats: Stats) -> list[str]:
    counts = [f"{getattr(stats.counts, state):,}" for state in _ALWAYS]
    return [name, *counts, when(stats.next_due, stats.at), _lag(stats)]


@click.command()
@queue_argument
@engine_option(*ENGINES)
@group_option
@json_option
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--every", type=DURATION, default="1s", show_default=True, help="Pause between two looks of --watch.")
@click.pass_obj
def stats(
    session: Session, queue: str, *, engine: str, group: str | None, as_json: bool, watch: bool, every: timedelta
) -> None:
    """Count the messages of QUEUE in each state, and what has happened since it was made.

    JSON: {"queue", "at", "pending", "ready", "active", "backoff", "retry", "garbage", "dead", "living", "next_due",
    "oldest_due", "next_deadline", "totals": {…}}; with --watch a line each time. oldest_due is the due time of the
    message at the head of ready. Of a stream it is {"queue", "group", "group_exists", "ready", "active", "backoff",
    "dead"}, of a work queue {"queue", "queued", "processing"}.
    """
    look: Callable[[], Read]
    look = session.known(queue).stats if engine == "delay" else lambda: tally(session, engine, queue, group)
    if watch:
        _watch(queue, look, max(every.total_seconds(), 0.1), as_json=as_json)
    else:
        _print(queue, look(), as_json=as_json)


def _print(queue: str, read: Read, *, as_json: bool) -> None:
    if as_json:
        put_json(_facts(queue, read))
    else:
        show(_drawing(read))


def _watch(queue: str, look: Callable[[], Read], every: float, *, as_json: bool) -> None:
    from rich.live import Live

    printer = console()
    try:
        if as_json or not printer.is_terminal:
            while True:
                _print(queue, look(), as_json=as_json)
                if not as_json:
                    click.echo()
                time.sleep(every)
        with Live(console=printer, auto_refresh=False) as live:
            while True:
                live.update(_drawing(look()), refresh=True)
                time.sleep(every)
    except KeyboardInterrupt:
        return  # the way to end it


def _drawing(read: Read) -> RenderableType:
    from rich.console import Group

    if not isinstance(read, Stats):
        counts = [[state, f"{number:,}"] for state, number in read.counts.items()]
        drawn = table([Column("state"), Column("messages", right=True)], counts)
        return Group(drawn, "", clean(read.note)) if read.note else drawn
    details = {
        State.PENDING: read.next_due and f"next due {exactly(read.next_due, read.at)}",
        State.READY: read.oldest_due and f"oldest due {exactly(read.oldest_due, read.at)}",
        State.ACTIVE: read.next_deadline and f"next lease or backoff ends {when(read.next_deadline, read.at)}",
    }
    states = [state for state in State if state in _ALWAYS or getattr(read.counts, state)]
    rows = [[state, f"{getattr(read.counts, state):,}", details.get(state) or ""] for state in states]
    parts: list[Any] = [table([Column("state"), Column("messages", right=True), Column("", flexible=True)], rows)]
    if read.totals:
        totals = [[name, f"{number:,}"] for name, number in read.totals.items()]
        parts += ["", table([Column("since it was made"), Column("", right=True)], totals)]
    return Group(*parts)


def _facts(queue: str, read: Read) -> dict[str, Any]:
    if not isinstance(read, Stats):
        return {"queue": queue, **read.facts, **read.counts}
    return {
        "queue": queue,
        "at": iso(read.at),
        **_counts(read),
        "living": read.counts.living,
        **_times(read),
        "next_deadline": iso(read.next_deadline),
        "totals": dict(read.totals),
    }


def _counts(read: Stats) -> dict[str, int]:
    return {state: getattr(read.counts, state) for state in State}


def _times(read: Stats) -> dict[str, str | None]:
    return {"next_due": iso(read.next_due), "oldest_due": iso(read.oldest_due)}


def _lag(read: Stats) -> str:
    late = (read.at - read.oldest_due).total_seconds() if isinstance(read.oldest_due, datetime) else 0.0
    return span(late) if late >= 1 else ""
