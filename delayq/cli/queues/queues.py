"""`delayq queues`: lists the queues in use, with their message counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import click

from delayq.broker.engine import Feature
from delayq.cli.queues.pause import label, pause_text
from delayq.cli.support.exit_codes import Exit
from delayq.cli.support.options import engine_option, json_option
from delayq.cli.support.output import json_value, print_json, print_line, print_note, print_rich, table
from delayq.cli.support.session import Session
from delayq.errors import ServerError
from delayq.queue.control.pausing import Pause
from delayq.queue.inspecting.counts import Stats, waiting_text
from delayq.values.states import State
from delayq.values.text import clean, format_duration, iso, relative_time

MAIN_STATES = (State.PENDING, State.READY, State.ACTIVE, State.BACKOFF, State.RETRY, State.DEAD)
"""States that are shown even if no message is in them; the others, if any has one."""


@click.command()
@engine_option(Feature.REGISTRY)
@json_option
@click.pass_obj
def queues(session: Session, *, as_json: bool) -> Exit:
    """List the queues in use, with the number of messages in each state.

    A queue that Redis refuses to read is shown with the error; the exit code is then 1.

    JSON: {"queues": [{"queue", "pending", "ready", "active", "backoff", "retry", "throttled", "garbage", "dead",
    "completed", "next_due", "oldest_due", "overdue", "lag", "nobody_consumes", "paused", "paused_names"}, …]}. overdue
    is how many messages are due and wait for a consumer, lag how long the first has waited, in seconds, paused null or
    {"until", "reason"}, paused_names an object with the same of each name. If it cannot be read: {"queue", "error"}.
    """
    stats = session.stats(session.registered_names())
    found = {name: _read(session, name, one) for name, one in stats.items()}
    if as_json:
        print_json({"queues": [{"queue": name, **_fields(row)} for name, row in found.items()]})
    elif not found:
        print_note(f"no queues with the prefix {session.prefix!r}: a queue is listed once a message was sent to it")
    else:
        _print(found)
    failed = any(isinstance(row, ServerError) for row in found.values())
    return Exit.FAILURE if failed else Exit.OK


class _Row(NamedTuple):
    """What is shown of one queue."""

    stats: Stats
    paused_names: dict[str, Pause]


def _read(session: Session, name: str, found: Stats | ServerError) -> _Row | ServerError:
    """Return the row of a queue, or why Redis refuses to read it."""
    if isinstance(found, ServerError):
        return found
    try:  # one more round trip, only for a queue that has limits
        limits = session.queue(name).limits.list() if found.limited else []
    except ServerError as error:
        return error
    return _Row(found, {limit.name: limit.paused for limit in limits if limit.name is not None and limit.paused})


def _fields(row: _Row | ServerError) -> dict[str, Any]:
    if isinstance(row, ServerError):
        return {"error": str(row)}
    return {**counts_json(row.stats), "paused_names": json_value(row.paused_names)}


def _print(found: dict[str, _Row | ServerError]) -> None:
    readable = {name: row for name, row in found.items() if isinstance(row, _Row)}
    if readable:
        counts = [row.stats.counts for row in readable.values()]
        states = [state for state in State if state in MAIN_STATES or any(getattr(one, state) for one in counts)]
        rows = [_cells(name, row.stats, states) for name, row in readable.items()]
        print_rich(table(["queue", *states, "overdue", "lag", "next due"], rows))
    for name, row in found.items():
        if isinstance(row, ServerError):
            print_line(clean(f"{name}: {row}"))
            continue
        stats = row.stats
        if stats.counts.paused:
            print_line(f"{name}: {pause_text(stats.counts.paused, stats.at)}")
        for paused, pause in row.paused_names.items():
            print_line(f"{label(name, paused)}: {pause_text(pause, stats.at)}")
        if stats.nobody_consumes:
            print_line(f"{name}: {unconsumed(stats)}")


def unconsumed(stats: Stats) -> str:
    """Return that messages wait and nobody consumes, with what to do."""
    return f"due, and nobody consumes: {waiting_text(stats)}; start a worker"


def counts_json(stats: Stats) -> dict[str, Any]:
    """Return the number of messages in each state, and the times of the next and the oldest, for JSON."""
    counts: dict[str, Any] = {state: getattr(stats.counts, state) for state in State}
    return {
        **counts,
        "next_due": iso(stats.next_due),
        "oldest_due": iso(stats.oldest_due),
        "overdue": stats.counts.overdue,
        "lag": stats.lag.total_seconds(),
        "nobody_consumes": stats.nobody_consumes,
        "paused": json_value(stats.counts.paused),
    }


def _cells(name: str, stats: Stats, states: Iterable[State]) -> list[str | int]:
    counts = [getattr(stats.counts, state) for state in states]
    lag = stats.lag.total_seconds()
    lag_text = format_duration(lag) if lag >= 1 else ""
    return [name, *counts, stats.counts.overdue, lag_text, relative_time(stats.next_due, stats.at)]
