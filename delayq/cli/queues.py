"""`delayq queues`: lists the queues in use, with their message counts."""

from __future__ import annotations

from typing import Any

import click

from delayq.broker.engine import Feature
from delayq.cli.options import engine_option, json_option
from delayq.cli.output import print_json, print_line, print_note, print_rich, table
from delayq.cli.pause import pause_json, pause_text
from delayq.cli.session import Session
from delayq.queue.counts import Stats, waiting_text
from delayq.states import State
from delayq.text import format_duration, iso, relative_time

MAIN_STATES = (State.PENDING, State.READY, State.ACTIVE, State.BACKOFF, State.RETRY, State.DEAD)
"""States that are shown even if no message is in them; garbage is collected within seconds."""


@click.command()
@engine_option(Feature.REGISTRY)
@json_option
@click.pass_obj
def queues(session: Session, *, as_json: bool) -> None:
    """List the queues in use, with the number of messages in each state.

    JSON: {"queues": [{"queue", "pending", "ready", "active", "backoff", "retry", "throttled", "garbage", "dead",
    "completed", "next_due", "oldest_due", "overdue", "lag", "nobody_consumes", "paused"}, …]}. overdue is how many
    messages are due and wait for a consumer, lag how long the first has waited, in seconds, paused null or
    {"until", "reason"}.
    """
    names = session.queue_names()
    found = dict(zip(names, session.stats(names), strict=True))
    if as_json:
        print_json({"queues": [{"queue": name, **counts_json(stats)} for name, stats in found.items()]})
    elif not found:
        print_note(f"no queues with the prefix {session.prefix!r}: a queue is listed once a message was sent to it")
    else:
        rows = [_row(name, stats) for name, stats in found.items()]
        print_rich(table(["queue", *MAIN_STATES, "overdue", "lag", "next due"], rows))
        for name, stats in found.items():
            if stats.counts.paused:
                print_line(f"{name}: {pause_text(stats.counts.paused, stats.at)}")
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
        "paused": pause_json(stats.counts.paused),
    }


def _row(name: str, stats: Stats) -> list[str | int]:
    counts = [getattr(stats.counts, state) for state in MAIN_STATES]
    lag = stats.lag.total_seconds()
    lag_text = format_duration(lag) if lag >= 1 else ""
    return [name, *counts, stats.counts.overdue, lag_text, relative_time(stats.next_due, stats.at)]
