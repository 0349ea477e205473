"""`delayq events` and `delayq runs`: what has happened in a queue, message by message and bulk send by bulk send."""

from __future__ import annotations

from typing import Any

import click

from delayq.cli.engines import delay_queue
from delayq.cli.options import ID, json_option
from delayq.cli.output import Column, put, put_json, say, show, table
from delayq.cli.session import Session
from delayq.cli.text import iso, when
from delayq.errors import ConfigurationError
from delayq.events import EventKind, MessageEvent
from delayq.runs import RunInfo


@click.command()
@delay_queue("event log")
@click.option("--follow", is_flag=True, help="Wait for what comes, until Ctrl-C.")
@click.option("--after", metavar="OFFSET", help="Begin behind this offset; 'now' for only what comes.")
@click.option("--id", type=ID, multiple=True, help="Only of this message; may be given more than once.")
@click.option("--kind", type=click.Choice([kind.value for kind in EventKind]), multiple=True, help="Only of this kind.")
@click.option("--on/--off", "switch", default=None, help="Switch the log on or off for all processes, and end.")
@json_option
@click.pass_obj
def events(
    session: Session,
    queue: str,
    *,
    follow: bool,
    after: str | None,
    id: tuple[str, ...],
    kind: tuple[str, ...],
    switch: bool | None,
    as_json: bool,
) -> None:
    """Print the event log of QUEUE, oldest first: what happened to each message, and when.

    The log is off until it is switched on, here or by the option events of a queue.

    JSON, a line an event: {"offset", "index", "kind", "at", "id", "due", "attempt", "token", "retries_left", "holder",
    "run", "reason", "error"}.
    """
    if switch is not None:
        session.queue(queue, events=switch).open()
        say(f"the event log of {queue} is {'on' if switch else 'off'}")
        return
    found = session.known(queue)
    try:
        wanted = (event for event in found.events(_offset(after), follow=follow) if _meant(event, id, kind))
        some = False
        for event in wanted:
            some = True
            if as_json:
                put_json(_facts(event))
            else:
                put(_line(event))
    except KeyboardInterrupt:
        return  # the way to end --follow
    if not some and not as_json:
        say(f"no events in {queue}: its log is off until `delayq events {queue} --on` or events=True")


def _offset(after: str | None) -> int | str:
    if after is None or after == "now":
        return after or 0
    if not after.isdecimal():
        raise ConfigurationError(f"--after must be an offset of the event log or 'now', not {after!r:.40}")
    return int(after)


def _meant(event: MessageEvent, ids: tuple[str, ...], kinds: tuple[str, ...]) -> bool:
    return (not ids or event.id in ids) and (not kinds or event.kind in kinds)


def _line(event: MessageEvent) -> str:
    details = [
        f"due {iso(event.due)}" if event.due else "",
        "" if event.attempt is None else f"attempt {event.attempt}",
        "" if event.retries_left is None else f"retries left {event.retries_left}",
        f"by {event.holder}" if event.holder else "",
        f"run {event.run}" if event.run else "",
        f"({event.reason})" if event.reason else "",
        event.error or "",
    ]
    told = " ".join(detail for detail in details if detail)
    return f"{iso(event.at)}  {event.offset:>8}  {event.kind:<11}  {event.id or '-'}  {told}".rstrip()


def _facts(event: MessageEvent) -> dict[str, Any]:
    return {
        "offset": event.offset,
        "index": event.index,
        "kind": event.kind,
        "at": iso(event.at),
        "id": event.id,
        "due": iso(event.due),
        "attempt": event.attempt,
        "token": event.token,
        "retries_left": event.retries_left,
        "holder": event.holder,
        "run": event.run,
        "reason": event.reason,
        "error": event.error,
    }


_COUNTS = ("new", "exists", "replaced", "running", "settled", "refused")


@click.command()
@delay_queue("ledger of bulk sends")
@click.argument("run", required=False)
@json_option
@click.pass_obj
def runs(session: Session, queue: str, run: str | None, *, as_json: bool) -> None:
    """List the bulk sends of QUEUE, the latest first: what became of their messages; or what was refused in RUN.

    JSON: {"runs": [{"run", "state", "started", "ended", "new", "exists", "replaced", "running", "settled",
    "refused"}, …]}; of a RUN {"refusals": [{"id", "reason"}, …]}.
    """
    found = session.known(queue)
    if run is not None:
        refused = found.refusals(run)
        if as_json:
            put_json({"refusals": [{"id": id, "reason": reason} for id, reason in refused]})
        else:
            show(table([Column("id"), Column("reason", flexible=True)], refused))
        return
    listed = found.runs()
    if as_json:
        put_json({"runs": [_run_facts(info) for info in listed]})
    elif not listed:
        say(f"no runs in {queue}: a bulk send is entered under the run it names")
    else:
        columns = [Column("run"), Column("state"), Column("started"), *(Column(name, right=True) for name in _COUNTS)]
        rows = [
            [info.run, info.state, when(info.started, session.now), *(f"{getattr(info, name):,}" for name in _COUNTS)]
            for info in listed
        ]
        show(table(columns, rows))


def _run_facts(info: RunInfo) -> dict[str, Any]:
    counts = {name: getattr(info, name) for name in _COUNTS}
    return {"run": info.run, "state": info.state, "started": iso(info.started), "ended": iso(info.ended), **counts}
