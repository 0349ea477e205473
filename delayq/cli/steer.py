"""`delayq cancel`, `delayq reschedule` and `delayq purge`: changing what waits in a queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

import click

from delayq.cli.engines import delay_queue
from delayq.cli.failure import Exit
from delayq.cli.options import ID, confirm, dry_run_option, due_options, json_option, yes_option
from delayq.cli.output import put, put_json
from delayq.cli.session import Session
from delayq.cli.text import counted
from delayq.steering import CancelOutcome, RescheduleOutcome


@click.command()
@delay_queue("cancelling")
@click.argument("ids", metavar="ID...", type=ID, nargs=-1, required=True)
@json_option
@click.pass_context
def cancel(ctx: click.Context, queue: str, ids: tuple[str, ...], *, as_json: bool) -> None:
    """Withdraw the messages ID... of QUEUE: what is cancelled is never delivered again.

    Exit code 1 if one is running or dead, else 3 if one is gone.

    JSON: {"queue", "results": [{"id", "outcome"}, …]}, outcome being cancelled, running, dead or gone.
    """
    session: Session = ctx.obj
    found = session.known(queue)
    outcomes = {id: found.cancel(id) for id in ids}
    if as_json:
        put_json({"queue": queue, "results": [{"id": id, "outcome": outcome} for id, outcome in outcomes.items()]})
    else:
        for id, outcome in outcomes.items():
            put(f"{id}  {outcome}")
    ctx.exit(_code(outcomes.values()))


@click.command()
@delay_queue("delays")
@click.argument("id", type=ID)
@due_options
@json_option
@click.pass_context
def reschedule(
    ctx: click.Context, queue: str, id: str, *, delay: timedelta | None, at: datetime | None, as_json: bool
) -> None:
    """Give the message ID of QUEUE a new due time; its attempts and retries stay as they are.

    Exit code 1 if it is running or dead, 3 if it is gone.

    JSON: {"queue", "id", "outcome"}, outcome being rescheduled, running, dead or gone.
    """
    if (delay is None) == (at is None):
        raise click.UsageError("give either --delay or --at")
    session: Session = ctx.obj
    outcome = session.known(queue).reschedule(id, delay, at=at)
    if as_json:
        put_json({"queue": queue, "id": id, "outcome": outcome})
    else:
        put(f"{id}  {outcome}")
    ctx.exit(_code([outcome]))


def _code(outcomes: Iterable[CancelOutcome | RescheduleOutcome]) -> Exit:
    seen = Counter(str(outcome) for outcome in outcomes)
    if seen["running"] or seen["dead"]:
        return Exit.FAILURE
    return Exit.NOT_FOUND if seen["gone"] else Exit.OK


@click.command()
@delay_queue("purging")
@yes_option
@dry_run_option
@json_option
@click.pass_obj
def purge(session: Session, queue: str, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Delete every message of QUEUE, running ones included; the dead letter stays.

    JSON: {"queue", "matched", "purged", "dry_run"}.
    """
    found = session.known(queue)
    matched = found.counts().living
    if not dry_run:
        confirm(f"Delete {counted(matched, 'message')} of {queue}, running ones included?", yes=yes)
    purged = 0 if dry_run else found.purge()
    if as_json:
        put_json({"queue": queue, "matched": matched, "purged": purged, "dry_run": dry_run})
    else:
        put(f"would delete {counted(matched, 'message')}" if dry_run else f"deleted {counted(purged, 'message')}")
