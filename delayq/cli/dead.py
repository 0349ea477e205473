"""`delayq dead`: listing, redriving and purging the dead letter of a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from delayq.cli.engines import engine_option, open_dead
from delayq.cli.failure import Exit
from delayq.cli.messages import columns_of, pages_from, print_pages
from delayq.cli.options import confirm, dry_run_option, json_option, page_options, queue_argument, yes_option
from delayq.cli.output import put, put_json, say
from delayq.cli.session import Session
from delayq.cli.text import counted
from delayq.inspector import MOST_ROWS, MessageInfo, Page
from delayq.states import State

F = TypeVar("F", bound=Callable[..., Any])


class Which(NamedTuple):
    """Which entries are meant: some by id or entry, those that match, or all."""

    ids: tuple[str, ...]
    reason: str | None
    error: str | None
    all: bool

    def check(self, *, dry_run: bool) -> None:
        """Refuse to guess."""
        if sum((bool(self.ids), self.reason is not None or self.error is not None, self.all)) != 1:
            raise click.UsageError("say which: some ids, --reason or --error to match, or --all")
        if self.ids and dry_run:
            raise click.UsageError("--dry-run counts what --reason, --error or --all would match, not ids")

    def fits(self, message: MessageInfo) -> bool:
        """Tell whether a message matches reason and error."""
        return (self.reason or "") in message.reason and (self.error or "") in message.error

    def choices(self) -> list[dict[str, Any]]:
        """Return the arguments that mean the same to `DeadLetter`, for each call that is needed."""
        if self.ids:
            return [{"id": id} for id in self.ids]
        return [{"everything": True} if self.all else {"reason": self.reason, "error": self.error}]

    def count(self, queue: Any) -> int:
        """Count the entries that match, without touching them."""
        if self.all:
            return int(queue.counts().dead)
        pages = pages_from(lambda limit, at: queue.dead.list(limit=limit, cursor=at), MOST_ROWS, None, all=True)
        return sum(self.fits(message) for page in pages for message in page.messages)


def _filters(function: F) -> F:
    function = click.option("--error", metavar="TEXT", help="Those whose last error contains it.")(function)
    return click.option("--reason", metavar="TEXT", help="Those whose reason contains it.")(function)


_engine = engine_option("delay", "streams", lacking="dead letter")


@click.group(no_args_is_help=False)
def dead() -> None:
    """List, redrive or purge the dead letter: messages whose retries are spent, or that were rejected."""


@dead.command("list", short_help="List the dead letter.")
@queue_argument
@_engine
@_filters
@page_options
@json_option
@click.pass_obj
def list_(
    session: Session,
    queue: str,
    *,
    engine: str,
    reason: str | None,
    error: str | None,
    limit: int,
    cursor: str | None,
    all: bool,  # noqa: A002 - named like its flag
    as_json: bool,
) -> None:
    """List the dead letter of QUEUE, oldest first.

    JSON: as `delayq list --json`; entry (id:token) tells two deaths of one id apart.
    """
    found = open_dead(session, engine, queue)
    which = Which((), reason, error, all=False)

    def read(limit: int, at: str | None) -> Page:
        page = found.dead.list(limit=limit, cursor=at)
        return Page([message for message in page.messages if which.fits(message)], page.cursor)

    pages = pages_from(read, limit, cursor, all=all)
    shown = columns_of(engine, State.DEAD)
    print_pages(pages, shown, session.now, f"such dead messages in {queue}", as_json=as_json)


def _which_arguments(function: F) -> F:
    function = click.option("--all", is_flag=True, help="All of them.")(_filters(function))
    function = click.argument("ids", metavar="[ID...]", nargs=-1)(function)
    return queue_argument(_engine(function))


@dead.command(short_help="Send dead messages again.")
@_which_arguments
@click.option("--retries", type=click.IntRange(0), metavar="N", help="Redeliveries of each; by default as it was sent.")
@yes_option
@dry_run_option
@json_option
@click.pass_context
def redrive(
    ctx: click.Context,
    queue: str,
    ids: tuple[str, ...],
    *,
    engine: str,
    reason: str | None,
    error: str | None,
    all: bool,  # noqa: A002 - named like its flag
    retries: int | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send dead messages of QUEUE again, due at once: by id (its last death) or entry, by a filter, or all.

    One whose id lives stays where it is; given by id, that is exit code 1. An id that is not there is exit code 3.

    JSON: {"queue", "matched", "redriven", "exists", "gone", "dry_run"}.
    """
    session: Session = ctx.obj
    which = Which(ids, reason, error, all)
    which.check(dry_run=dry_run)
    found = open_dead(session, engine, queue)
    matched = _matched(found, which, "Send {} of {} again?", yes=yes, dry_run=dry_run)
    done = [] if dry_run else [found.dead.redrive(**choice, retries=retries) for choice in which.choices()]
    redriven, exists = sum(one.redriven for one in done), sum(one.exists for one in done)
    gone = len(ids) - redriven - exists if ids else 0
    if as_json:
        total = redriven + exists if matched is None else matched
        put_json(
            {
                "queue": queue,
                "matched": total,
                "redriven": redriven,
                "exists": exists,
                "gone": gone,
                "dry_run": dry_run,
            }
        )
    elif dry_run:
        put(f"would redrive {counted(matched or 0, 'message')}")
    else:
        put(f"redrove {counted(redriven, 'message')}")
    if exists:
        say(f"{counted(exists, 'message')} left in the dead letter, since a message of that id lives")
    _end(ctx, failed=bool(ids and exists), gone=gone)


@dead.command(short_help="Delete dead messages.")
@_which_arguments
@yes_option
@dry_run_option
@json_option
@click.pass_context
def purge(
    ctx: click.Context,
    queue: str,
    ids: tuple[str, ...],
    *,
    engine: str,
    reason: str | None,
    error: str | None,
    all: bool,  # noqa: A002 - named like its flag
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete dead messages of QUEUE: by id (its last death) or entry, by a filter, or all.

    An id that is not there is exit code 3.

    JSON: {"queue", "matched", "purged", "gone", "dry_run"}.
    """
    session: Session = ctx.obj
    which = Which(ids, reason, error, all)
    which.check(dry_run=dry_run)
    found = open_dead(session, engine, queue)
    matched = _matched(found, which, "Delete {} of {} for good?", yes=yes, dry_run=dry_run)
    purged = 0 if dry_run else sum(found.dead.purge(**choice) for choice in which.choices())
    gone = len(ids) - purged if ids else 0
    if as_json:
        total = purged if matched is None else matched
        put_json({"queue": queue, "matched": total, "purged": purged, "gone": gone, "dry_run": dry_run})
    else:
        put(f"would delete {counted(matched or 0, 'message')}" if dry_run else f"deleted {counted(purged, 'message')}")
    _end(ctx, failed=False, gone=gone)


def _matched(queue: Any, which: Which, question: str, *, yes: bool, dry_run: bool) -> int | None:
    """Count what is meant if that is of interest, and ask; None if it was not counted. Ids need no question."""
    if which.ids or (yes and not dry_run):
        return None
    matched = which.count(queue)
    if not dry_run:
        confirm(question.format(counted(matched, "dead message"), queue.name), yes=yes)
    return matched


def _end(ctx: click.Context, *, failed: bool, gone: int) -> None:
    if gone:
        say(f"{gone:,} not in the dead letter")
    if failed:
        ctx.exit(Exit.FAILURE)
    if gone:
        ctx.exit(Exit.NOT_FOUND)
