"""`delayq workers`: lists the consumers of a queue, and what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from delayq.broker.engine import Feature
from delayq.cli.support.options import json_option, queue_with
from delayq.cli.support.output import print_json, print_line, print_note, print_rich, table
from delayq.cli.support.session import Session
from delayq.queue.inspecting.workers import WorkerInfo
from delayq.values.text import clean, format_duration, iso, pluralize

if TYPE_CHECKING:
    from rich.console import RenderableType

_TITLES = ["worker", "version", "state", "up", "holds", "runs for longest"]
_VERSION = _TITLES.index("version")


@click.command()
@queue_with(Feature.WORKERS)
@json_option
@click.pass_obj
def workers(session: Session, queue: str, *, as_json: bool) -> None:
    """List the consumers of QUEUE, as each tells of itself every 10 s.

    A consumer is late after a missed beat, and silent after three: it was killed, or Redis does not hear it. It is
    listed for an hour then, with the time since its last beat. One that has stopped is not listed. --json has all that
    a consumer tells.

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
        print_rich(_table(found))
        for line in _remarks(found):
            print_line(line)


def _table(found: Sequence[WorkerInfo]) -> RenderableType:
    """Return a row per worker; if all have one version, a line says it in place of a column."""
    titles, rows = list(_TITLES), [_row(worker) for worker in found]
    if _of_one_version(found):
        del titles[_VERSION]
        for row in rows:
            del row[_VERSION]
    return table(titles, rows, fill=True, wrap=True)


def _row(worker: WorkerInfo) -> list[str | int]:
    at = worker.beat + worker.age
    longest = ""
    if worker.running:
        first = worker.running[0]
        longest = f"{_duration(at - first.since)}  {first.id}"
    state = worker.state if worker.state == "working" else f"{worker.state} {_duration(worker.age)}"
    name = f"{worker.host}:{worker.pid}"
    return [name, worker.version, state, _duration(at - worker.started), worker.held, longest]


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
    elif _of_one_version(found):
        lines.append(f"version {clean(found[0].version)}")
    return lines


def _of_one_version(found: Sequence[WorkerInfo]) -> bool:
    return len({worker.version for worker in found}) == 1


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
