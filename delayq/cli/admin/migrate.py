"""`delayq migrate`: moves a queue of another library to delayq."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import click

from delayq.broker.keys import check_name
from delayq.cli.support.exit_codes import CommandError, Exit
from delayq.cli.support.options import QUEUE, dry_run_option, json_option
from delayq.cli.support.output import print_json, print_line, print_note, print_rich, table
from delayq.cli.support.progress import progress_bars
from delayq.cli.support.session import Session
from delayq.errors import ConfigurationError
from delayq.values.text import pluralize

if TYPE_CHECKING:
    from delayq.migrate.migration import Migration

_NAMES = {"go": "the Go library", "celery": "Celery", "rq": "rq"}
LIBRARIES = tuple(_NAMES)


@click.command()
@click.argument("name")
@click.option("--to", type=QUEUE, metavar="QUEUE", help="Move to this queue of delayq.  [default: NAME]")
@click.option(
    "--from", "library", type=click.Choice(LIBRARIES), default="go", show_default=True, help="Choose the other library."
)
@click.option("--from-url", metavar="URL", help="Read the other queue from this Redis.  [default: --url]")
@click.option(
    "--from-prefix", metavar="TEXT", help="Set Go's UseCustomPrefix or Celery's global_keyprefix.  [default: dp for Go]"
)
@click.option("--take-leased", is_flag=True, help="Also move what workers of Go or Celery have taken.")
@click.option("--with-garbage", is_flag=True, help="Also move failed messages of Go; they are delivered once more.")
@click.option(
    "--parameters", multiple=True, metavar="NAME=A,B", help="Name positional arguments of a function of Celery or rq."
)
@dry_run_option
@json_option
@click.pass_obj
def migrate(session: Session, /, name: str, *, library: str, to: str | None, as_json: bool, **options: Any) -> Exit:
    """Move the messages of NAME, a queue of Go's hdt3213/delayqueue, Celery or rq, to a queue of delayq.

    Stop the other consumers first. If it is interrupted, run it again: no message is lost or duplicated. Messages that
    cannot be moved stay in the other queue and are listed. Of Celery and rq, tasks in JSON are moved, with their eta;
    with rq also those of rq-scheduler. Pickled ones stay.

    Exit code 1 if messages are left that the other library would still deliver, or if its workers are running; 3 if the
    queue does not exist.

    JSON: {"name", "queue", "dry_run", "complete", "came", "places": {"pending": {"found", "moved", "left"}, …}, "left":
    {REASON: number, …}, "listed": [{"place", "id", "reason"}, …]}; "came" counts messages that were added meanwhile.
    """
    move = _mover(library, options)
    with progress_bars() as add_bar:
        advance = add_bar(f"migrating {name}")
        migration = move(
            name,
            to or _same_name(name),
            tell=lambda state: advance(state.moved.total() + state.left.total(), state.found.total()),
            **options,
            **session.shared_options,
        )
    if not migration.found.total():
        raise CommandError(f"no queue of {_NAMES[library]} named {name!r}", Exit.NOT_FOUND)
    if as_json:
        print_json(_json(migration))
    else:
        _print(migration)
    return Exit.OK if migration.complete else Exit.FAILURE


def _mover(library: str, options: dict[str, Any]) -> Callable[..., Migration]:
    """Return the function that moves queues of a library, and leave in the options what it takes."""
    from delayq.migrate import migrate, migrate_from
    from delayq.migrate.sources import read_parameters

    parameters, prefix = options.pop("parameters"), options.pop("from_prefix")
    if prefix is not None:
        options["from_prefix"] = prefix
    if library == "go":
        if parameters:
            raise click.UsageError("--parameters is for Celery and rq: messages of the Go library have no arguments")
        return migrate
    if options.pop("with_garbage"):
        raise click.UsageError("--with-garbage is for the Go library")
    if library == "rq" and options["take_leased"]:
        raise click.UsageError("--take-leased is for Go and Celery: rq's own workers clean up what was running")
    return partial(migrate_from, cast("Any", library), parameters=read_parameters(parameters))


def _same_name(name: str) -> str:
    try:
        return check_name(name)
    except ConfigurationError as error:
        raise click.UsageError(f"{error}; give a valid name with --to") from error


def _places(migration: Migration) -> dict[str, dict[str, int]]:
    from delayq.migrate.go_queue import STRUCTURES

    numbers: dict[str, dict[str, int]] = {
        place: {
            "found": migration.found[place],
            "moved": migration.moved[place],
            "left": sum(number for (where, _), number in migration.left.items() if where == place),
        }
        for place in [*STRUCTURES, *(place for place in migration.found if place not in STRUCTURES)]
    }
    return {place: found for place, found in numbers.items() if any(found.values())}


def _json(migration: Migration) -> dict[str, Any]:
    facts = {name: getattr(migration, name) for name in ("name", "queue", "dry_run", "complete", "came")}
    listed = [{"place": one.place, "id": one.id, "reason": one.why} for one in migration.listed]
    return {**facts, "places": _places(migration), "left": migration.reasons, "listed": listed}


def _print(migration: Migration) -> None:
    titles = ["structure", "found", "to move" if migration.dry_run else "moved", "left"]
    print_rich(table(titles, [(place, *counts.values()) for place, counts in _places(migration).items()]))
    for one in migration.listed:
        print_line(f"{one.place}  {one.id}  {one.why}")
    if len(migration.listed) < migration.left.total():
        print_line(f"… and {migration.left.total() - len(migration.listed):,} more")
    verb = "would move" if migration.dry_run else "moved"
    moved, left = pluralize(migration.moved.total(), "message"), f"{migration.left.total():,}"
    reasons = "".join(f", {number:,} {why}" for why, number in migration.reasons.items()).replace(",", ":", 1)
    print_line(f"{verb} {moved} of {migration.name} to {migration.queue}; left {left}{reasons}")
    if migration.came:
        print_note(f"{pluralize(migration.came, 'message')} arrived meanwhile: stop the producers, and run it again")
