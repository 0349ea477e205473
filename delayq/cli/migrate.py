"""`delayq migrate`: taking over a queue of the Go library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.failure import Exit, Failure
from delayq.cli.options import QUEUE, dry_run_option, json_option
from delayq.cli.output import Column, console, put, put_json, say, show, table
from delayq.cli.session import Session
from delayq.cli.text import counted
from delayq.errors import ConfigurationError
from delayq.keys import check_name

if TYPE_CHECKING:
    from delayq.migrate import Migration


@click.command()
@click.argument("name")
@click.option("--to", type=QUEUE, metavar="QUEUE", help="The queue of delayq; by default that of the same name.")
@click.option("--from-url", metavar="URL", help="Where the Go queue is, if it is not where --url says.")
@click.option(
    "--from-prefix", default="dp", show_default=True, metavar="TEXT", help="First part of its keys: UseCustomPrefix."
)
@click.option("--take-leased", is_flag=True, help="Also take what Go workers hold: it is due when their leases end.")
@click.option("--with-garbage", is_flag=True, help="Also take what has failed for good: it is delivered once more.")
@dry_run_option
@json_option
@click.pass_context
def migrate(
    ctx: click.Context,
    name: str,
    *,
    to: str | None,
    from_url: str | None,
    from_prefix: str,
    take_leased: bool,
    with_garbage: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Move the messages of NAME, a queue of the Go library hdt3213/delayqueue, to a queue of delayq.

    Stop the Go consumers first. Cut off at any point, run it again: nothing is lost or doubled. What cannot be moved
    is listed and left.

    Exit code 1 if something is left that Go would still deliver, or if Go workers are at work; 3 if there is no such
    queue.

    JSON: {"name", "queue", "dry_run", "complete", "came", "places": {"pending": {"found", "moved", "left"}, …}, "left":
    {REASON: number, …}, "listed": [{"place", "id", "reason"}, …]}.
    """
    from delayq.migrate import migrate as move

    session: Session = ctx.obj
    with _progress() as tell:
        made = move(
            name,
            to or _same(name),
            from_url=from_url,
            from_prefix=from_prefix,
            dry_run=dry_run,
            take_leased=take_leased,
            with_garbage=with_garbage,
            tell=tell,
            **{**session.options, "redis": session.executor.client},
        )
    if not made.found.total():
        raise Failure(f"no queue of the Go library named {name!r}", Exit.NOT_FOUND)
    if as_json:
        put_json(_facts(made))
    else:
        _print(made)
    ctx.exit(Exit.OK if made.complete else Exit.FAILURE)


def _same(name: str) -> str:
    try:
        return check_name(name)
    except ConfigurationError as error:
        raise click.UsageError(f"{error}; give another one with --to") from error


def _places(made: Migration) -> dict[str, dict[str, int]]:
    from delayq.go_queue import PLACES

    numbers = {
        place: {
            "found": made.found[place],
            "moved": made.moved[place],
            "left": sum(number for (where, _), number in made.left.items() if where == place),
        }
        for place in PLACES
    }
    return {place: found for place, found in numbers.items() if any(found.values())}


def _facts(made: Migration) -> dict[str, Any]:
    return {
        "name": made.name,
        "queue": made.queue,
        "dry_run": made.dry_run,
        "complete": made.complete,
        "came": made.came,
        "places": _places(made),
        "left": made.reasons,
        "listed": [{"place": one.place, "id": one.id, "reason": one.why} for one in made.listed],
    }


def _print(made: Migration) -> None:
    columns = [Column("place"), Column("found", right=True), Column("to move" if made.dry_run else "moved", right=True)]
    rows = [(place, *(f"{number:,}" for number in facts.values())) for place, facts in _places(made).items()]
    show(table([*columns, Column("left", right=True)], rows))
    for one in made.listed:
        put(f"{one.place}  {one.id}  {one.why}")
    if len(made.listed) < made.left.total():
        put(f"… and {made.left.total() - len(made.listed):,} more")
    reasons = ", ".join(f"{number:,} {why}" for why, number in made.reasons.items())
    put(
        f"{'would move' if made.dry_run else 'moved'} {counted(made.moved.total(), 'message')} of {made.name} to"
        f" {made.queue}; left {made.left.total():,}{f': {reasons}' if reasons else ''}"
    )
    if made.came:
        say(f"{counted(made.came, 'message')} came meanwhile: stop what sends to the Go queue, and run it again")


@contextmanager
def _progress() -> Iterator[Callable[[Migration], None]]:
    """Show on a terminal how far it is."""
    printer = console(stderr=True)
    if not printer.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    with Progress(
        BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=printer, transient=True
    ) as progress:
        task = progress.add_task("", total=None)
        yield lambda made: progress.update(
            task, total=made.found.total(), completed=made.moved.total() + made.left.total()
        )
