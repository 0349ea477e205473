"""`delayq kill`: moves messages to the dead letter by hand, by id or by a filter."""

from __future__ import annotations

import click

from delayq.broker.engine import Feature
from delayq.cli.messages.cancel import print_outcomes
from delayq.cli.messages.select import Matching, matching_options
from delayq.cli.support.exit_codes import Exit
from delayq.cli.support.options import STORED_ID, json_option, queue_with
from delayq.cli.support.session import Session


@click.command()
@queue_with(Feature.KILL)
@click.argument("ids", metavar="[ID...]", type=STORED_ID, nargs=-1)
@matching_options
@json_option
@click.pass_obj
def kill(session: Session, queue: str, ids: tuple[str, ...], *, matching: Matching, as_json: bool) -> Exit:
    """Move messages of QUEUE to the dead letter: ID..., or all that wait and match a filter.

    They are not delivered unless `dead redrive` sends them again. A message that is running stays.

    WHEN is a time (2027-01-31T09:00), now, or a time from now: +2h, -1d.

    Of ids, exit code 1 if a message is running or dead, else 3 if one is gone.

    JSON: {"queue", "results": [{"id", "outcome"}, …]}; the outcome is killed, running, dead or gone. With a filter:
    {"queue", "matched", "outcomes": {outcome: how many}, "dry_run"}; matched is null with --yes.
    """
    by_filter = matching.is_for(ids)
    opened = session.existing_queue(queue)
    if by_filter:
        return matching.apply(opened, "kill", lambda selected: selected.kill(), as_json=as_json)
    return print_outcomes(queue, {id: opened.kill(id) for id in ids}, as_json=as_json)
