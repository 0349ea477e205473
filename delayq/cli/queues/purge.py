"""`delayq purge`: deletes every message of a queue."""

from __future__ import annotations

import click

from delayq.broker.engine import Feature
from delayq.cli.support.options import confirm, dry_run_option, json_option, queue_with, yes_option
from delayq.cli.support.output import print_result
from delayq.cli.support.session import Session
from delayq.values.text import pluralize


@click.command()
@queue_with(Feature.PURGE)
@yes_option
@dry_run_option
@json_option
@click.pass_obj
def purge(session: Session, queue: str, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Delete every message of QUEUE, even running ones; the dead letter stays.

    JSON: {"queue", "matched", "purged", "dry_run"}.
    """
    opened = session.existing_queue(queue)
    matched = opened.counts().living
    if not dry_run:
        confirm(f"Delete {pluralize(matched, 'message')} of {queue}, running ones included?", yes=yes)
    purged = 0 if dry_run else opened.purge()
    text = f"would delete {pluralize(matched, 'message')}" if dry_run else f"deleted {pluralize(purged, 'message')}"
    print_result({"queue": queue, "matched": matched, "purged": purged, "dry_run": dry_run}, text, as_json=as_json)
