"""`delayq workers`: lists the consumers of a queue, and what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import click

from delayq.broker.engine import Feature
from delayq.cli.options import json_option, queue_with
from delayq.cli.output import print_json, print_line, print_note, print_rich, table
from delayq.cli.session import Session
from delayq.queue.workers import WorkerInfo
from delayq.text import clean, format_duration, iso, pluralize

_TITLES = ["worker", "version", "state", "beat", "up", "queues", "callbacks", "holds", "runs for longest"]


@click.command()
@queue_with(Feature.WORKERS)
@json_option
@click.pass_obj
def workers(session: Session, queue: str, *, as_json: bool) -> None:
    """List the consumers of QUEUE, as each tells of itself every 10 s.

    A consumer is late after a missed beat, and silent after three: it was killed, or Redis does not hear it. It is
    listed for an hour then. One that has stopped is not listed.

    JSON: {"workers": [{"id", "host", "pid", "version", "state", "beat", "age", "started", "queues", "served",
    "concurrency", "held", "running": [{"id", "since"}, …]}, …]}; age is how long ago the beat was, in seconds, served
    how many queues the worker serves, of which queues has ten, held how many messages it has claimed, running which of
    them are in its callbacks, a hundred at most.
    """
    found = session.existing_queue(queue).workers()
    if as_json:
        print_json({"workers": [_json(worker) for worker in found]})
    elif not found:
        print_note(f"no worker of {queue} has told of itself")
    else:
        print_rich(table(_TITLES, [_row(worker) for worker in found]))
        for line in _remarks(found):
            print_line(line)


def _row(worker: WorkerInfo) -> list[str | int]:
    at = worker.beat + worker.age
    longest = ""
    if worker.running:
        first = worker.running[0]
        longest = f"{first.id}  {_duration(at - first.since)}"
    times = [f"{_duration(worker.age)} ago", _duration(at - worker.started)]
    numbers = [worker.served, worker.concurrency, worker.held]
    return [f"{worker.host}:{worker.pid}", worker.version, worker.state, *times, *numbers, longest]


def _duration(time: timedelta) -> str:
    return format_duration(max(0.0, time.total_seconds()))


def _remarks(found: Sequence[WorkerInfo]) -> list[str]:
    """Return what stands out: who does not tell of itself any more, and that the versions differ."""
    lines = []
    for state in ("late", "silent"):
        if some := [worker for worker in found if worker.state == state]:
            held = sum(worker.held for worker in some)
            last = f"held {pluralize(held, 'message')} when last heard of"
            lines.append(f"{state}: {pluralize(len(some), 'worker')}, which {last}")
    versions = Counter(worker.version for worker in found if worker.state != "silent")
    if len(versions) > 1:
        counted = ", ".join(f"{clean(version)} ({number})" for version, number in sorted(versions.items()))
        lines.append(f"mixed versions: {counted}")
    return lines


def _json(worker: WorkerInfo) -> dict[str, Any]:
    return {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
        "state": worker.state,
        "beat": iso(worker.beat),
        "age": worker.age.total_seconds(),
        "started": iso(worker.started),
        "queues": list(worker.queues),
        "served": worker.served,
        "concurrency": worker.concurrency,
        "held": worker.held,
        "running": [{"id": message.id, "since": iso(message.since)} for message in worker.running],
    }
