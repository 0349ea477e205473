"""`delayq reschedule`: moves a message to a new due time."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from delayq.broker.engine import Feature
from delayq.cli.cancel import exit_code_of
from delayq.cli.exit_codes import Exit
from delayq.cli.options import ID, due_options, json_option, queue_with
from delayq.cli.output import print_result
from delayq.cli.session import Session


@click.command()
@queue_with(Feature.CANCEL)
@click.argument("id", type=ID)
@due_options
@json_option
@click.pass_obj
def reschedule(
    session: Session, queue: str, id: str, *, delay: timedelta | None, at: datetime | None, as_json: bool
) -> Exit:
    """Give the message ID of QUEUE a new due time; its attempts and retries stay the same.

    Exit code 1 if the message is running or dead, 3 if it is gone.

    JSON: {"queue", "id", "outcome"}; the outcome is rescheduled, running, dead or gone.
    """
    if (delay is None) == (at is None):
        raise click.UsageError("give either --delay or --at")
    outcome = session.existing_queue(queue).reschedule(id, delay, at=at)
    print_result({"queue": queue, "id": id, "outcome": outcome}, f"{id}  {outcome}", as_json=as_json)
    return exit_code_of([outcome])
