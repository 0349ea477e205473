"""`delayq schedules pause|resume|remove|set`: changes schedules by their names, by a label, or by a prefix."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import click

from delayq.broker.engine import Feature
from delayq.cli.support.exit_codes import CommandError, NotFoundError
from delayq.cli.support.options import DURATION, LOCAL_TIME, options_as, queue_with, retries_option
from delayq.cli.support.output import print_line
from delayq.cli.support.session import Session
from delayq.errors import UnknownScheduleError
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.scheduling.schedules import Schedules
from delayq.values.text import pluralize

of_queue = queue_with(Feature.SCHEDULES)
names_argument = click.argument("names", metavar="[NAME]...", nargs=-1)


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


def not_found(queue: DelayQueue[Any], name: str) -> NotFoundError:
    """Return the error for a name that no schedule has, with similar names of up to a page."""
    return NotFoundError("schedule", name, [info.name for info in queue.schedules.page(limit=1000).schedules])


def _act(session: Session, queue: str, names: tuple[str, ...], chosen: Chosen, *, act: Any, done: str) -> None:
    """Act on schedules and report it; raise `NotFoundError` at the end if one that was named does not exist."""
    if bool(names) is chosen.given:
        raise click.UsageError("select schedules: give their names, or --label, --prefix or both")
    opened = session.existing_queue(queue)
    if chosen.given:
        print_line(f"{pluralize(act(opened.schedules, **chosen._asdict()), 'schedule')} {done}")
        return
    missing: list[CommandError] = []
    for name in names:
        try:
            # 0 of `remove` says that there was none; the others raise.
            found = act(opened.schedules, name) or act is not Schedules.remove
        except UnknownScheduleError:
            found = False
        if found:
            print_line(f"{name}  {done}")
        else:
            missing.append(not_found(opened, name))
    if missing:
        raise missing[-1]


@click.command(short_help="Stop schedules from firing for now.")
@of_queue
@names_argument
@chosen_options
@click.pass_obj
def pause(session: Session, queue: str, names: tuple[str, ...], chosen: Chosen) -> None:
    """Pause schedules of QUEUE, by NAME or with a label: they do not fire until you resume them."""
    _act(session, queue, names, chosen, act=Schedules.pause, done="paused")


@click.command(short_help="Let paused schedules fire again.")
@of_queue
@names_argument
@chosen_options
@click.pass_obj
def resume(session: Session, queue: str, names: tuple[str, ...], chosen: Chosen) -> None:
    """Resume schedules of QUEUE, by NAME or with a label; occurrences during the pause are not fired."""
    _act(session, queue, names, chosen, act=Schedules.resume, done="resumed")


@click.command(short_help="Remove schedules.")
@of_queue
@names_argument
@chosen_options
@click.pass_obj
def remove(session: Session, queue: str, names: tuple[str, ...], chosen: Chosen) -> None:
    """Remove schedules of QUEUE, by NAME or with a label; messages they already sent stay."""
    _act(session, queue, names, chosen, act=Schedules.remove, done="removed")


@click.command("set", short_help="Change options of schedules.")
@of_queue
@names_argument
@chosen_options
@click.option("--cron", metavar="EXPRESSION", help="Send at the times of a cron expression.")
@click.option("--rrule", metavar="RULE", help="Send by a recurrence rule of iCalendar.")
@click.option(
    "--tz", is_eager=True, metavar="ZONE", help="Use the wall clock of this time zone, but not for elapsed time."
)
@click.option("--every", type=DURATION, help="Send at this interval.")
@retries_option("as it is")
@click.option("--start", type=LOCAL_TIME, metavar="TIME", help="Start at this time.")
@click.option("--end", type=LOCAL_TIME, metavar="TIME", help="End at this time.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after N messages.")
@click.option("--misfire", metavar="skip|once|N", help="Send this many missed occurrences.")
@click.option("--except", "except_", multiple=True, metavar="DAYS", help="Leave out these days; repeatable.")
@click.option("--jitter", type=DURATION, help="Make each message due up to this long after its occurrence.")
@click.option(
    "--overlap",
    type=click.Choice(["allow", "skip", "after"]),
    help="What to do while the message before has not ended.",
)
@click.option("--late-after", type=DURATION, help="Treat an occurrence later than this as missed.")
@click.pass_obj
def set_(session: Session, /, queue: str, names: tuple[str, ...], *, chosen: Chosen, **options: Any) -> None:
    """Change options of schedules of QUEUE, by NAME or with a label, and keep the others.

    For example --label user:42 --tz Europe/Paris.
    """
    if options["misfire"] and options["misfire"].isdecimal():
        options["misfire"] = int(options["misfire"])
    given = {name: value for name, value in options.items() if value not in (None, ())}
    _act(session, queue, names, chosen, act=partial(Schedules.set, **given), done="changed")
