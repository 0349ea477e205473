"""Actions on schedules, by their names, a label or a prefix, and on single occurrences of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

import click

from delayq.broker.engine import Feature
from delayq.cli.support.actions import Note, QueueAction
from delayq.cli.support.exit_codes import Exit, NotFoundError
from delayq.cli.support.options import DURATION, LOCAL_TIME, UNTIL, WHEN, F, dry_run_option, options_as, retries_option
from delayq.cli.support.output import table
from delayq.cli.support.zones import own_iso, read_time, zoned_iso
from delayq.errors import ConfigurationError, UnknownScheduleError
from delayq.queue.scheduling.schedule_history import OccurrenceHistory, ScheduleHistory
from delayq.queue.scheduling.schedule_occurrences import MAX_BACKFILL, MAX_LIMIT
from delayq.schedules.occurrences import Backfill, OccurrenceChange
from delayq.values.text import format_duration, pluralize

if TYPE_CHECKING:
    from delayq.queue.delay_queue import DelayQueue


class Chosen(NamedTuple):
    """The schedules that a command is about, apart from those it names."""

    label: str | None
    prefix: str | None

    @property
    def given(self) -> bool:
        """Whether there is a label or a prefix."""
        return self != (None, None)


chosen_options = options_as(
    Chosen,
    "chosen",
    [
        click.option("--label", metavar="LABEL", help="Select the schedules with this label: user:42."),
        click.option("--prefix", metavar="TEXT", help="Select the schedules whose names begin with this."),
    ],
)


def rule_options(*, new: bool) -> Callable[[F], F]:
    """Return what adds the options of a schedule, with their defaults for a new one."""
    zone = ".  [default: UTC]" if new else ", but not for elapsed time."
    late = "  [default: 60s, or until the next]" if new else ""

    def default(value: str) -> str | None:
        return value if new else None

    options = [
        click.option(
            "--cron", metavar="EXPRESSION", help="Send at the times of a cron expression: '0 9 * * MON-FRI', '@daily'."
        ),
        click.option(
            "--rrule", metavar="RULE", help="Send by a recurrence rule: 'FREQ=MONTHLY;BYDAY=-1FR'; see --start."
        ),
        click.option("--tz", is_eager=True, metavar="ZONE", help=f"Use the wall clock of this time zone{zone}"),
        click.option("--every", type=DURATION, help="Send at this interval: 30s, 15m; with --tz whole days: 2d, 1w."),
        retries_option(default("3") or "as it is"),
        click.option("--start", type=LOCAL_TIME, metavar="TIME", help="Start at this time: 2027-01-31T09:00."),
        click.option("--end", type=LOCAL_TIME, metavar="TIME", help="End at this time."),
        click.option("--count", type=click.IntRange(1), metavar="N", help="End after N messages."),
        click.option(
            "--misfire", metavar="skip|once|N", default=default("once"), help="Send this many missed occurrences."
        ),
        click.option(
            "--except",
            "except_",
            multiple=True,
            metavar="DAYS",
            help="Leave out these days: 2026-12-24, holidays:DE, holidays:DE-BY, school.ics; repeatable.",
        ),
        click.option(
            "--jitter",
            type=DURATION,
            default=default("0"),
            help="Make each message due up to this long after its occurrence.",
        ),
        click.option(
            "--overlap",
            type=click.Choice(["allow", "skip", "after"]),
            default=default("allow"),
            help="What to do while the message before has not ended.",
        ),
        click.option(
            "--hours",
            metavar="HOURS",
            help="Deliver only within these hours of --tz: '08:00-21:00', 'MON-FRI 09:00-17:00'.",
        ),
        click.option(
            "--late-after",
            type=DURATION,
            help=f"Treat an occurrence later than this as missed.{late}",
        ),
    ]

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def not_found(queue: DelayQueue[Any], name: str) -> NotFoundError:
    """Return the error for a name that no schedule has, with similar names of up to a page."""
    return NotFoundError("schedule", name, [info.name for info in queue.schedules.page(limit=1000).schedules])


def of_one(act: Callable[..., Any]) -> Callable[..., Any]:
    """Return what does `act` with a queue and the name of a schedule, and suggests a name if there is none."""

    def call(queue: DelayQueue[Any], name: str, **options: Any) -> Any:
        try:
            return act(queue, name, **options)
        except UnknownScheduleError:
            raise not_found(queue, name) from None

    return call


# Changes of whole schedules


class Changed(NamedTuple):
    """What was done with which schedules, and the error for one that was named and does not exist."""

    lines: list[str]
    missing: NotFoundError | None = None

    @property
    def exit_code(self) -> Exit:
        """The exit code, unless a schedule is missing."""
        if self.missing is not None:
            raise self.missing
        return Exit.OK


def _check_chosen(names: tuple[str, ...], chosen: Chosen, **_: Any) -> None:
    if bool(names) is chosen.given:
        raise click.UsageError("select schedules: give their names, or --label, --prefix or both")


def _on_schedules(name: str, short: str, about: str, done: str, act: Callable[..., Any], *options: Any) -> QueueAction:
    """Return an action on schedules that are named or chosen; `act` calls one of their methods."""

    def call(queue: DelayQueue[Any], names: tuple[str, ...], chosen: Chosen, **how: Any) -> Changed:
        if chosen.given:
            return Changed([f"{pluralize(act(queue.schedules, **chosen._asdict(), **how), 'schedule')} {done}"])
        lines: list[str] = []
        missing = None
        for one in names:
            try:
                # 0 of `remove` says that there was none; the others raise.
                found = act(queue.schedules, one, **how) or name != "remove"
            except UnknownScheduleError:
                found = False
            if found:
                lines.append(f"{one}  {done}")
            else:
                missing = not_found(queue, one)
        return Changed(lines, missing)

    return QueueAction(
        name,
        Feature.SCHEDULES,
        about,
        call,
        shown=lambda changed, _: changed.lines,
        options=[click.argument("names", metavar="[NAME]...", nargs=-1), chosen_options, *options],
        short=short,
        check=_check_chosen,
    )


def _set(schedules: Any, *names: str, misfire: str | None, **options: Any) -> Any:
    policy = int(misfire) if misfire and misfire.isdecimal() else misfire
    given = {name: value for name, value in {"misfire": policy, **options}.items() if value not in (None, ())}
    return schedules.set(*names, **given)


# Occurrences

_TIME = "2026-12-24T09:00"
_name_argument = click.argument("name")
_time_argument = click.argument("occurrence", metavar="TIME")


def _time(queue: DelayQueue[Any], name: str, text: str) -> Any:
    """Return a date, or a time in the zone of the schedule unless it has one."""
    info = queue.schedules.get(name)
    if info is None:
        raise UnknownScheduleError
    if len(text) == len("2026-12-24"):
        with suppress(ValueError):  # raised below, with what is allowed
            return date.fromisoformat(text)
    return read_time(text, "TIME", f"{_TIME} or 2026-12-24", zone=ZoneInfo(info.tz))


def _move(queue: DelayQueue[Any], name: str, occurrence: str, to: str) -> list[OccurrenceChange]:
    times = [_time(queue, name, text) for text in (occurrence, to)]
    for time in times:
        if not isinstance(time, datetime):
            raise ConfigurationError(f"move takes times such as {_TIME}, not the date {time}")
    return [queue.schedules.move(name, *times)]


def _changes(changes: list[OccurrenceChange], _: Any) -> Iterator[str]:
    for one in changes:
        due = f", due {own_iso(one.due)}" if one.due and one.due != one.occurrence else ""
        yield f"{own_iso(one.occurrence)}  {one.outcome}{due}"


def _on_occurrence(name: str, short: str, about: str, act: Callable[..., Any], *options: Any) -> QueueAction:
    """Return an action on the occurrences at a time."""
    return QueueAction(
        name,
        Feature.SCHEDULES,
        about,
        of_one(act),
        _changes,
        json=("occurrences", list[OccurrenceChange]),
        options=[_name_argument, _time_argument, *options],
        short=short,
    )


def _sent(done: Backfill, of: Any) -> Iterator[str]:
    if not of.dry_run:
        yield f"{of.name}  {pluralize(done.sent, 'message')} sent, {done.existed:,} existed"
        return
    yield from map(own_iso, done.times)
    yield f"{pluralize(len(done.times), 'occurrence')}, nothing was sent"


def _history(queue: DelayQueue[Any], name: str, number: int) -> ScheduleHistory:
    found = queue.schedules.history(name, limit=number)
    if not found.occurrences and queue.schedules.get(name) is None:
        raise UnknownScheduleError
    return found


def _occurrences(found: ScheduleHistory, of: Any) -> Iterator[Any]:
    if found.occurrences:
        yield table(["occurrence", "result", "late", "attempts", "error"], map(_occurrence_row, found.occurrences))
    if found.since is None:
        yield Note(f"no events in {of.queue}; if its log is off, turn it on: delayq events {of.queue} --on")
    elif len(found.occurrences) < of.number:
        reach = "the log was read back to" if found.more else "the log begins at"
        yield Note(f"{reach} {zoned_iso(found.since)}")


def _occurrence_row(one: OccurrenceHistory) -> list[str | int]:
    late = "" if one.lateness is None else format_duration(max(0.0, one.lateness))
    return [zoned_iso(one.occurrence), str(one.result), late, one.attempts, one.error or ""]


ACTIONS = [
    _on_schedules(
        "pause",
        "Stop schedules from firing for now.",
        """Pause schedules of QUEUE, by NAME or with a label: they do not fire until you resume them, or --until a time.

        A schedule goes on with its first occurrence from then on. Again: change the end.
        """,
        "paused",
        lambda schedules, *names, **how: schedules.pause(*names, **how),
        click.option("--until", type=UNTIL, metavar="TIME", help="End by itself: 2h, or 2027-01-31T09:00."),
    ),
    _on_schedules(
        "resume",
        "Let paused schedules fire again.",
        "Resume schedules of QUEUE, by NAME or with a label; occurrences during the pause are not fired.",
        "resumed",
        lambda schedules, *names, **how: schedules.resume(*names, **how),
    ),
    _on_schedules(
        "remove",
        "Remove schedules.",
        "Remove schedules of QUEUE, by NAME or with a label; messages they already sent stay.",
        "removed",
        lambda schedules, *names, **how: schedules.remove(*names, **how),
    ),
    _on_schedules(
        "set",
        "Change options of schedules.",
        """Change options of schedules of QUEUE, by NAME or with a label, and keep the others.

        For example --label user:42 --tz Europe/Paris.
        """,
        "changed",
        _set,
        rule_options(new=False),
    ),
    _on_occurrence(
        "skip",
        "Skip occurrences of a schedule.",
        """Skip the occurrence of the schedule NAME of QUEUE at TIME, or on a date such as 2026-12-24.

        TIME is in the zone of the schedule unless it has one, as `delayq schedules next` prints it. If the occurrence
        has fired and its message still waits, that is cancelled.

        JSON: {json}; "due" is null if it is skipped.
        """,
        lambda queue, name, occurrence: queue.schedules.skip(name, _time(queue, name, occurrence)),
    ),
    _on_occurrence(
        "move",
        "Move one occurrence of a schedule.",
        """Move the occurrence of the schedule NAME of QUEUE at TIME to another time.

        Times are in the zone of the schedule unless they have one. If the occurrence has fired and its message still
        waits, that is rescheduled.

        JSON: like `delayq schedules skip`.
        """,
        _move,
        click.option("--to", metavar="TIME", required=True, help="Set this due time."),
    ),
    _on_occurrence(
        "restore",
        "Take back a skip or a move.",
        """Let the skipped or moved occurrence of the schedule NAME of QUEUE at TIME, or on a date, occur as its rule
        says.

        JSON: like `delayq schedules skip`.
        """,
        lambda queue, name, occurrence: queue.schedules.restore(name, _time(queue, name, occurrence)),
    ),
    QueueAction(
        "backfill",
        Feature.SCHEDULES,
        """Send a message for each past occurrence of the schedule NAME of QUEUE between two times.

        Occurrences whose messages are in the queue are left out. The next occurrence, which the schedule fires itself,
        and all after it are left out, too.

        JSON: {json}; the times are in UTC.
        """,
        call=of_one(lambda queue, name, start, end, **how: queue.schedules.backfill(name, start, end, **how)),
        shown=_sent,
        json=("name *", Backfill),
        options=[
            _name_argument,
            click.option(
                "--from",
                "start",
                type=WHEN,
                required=True,
                metavar="TIME",
                help="Begin with this time: 2027-01-31T09:00.",
            ),
            click.option(
                "--until", "end", type=WHEN, default="now", metavar="TIME", help="End before this time.  [default: now]"
            ),
            click.option(
                "--limit",
                type=click.IntRange(1, MAX_LIMIT),
                metavar="N",
                default=MAX_BACKFILL,
                help=f"Send nothing if there are more than N.  [default: {MAX_BACKFILL:,}]",
            ),
            dry_run_option,
        ],
        short="Send past occurrences of a schedule.",
    ),
    QueueAction(
        "history",
        Feature.SCHEDULES,
        """Show what became of the latest occurrences of the schedule NAME of QUEUE that have fired, newest first.

        This is read from the event log, which is off until you turn it on: delayq events QUEUE --on.

        JSON: {json}; "lateness" is in seconds, "since" is the time of the oldest event that was read, and "more" is
        true if the log reaches further back.
        """,
        call=of_one(_history),
        shown=_occurrences,
        json=("*", ScheduleHistory),
        options=[
            _name_argument,
            click.option(
                "-n", "--number", type=click.IntRange(1, 1000), metavar="N", default=20, help="Show N occurrences."
            ),
        ],
        short="Show what became of occurrences.",
    ),
    QueueAction(
        "run",
        Feature.SCHEDULES,
        "Send one message of the schedule NAME of QUEUE now, even if it is paused; print its id.",
        call=of_one(lambda queue, name: queue.schedules.run_now(name)),
        shown=lambda sent, _: sent.id,
        options=[_name_argument],
        short="Send a message of a schedule now.",
    ),
]
