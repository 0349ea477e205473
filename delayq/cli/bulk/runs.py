"""`delayq runs`: lists, ends and forgets the bulk sends of a queue, and lists what one of them refused."""

from __future__ import annotations

import click

from delayq.broker.engine import Feature
from delayq.cli.support.exit_codes import NotFoundError
from delayq.cli.support.options import json_option, queue_with
from delayq.cli.support.output import json_fields, print_json, print_note, print_rich, table
from delayq.cli.support.session import Session
from delayq.cli.support.suggestions import SuggestingGroup
from delayq.values.text import relative_time

_COUNTS = ("new", "exists", "replaced", "running", "settled", "refused")


class _Runs(SuggestingGroup):
    """A group whose default command is `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Treat the name of a queue without a command as that of `list`."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Runs)
def runs() -> None:
    """List the bulk sends of a queue, end one, or forget one.

    `delayq runs QUEUE` is short for `delayq runs list QUEUE`.
    """


@runs.command("list", short_help="List bulk sends, or what one refused.")
@queue_with(Feature.RUNS)
@click.argument("run", required=False)
@json_option
@click.pass_obj
def list_(session: Session, queue: str, run: str | None, *, as_json: bool) -> None:
    """List the bulk sends of QUEUE, latest first; with RUN, list the messages that it refused to send.

    JSON: {"runs": [{"run", "state", "started", "ended", "new", "exists", "replaced", "running", "settled",
    "refused", "start", "until", "source"}, …]}; with RUN {"refusals": [{"id", "reason"}, …]}.
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


@runs.command(short_help="Mark a bulk send as ended.")
@queue_with(Feature.RUNS)
@click.argument("run")
@click.option("--aborted", is_flag=True, help="Mark it as aborted; by default it is committed.")
@click.pass_obj
def end(session: Session, queue: str, run: str, *, aborted: bool) -> None:
    """Mark RUN of QUEUE as ended, if its sender cannot do so any more. Changes no messages."""
    opened = session.existing_queue(queue)
    if run not in (names := [info.run for info in opened.runs()]):
        raise NotFoundError("run", run, names)
    print_note(f"run {run} is {opened.end_run(run, aborted=aborted).state}")


@runs.command(short_help="Delete a bulk send from the ledger.")
@queue_with(Feature.RUNS)
@click.argument("run")
@click.pass_obj
def forget(session: Session, queue: str, run: str) -> None:
    """Delete RUN of QUEUE, and what it refused, from the ledger. Changes no messages."""
    opened = session.existing_queue(queue)
    names = [info.run for info in opened.runs()]
    if not opened.forget_run(run):
        raise NotFoundError("run", run, names)
    print_note(f"forgot run {run}")
