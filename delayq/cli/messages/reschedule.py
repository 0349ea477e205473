"""`delayq reschedule` and `run-now`: move messages to a new due time, by id or by a filter."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from delayq.broker.engine import Feature
from delayq.cli.messages.cancel import exit_code_of, print_outcomes
from delayq.cli.messages.select import Matching, matching_options
from delayq.cli.support.exit_codes import Exit
from delayq.cli.support.options import STORED_ID, due_options, json_option, queue_with
from delayq.cli.support.output import print_note, print_result
from delayq.cli.support.session import Session
from delayq.cli.support.zones import due_text


@click.command()
@queue_with(Feature.CANCEL)
@click.argument("id", metavar="[ID]", type=STORED_ID, required=False)
@due_options
@matching_options
@json_option
@click.pass_obj
def reschedule(
    session: Session,
    queue: str,
    id: str | None,
    *,
    delay: timedelta | None,
    at: datetime | None,
    matching: Matching,
    as_json: bool,
) -> Exit:
    """Give a message of QUEUE a new due time, or all that wait and match a filter; attempts and retries stay the same.

    WHEN is a time (2027-01-31T09:00), now, or a time from now: +2h, -1d.

    Of an id, exit code 1 if the message is running or dead, 3 if it is gone.

    JSON: {"queue", "id", "outcome"}; the outcome is rescheduled, running, dead or gone. With a filter: {"queue",
    "matched", "outcomes": {outcome: how many}, "dry_run"}; matched is null with --yes.
    """
    if (delay is None) == (at is None):
        raise click.UsageError("give either --delay or --at")
    by_filter = matching.is_for(() if id is None else (id,))
    opened = session.existing_queue(queue)
    if by_filter or id is None:
        return matching.apply(opened, "reschedule", lambda selected: selected.reschedule(delay, at=at), as_json=as_json)
    outcome = opened.reschedule(id, delay, at=at)
    print_result({"queue": queue, "id": id, "outcome": outcome}, f"{id}  {outcome}", as_json=as_json)
    if outcome == "rescheduled" and not as_json:
        print_note(f"due {due_text(delay, at)}")
    return exit_code_of([outcome])


@click.command("run-now")
@queue_with(Feature.CANCEL)
@click.argument("ids", metavar="[ID...]", type=STORED_ID, nargs=-1)
@matching_options
@json_option
@click.pass_obj
def run_now(session: Session, queue: str, ids: tuple[str, ...], *, matching: Matching, as_json: bool) -> Exit:
    """Make messages of QUEUE due now: ID..., or all that wait and match a filter.

    WHEN is a time (2027-01-31T09:00), now, or a time from now: +2h, -1d.

    Of ids, exit code 1 if a message is running or dead, else 3 if one is gone.

    JSON: {"queue", "results": [{"id", "outcome"}, …]}, with a filter {"queue", "matched", "outcomes", "dry_run"}; as of
    reschedule.
    """
    by_filter = matching.is_for(ids)
    opened = session.existing_queue(queue)
    if by_filter:
        return matching.apply(opened, "run", lambda selected: selected.run_now(), as_json=as_json)
    return print_outcomes(queue, {id: opened.reschedule(id, 0) for id in ids}, as_json=as_json)
