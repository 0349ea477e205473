"""`delayq runs`: lists the bulk sends of a queue, and the messages that one of them did not send."""

from __future__ import annotations

import click

from delayq.broker.engine import Feature
from delayq.cli.exit_codes import NotFoundError
from delayq.cli.options import json_option, queue_with
from delayq.cli.output import json_fields, print_json, print_note, print_rich, table
from delayq.cli.session import Session
from delayq.text import relative_time

_COUNTS = ("new", "exists", "replaced", "running", "settled", "refused")


@click.command()
@queue_with(Feature.RUNS)
@click.argument("run", required=False)
@json_option
@click.pass_obj
def runs(session: Session, queue: str, run: str | None, *, as_json: bool) -> None:
    """List the bulk sends of QUEUE, latest first; with RUN, list the messages that it refused to send.

    JSON: {"runs": [{"run", "state", "started", "ended", "new", "exists", "replaced", "running", "settled",
    "refused"}, …]}; with RUN {"refusals": [{"id", "reason"}, …]}.
    """
    opened = session.existing_queue(queue)
    if run is not None:
        refused = opened.refusals(run)
        if not refused and run not in (names := [info.run for info in opened.runs()]):
            raise NotFoundError("run", run, names)
        if as_json:
            print_json({"refusals": [{"id": id, "reason": reason} for id, reason in refused]})
        elif not refused:
            print_note(f"no refusals in the run {run}")
        else:
            print_rich(table(["id", "reason"], refused, fill=True))
        return
    found = opened.runs()
    if as_json:
        print_json({"runs": [json_fields(info) for info in found]})
    elif not found:
        print_note(f"no runs in {queue}: a bulk send is recorded here if it names its run")
    else:
        rows = [
            [info.run, info.state, relative_time(info.started, session.now), *(getattr(info, name) for name in _COUNTS)]
            for info in found
        ]
        print_rich(table(["run", "state", "started", *_COUNTS], rows))
