"""`delayq remove`: removes an empty queue."""

from __future__ import annotations

import click

from delayq.broker.engine import Feature
from delayq.cli.support.options import confirm, json_option, queue_with, yes_option
from delayq.cli.support.output import print_result
from delayq.cli.support.session import Session


@click.command()
@queue_with(Feature.REMOVE)
@yes_option
@json_option
@click.pass_obj
def remove(session: Session, queue: str, *, yes: bool, as_json: bool) -> None:
    """Remove QUEUE once it is empty: all of its keys, and its name in `delayq queues`.

    Its settings, totals, results, history and event log go with it. Refused, with exit code 1, while it has messages,
    dead messages, schedules or live consumers. Stop the programs that send to it first: a send makes it anew.

    JSON: {"queue", "removed"}.
    """
    opened = session.existing_queue(queue)
    confirm(f"Remove {queue}, with its settings, totals, results and events?", yes=yes, dry_run=False)
    removed = opened.remove()
    print_result({"queue": queue, "removed": removed}, f"removed {queue}", as_json=as_json)
