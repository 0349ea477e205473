"""Actions on a whole queue: pause, limit, purge or remove it, list its workers and bulk sends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from delayq.broker.engine import Feature
from delayq.cli.queues.pause import label, pause_text
from delayq.cli.support.actions import Note, QueueAction, action_group
from delayq.cli.support.exit_codes import NotFoundError
from delayq.cli.support.groups import SuggestingGroup
from delayq.cli.support.options import DURATION, UNTIL, confirm, dry_run_option, yes_option
from delayq.cli.support.output import table
from delayq.cli.support.several import queues_with
from delayq.cli.support.zones import until_text
from delayq.queue.control.limits import Limit
from delayq.queue.control.pausing import Pause
from delayq.queue.inspecting.cold_tier import count_cold
from delayq.queue.inspecting.workers import WorkerInfo
from delayq.queue.sweeps.bulk_runs import RunInfo
from delayq.values.text import clean, format_duration, pluralize, relative_time

if TYPE_CHECKING:
    from delayq.queue.delay_queue import DelayQueue

_RUN_COUNTS = ("new", "exists", "replaced", "running", "settled", "refused")


@dataclass(frozen=True)
class Purged:
    """How many messages there were, and how many were deleted, the cold ones included."""

    matched: int
    purged: int
    dry_run: bool
    cold: int
    """How many of those that there were are cold."""


def _purge(queue: DelayQueue[Any], *, yes: bool, dry_run: bool) -> Purged:
    cold = queue.executor.call(count_cold(queue.context.calls))
    matched = queue.counts().living + cold
    if not dry_run:
        also = f"running ones and {cold:,} cold ones" if cold else "running ones"
        confirm(f"Delete {pluralize(matched, 'message')} of {queue.name}, {also} included?", yes=yes)
    return Purged(matched, 0 if dry_run else queue.purge(), dry_run, cold)


def _purged_text(done: Purged, _: Any) -> str:
    would, deleted = pluralize(done.matched, "message"), pluralize(done.purged, "message")
    cold = f", {done.cold:,} of them cold" if done.cold else ""
    return f"would delete {would}{cold}" if done.dry_run else f"deleted {deleted}{cold}"


def _remove(queue: DelayQueue[Any], *, yes: bool) -> bool:
    confirm(f"Remove {queue.name}, with its settings, totals, results and events?", yes=yes, dry_run=False)
    return queue.remove()


def _workers(found: list[WorkerInfo], of: Any) -> Iterator[Any]:
    """Return a row per worker, and what stands out; if all have one version, a line says it in place of a column."""
    if not found:
        yield Note(f"no worker of {of.queue} has reported")
        return
    titles = ["worker", "version", "state", "up", "holds", "runs for longest"]
    rows = [_worker_row(worker) for worker in found]
    of_one_version = len({worker.version for worker in found}) == 1
    if of_one_version:
        for row in (titles, *rows):
            del row[1]
    yield table(titles, rows, fill=True, wrap=True)
    for state in ("late", "silent"):
        if some := [worker for worker in found if worker.state == state]:
            held = pluralize(sum(worker.held for worker in some), "message")
            yield f"{state}: {pluralize(len(some), 'worker')}, which held {held} when last heard of"
    versions = Counter(worker.version for worker in found if worker.state != "silent")
    if len(versions) > 1:
        counted = (f"{clean(version)} ({number})" for version, number in sorted(versions.items()))
        yield f"mixed versions: {', '.join(counted)}"
    elif of_one_version:
        yield f"version {clean(found[0].version)}"


def _worker_row(worker: WorkerInfo) -> list[Any]:
    at = worker.reported + worker.age
    longest = f"{_duration(at - worker.running[0].since)}  {worker.running[0].id}" if worker.running else ""
    state = worker.state if worker.state == "working" else f"{worker.state} {_duration(worker.age)}"
    up = _duration(at - worker.started)
    return [f"{worker.host}:{worker.pid}", worker.version, state, up, worker.held, longest]


def _duration(time: timedelta) -> str:
    return format_duration(max(0.0, time.total_seconds()))


def _check_limit(rate: str | None, burst: int | None, running: int | None, *, in_order: bool, **_: Any) -> None:
    if rate is None and running is None and burst is None and not in_order:
        raise click.UsageError("say what to limit: --rate 200/s, --running 5, or both")


def _set_limit(queue: DelayQueue[Any], name: str | None, rate: str | None, **numbers: Any) -> Limit:
    queue.limits.set(name, rate_limit=rate, **numbers)
    return next(limit for limit in queue.limits.list() if limit.name == name)


def _limits(found: list[Limit], of: Any) -> Any:
    titles = ["name", "rate", "burst", "running", "throttled", "active", "state"]
    return table(titles, map(_limit_row, found)) if found else Note(f"no limits in {of.queue}")


def _limit_row(limit: Limit) -> list[str]:
    name = "(the queue)" if limit.name is None else clean(limit.name)
    numbers = [str(limit.burst) if limit.rate_limit else "", str(limit.running or "any")]
    differs = limit.declared is not None and not limit.is_declared
    declared = f"declared {_limit_text(limit.declared)}" if differs else ""
    state = ", ".join(filter(None, (_closed(limit), "in order" if limit.in_order else "", declared)))
    return [name, limit.rate_limit or "any", *numbers, str(limit.throttled), str(limit.active), state]


def _limit_text(limit: Any) -> str:
    in_order = ", in order" if getattr(limit, "in_order", False) else ""
    return f"{limit.rate_limit or 'any rate'}, {limit.running or 'any number'} running{in_order}"


def _closed(limit: Limit) -> str:
    if limit.paused is not None:
        return pause_text(limit.paused)
    now = datetime.now(UTC)
    if limit.closed_until is not None:
        return f"closed {until_text(limit.closed_until, now)}"
    if limit.tripped_until is not None:
        return f"tripped {until_text(limit.tripped_until, now)}" if limit.tripped_until > now else "tries the next"
    return "" if limit.spread_until is None else f"spread {until_text(limit.spread_until, now)}"


@dataclass(frozen=True)
class Runs:
    """The bulk sends of a queue."""

    runs: list[RunInfo]


@dataclass(frozen=True)
class RefusedMessage:
    """A message that a bulk send refused."""

    id: str
    reason: str


@dataclass(frozen=True)
class RefusedMessages:
    """What one bulk send refused."""

    refusals: list[RefusedMessage]


class _RunsGroup(SuggestingGroup):
    """A group whose default command is `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Treat the name of a queue without a command as that of `list`."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def _list_runs(queue: DelayQueue[Any], run: str | None) -> Runs | RefusedMessages:
    if run is None:
        return Runs(queue.runs())
    refused = queue.refusals(run)
    if not refused:
        _check_run(queue, run)
    return RefusedMessages([RefusedMessage(*one) for one in refused])


def _check_run(queue: DelayQueue[Any], run: str) -> None:
    """Raise `NotFoundError` for a run that the ledger does not have."""
    if run not in (names := [info.run for info in queue.runs()]):
        raise NotFoundError("run", run, names)


def _runs(found: Runs | RefusedMessages, of: Any) -> Any:
    if isinstance(found, RefusedMessages):
        rows = [(one.id, one.reason) for one in found.refusals]
        return table(["id", "reason"], rows, fill=True) if rows else Note(f"no refusals in the run {of.run}")
    if not found.runs:
        return Note(f"no runs in {of.queue}: a bulk send is recorded here if it names its run")
    counts = [[getattr(info, name) for name in _RUN_COUNTS] for info in found.runs]
    first = [[info.run, info.state, relative_time(info.started, of.now)] for info in found.runs]
    return table(["run", "state", "started", *_RUN_COUNTS], [a + b for a, b in zip(first, counts, strict=True)])


def _end_run(queue: DelayQueue[Any], run: str, *, aborted: bool) -> RunInfo:
    _check_run(queue, run)
    return queue.end_run(run, aborted=aborted)


def _forget_run(queue: DelayQueue[Any], run: str) -> None:
    _check_run(queue, run)
    queue.forget_run(run)


_run_argument = click.argument("run")
_name_option = click.option(
    "--name", metavar="NAME", help="Limit messages with this name, or each key of a template: account:*."
)
_rows = [
    QueueAction(
        "pause",
        Feature.PAUSE,
        """Pause QUEUE: no callback starts in any process, and no lease is given; all else goes on.

        Callbacks that run end as usual. Workers return what they have claimed and not started. Again: change the end
        and the reason. With --name, only messages of this name do not start, and others overtake them.

        JSON: {json}, and "name" with --name.
        """,
        call=lambda queue, until, **how: queue.pause(until, **how),
        shown=lambda pause, of: f"{label(of.queue, of.name)}  {pause_text(pause)}",
        json=("queue name? paused", Pause),
        options=[
            click.option("--name", metavar="NAME", help="Pause the messages with this name only."),
            click.option("--until", type=UNTIL, metavar="TIME", help="End by itself: 2h, or 2027-01-31T09:00."),
            click.option("--reason", default="", help="Say why; it is shown wherever the pause is."),
        ],
        of=partial(queues_with, names=True, titled=False),
    ),
    QueueAction(
        "resume",
        Feature.PAUSE,
        """End the pause of QUEUE, also that of a breaker: idle workers go on at once.

        JSON: {json}, and "name" with --name; false if there was no pause.
        """,
        call=lambda queue, **how: queue.resume(**how),
        shown=lambda resumed, of: f"{label(of.queue, of.name)}  {'resumed' if resumed else 'was not paused'}",
        json=("queue name? resumed", bool),
        options=[
            click.option("--name", metavar="NAME", help="End the pause of this name."),
            click.option(
                "--spread", type=DURATION, metavar="TIME", help="Start what waits evenly over this time: 10m."
            ),
        ],
        of=partial(queues_with, names=True, titled=False),
    ),
    QueueAction(
        "purge",
        Feature.PURGE,
        """Delete every message of QUEUE, even running ones; the dead letter stays.

        Cold messages do not come back, and their files stay.

        JSON: {json}.
        """,
        call=_purge,
        shown=_purged_text,
        json=("queue *", Purged),
        options=[yes_option, dry_run_option],
    ),
    QueueAction(
        "remove",
        Feature.REMOVE,
        """Remove QUEUE once it is empty: all of its keys, and its name in `delayq queues`.

        Its settings, totals, results, history and event log go with it. Refused, with exit code 1, while it has
        messages, dead or cold ones, schedules or live consumers. Stop the programs that send to it first: a send makes
        it anew.

        JSON: {json}.
        """,
        call=_remove,
        shown=lambda _, of: f"removed {of.queue}",
        json=("queue removed", bool),
        options=[yes_option],
    ),
    QueueAction(
        "workers",
        Feature.WORKERS,
        """List the consumers of QUEUE, as each reports every 10 s.

        A consumer is late after a missed report, silent after three: it was killed, or Redis does not hear it. It is
        listed for an hour then, with the time since its last report. One that has stopped is not listed. --json has all
        that a consumer reports.

        JSON: {json}; age is how long ago it reported, every how often it does, in seconds, served how many queues
        the worker serves, of which queues has ten, held how many messages it has claimed, running which of them are in
        its callbacks, a hundred at most.
        """,
        call=lambda queue: queue.workers(),
        shown=_workers,
        json=("workers", list[WorkerInfo]),
        of=partial(queues_with, names=True),
    ),
]
ACTIONS = {action.name: action for action in _rows}
limits = action_group(
    "limits",
    "List, set or remove limits of a queue and its names: how many messages start in a time, or run at a time.",
    [
        QueueAction(
            "list",
            Feature.LIMITS,
            """List the limits of QUEUE and its names, and the names that are paused.

            JSON: {json}; "name" is null for the limit of the whole queue, "declared" if no program declares one.
            """,
            call=lambda queue: queue.limits.list(),
            shown=_limits,
            json=("limits", list[Limit]),
            of=partial(queues_with, names=True),
            short="List limits.",
        ),
        QueueAction(
            "set",
            Feature.LIMITS,
            """Limit QUEUE, a name, or each key of a template, for all processes at once, and also for what waits.

            What is left out stays as it is. It counts until it is set or removed again, or a program declares another
            limit than before.

            JSON: {"queue", "limit": as in list}.
            """,
            call=_set_limit,
            shown=lambda limit, of: f"{label(of.queue, limit.name)}  {_limit_text(limit)}",
            json=("queue limit", Limit),
            options=[
                _name_option,
                click.option("--rate", metavar="N/UNIT", help="Start so many in a time: 200/s, 5/m, 3/10s."),
                click.option(
                    "--burst",
                    type=int,
                    metavar="N",
                    help="Start so many at once; by default what fits into 100 ms, and one.",
                ),
                click.option("--running", type=int, metavar="N", help="Run so many at a time."),
                click.option(
                    "--in-order", is_flag=True, help="Let none overtake another of its key, also after failures."
                ),
            ],
            short="Set a limit.",
            check=_check_limit,
        ),
        QueueAction(
            "remove",
            Feature.LIMITS,
            """Remove the limit of QUEUE, of a name or of a template, so that all it holds back starts.

            JSON: {json}; false if there was none.
            """,
            call=lambda queue, name: queue.limits.remove(name),
            shown=lambda removed, of: f"{label(of.queue, of.name)}  {'removed' if removed else 'had no limit'}",
            json=("queue name removed", bool),
            options=[_name_option],
            short="Remove a limit.",
        ),
    ],
)
runs = action_group(
    "runs",
    """List the bulk sends of a queue, end one, or forget one.

    `delayq runs QUEUE` is short for `delayq runs list QUEUE`.
    """,
    [
        QueueAction(
            "list",
            Feature.RUNS,
            """List the bulk sends of QUEUE, latest first; with RUN, list the messages that it refused to send.

            JSON: {json}; with RUN {"refusals": [{"id", "reason"}, …]}.
            """,
            call=_list_runs,
            shown=_runs,
            json=("*", Runs),
            options=[click.argument("run", required=False)],
            short="List bulk sends, or what one refused.",
        ),
        QueueAction(
            "end",
            Feature.RUNS,
            "Mark RUN of QUEUE as ended, if its sender cannot do so any more. Changes no messages.",
            call=_end_run,
            shown=lambda info, of: Note(f"run {of.run} is {info.state}"),
            options=[
                _run_argument,
                click.option("--aborted", is_flag=True, help="Mark it as aborted; by default it is committed."),
            ],
            short="Mark a bulk send as ended.",
        ),
        QueueAction(
            "forget",
            Feature.RUNS,
            "Delete RUN of QUEUE, and what it refused, from the ledger. Changes no messages.",
            call=_forget_run,
            shown=lambda _, of: Note(f"forgot run {of.run}"),
            options=[_run_argument],
            short="Delete a bulk send from the ledger.",
        ),
    ],
    _RunsGroup,
)
