"""`delayq stats`: counts the messages of a queue, once or repeatedly."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from delayq.broker.engine import Feature
from delayq.cli.queues.history import lateness_json
from delayq.cli.queues.pause import pause_text
from delayq.cli.queues.queues import MAIN_STATES, counts_json, unconsumed
from delayq.cli.support.engines import ENGINES, StateCounts
from delayq.cli.support.options import DURATION, group_option, json_option
from delayq.cli.support.output import console, json_fields, print_json, print_rich, table
from delayq.cli.support.session import Session
from delayq.cli.support.several import queues_with
from delayq.cli.support.zones import exact_time
from delayq.queue.inspecting.counts import Stats
from delayq.queue.inspecting.lateness_report import percentile_text, slo_text
from delayq.values.states import State
from delayq.values.text import clean, iso, relative_time

if TYPE_CHECKING:
    from rich.console import RenderableType

    from delayq.queue.inspecting.memory_usage import MemoryUsage


@click.command()
@queues_with(Feature.COUNTS, names=True)
@group_option
@json_option
@click.option("--memory", is_flag=True, help="Also the bytes that it takes on its server, by structure.")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option("--every", type=DURATION, default="1s", help="Set the interval of --watch.")
@click.pass_obj
def stats(
    session: Session,
    queue: str,
    *,
    engine: str,
    group: str | None,
    as_json: bool,
    memory: bool,
    watch: bool,
    every: timedelta,
) -> None:
    """Count the messages of QUEUE in each state, and its totals since it was created.

    JSON, with --watch one line each time: {"queue", "at", "pending", "ready", "active", "backoff", "retry",
    "throttled", "garbage", "dead", "completed", "living", "cold", "successors", "next_due", "oldest_due",
    "next_deadline", "overdue", "lag", "nobody_consumes", "paused", "workers", "lateness": {"p50", "p90", "p99",
    "counts"}, "slo": {"objective", "counted", "late", "kept", "budget_left"}, "totals": {…}}.
    overdue is the number of messages that are due and wait for a consumer, lag how long the first has waited, in
    seconds, workers the number of consumers that run: delayq workers lists them. lateness is that of the messages that
    started in this hour and the last, at most, in seconds; slo how the objective lateness_slo was kept over 30 days, or
    null. A stream has {"queue", "group", "group_exists", "ready", "active", "backoff", "dead"}, a work queue {"queue",
    "queued", "processing"}. With --memory, also "memory": {"total", "structures": {…}, "unknown"}, in bytes.
    """
    if memory and (watch or engine != "delay"):
        raise click.UsageError("--memory is for delay queues, and does not go with --watch: asking takes a while")
    read = ENGINES[engine].commands(session, group=group).counting(queue)
    if watch:
        _watch(queue, read, max(every.total_seconds(), 0.1), as_json=as_json)
    else:
        _print(queue, read(), as_json=as_json, memory=session.queue(queue).memory_usage() if memory else None)


def _print(queue: str, found: Stats | StateCounts, *, as_json: bool, memory: MemoryUsage | None = None) -> None:
    if as_json:
        more = {} if memory is None else {"memory": {"total": memory.total, **json_fields(memory)}}
        print_json(_fields(queue, found) | more)
        return
    print_rich(_tables(queue, found))
    if memory is not None:
        unknown = [[name, "may not be read"] for name in memory.unknown]
        rows = [["total", f"{memory.total:,}"], *([name, f"{size:,}"] for name, size in memory.structures.items())]
        print_rich(table(["memory", "bytes"], [*rows, *unknown]))


def _watch(queue: str, read: Callable[[], Stats | StateCounts], interval: float, *, as_json: bool) -> None:
    from rich.live import Live

    printer = console()
    try:
        if as_json or not printer.is_terminal:
            while True:
                _print(queue, read(), as_json=as_json)
                if not as_json:
                    click.echo()
                time.sleep(interval)
        with Live(console=printer, auto_refresh=False) as live:
            while True:
                live.update(_tables(queue, read()), refresh=True)
                time.sleep(interval)
    except KeyboardInterrupt:
        return  # the way to end it


def _tables(queue: str, found: Stats | StateCounts) -> RenderableType:
    from rich.console import Group

    if not isinstance(found, Stats):
        counts = table(["state", "messages"], list(found.counts.items()))
        return Group(counts, "", clean(found.note)) if found.note else counts
    deadline = found.next_deadline
    details = {
        State.PENDING: found.next_due and f"next due {exact_time(found.next_due, found.at)}",
        State.THROTTLED: f"due, but over a limit or paused by name: delayq limits list {queue}",
        State.ACTIVE: deadline and f"next lease or backoff ends {relative_time(deadline, found.at)}",
    }
    states = [state for state in State if state in MAIN_STATES or getattr(found.counts, state)]
    rows: list[list[str | int]] = [[state, getattr(found.counts, state), details.get(state) or ""] for state in states]
    if found.counts.overdue:
        oldest = found.oldest_due and f"oldest due {exact_time(found.oldest_due, found.at)}"
        rows.append(["overdue", found.counts.overdue, oldest or ""])
        if found.limited and not found.counts.throttled:
            rows.append(["", "", f"the queue has limits: delayq limits list {queue}"])
    if found.counts.cold:
        rows.append(["cold", found.counts.cold, f"in files until shortly before they are due: delayq cold {queue}"])
    if found.counts.successors:
        rows.append(["waiting successors", found.counts.successors, ""])
    rows.append(["workers", found.workers, ""])
    if late := _lateness_text(found):
        rows.append(["lateness", "", late])
    counts = table(["state", "messages", ""], rows, fill=True, wrap=True)
    parts = [counts, "", unconsumed(found)] if found.nobody_consumes else [counts]
    if found.slo:
        parts += ["", slo_text(found.slo)]
    if found.counts.paused:
        parts += ["", pause_text(found.counts.paused, found.at)]
    return Group(*parts, "", table(["totals", ""], list(found.totals.items()))) if found.totals else Group(*parts)


def _lateness_text(found: Stats) -> str:
    shares = {"p50": 0.5, "p99": 0.99}
    texts = {name: percentile_text(found.lateness, share) for name, share in shares.items()}
    return ", ".join(f"{name} {text}" for name, text in texts.items() if text)


def _fields(queue: str, found: Stats | StateCounts) -> dict[str, Any]:
    if not isinstance(found, Stats):
        return {"queue": queue, **found.facts, **found.counts}
    return {
        "queue": queue,
        "at": iso(found.at),
        **counts_json(found),
        "living": found.counts.living,
        "cold": found.counts.cold,
        "successors": found.counts.successors,
        "next_deadline": iso(found.next_deadline),
        "workers": found.workers,
        "lateness": lateness_json(found.lateness),
        "slo": None if found.slo is None else json_fields(found.slo),
        "totals": dict(found.totals),
    }
