"""`delayq limits`: shows and changes how many messages of a queue or a name may start in a time, or run at a time."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from delayq.broker.engine import Feature
from delayq.cli.queues.pause import label, pause_json, pause_text
from delayq.cli.support.options import json_option, queue_with
from delayq.cli.support.output import print_json, print_note, print_result, print_rich, table
from delayq.cli.support.session import Session
from delayq.cli.support.suggestions import SuggestingGroup
from delayq.cli.support.zones import until_text
from delayq.queue.control.limits import Limit
from delayq.values.text import clean, iso

_TITLES = ["name", "rate", "burst", "running", "throttled", "active", "state"]
_name_option = click.option("--name", metavar="NAME", help="Limit the messages with this name, not the whole queue.")


@click.group(cls=SuggestingGroup, no_args_is_help=False)
def limits() -> None:
    """List, set or remove limits of a queue and its names: how many messages start in a time, or run at a time."""


@limits.command("list", short_help="List limits.")
@queue_with(Feature.LIMITS)
@json_option
@click.pass_obj
def list_(session: Session, queue: str, *, as_json: bool) -> None:
    """List the limits of QUEUE and its names, and the names that are paused.

    JSON: {"limits": [{"name", "rate_limit", "burst", "running", "paused": {"until", "reason"}, "held_until",
    "tripped_until", "spread_until", "throttled", "active", "declared": {"rate_limit", "burst", "running"}}, …]}; "name"
    is null for the limit of the whole queue, "declared" if no program declares one.
    """
    found = session.existing_queue(queue).limits.list()
    if as_json:
        print_json({"limits": [_json(limit) for limit in found]})
    elif found:
        print_rich(table(_TITLES, [_row(limit) for limit in found]))
    else:
        print_note(f"no limits in {queue}")


@limits.command("set", short_help="Set a limit.")
@queue_with(Feature.LIMITS)
@_name_option
@click.option("--rate", metavar="N/UNIT", help="Start so many in a time: 200/s, 5/m, 3/10s.")
@click.option(
    "--burst", type=int, metavar="N", help="Start so many at once; by default what fits into 100 ms, and one."
)
@click.option("--running", type=int, metavar="N", help="Run so many at a time.")
@json_option
@click.pass_obj
def set_(
    session: Session,
    queue: str,
    *,
    name: str | None,
    rate: str | None,
    burst: int | None,
    running: int | None,
    as_json: bool,
) -> None:
    """Limit QUEUE, or a name, for all processes at once, and also for what waits.

    What is left out stays as it is. It counts until it is set or removed again, or a program declares another limit
    than before.

    JSON: {"queue", "limit": as in list}.
    """
    if rate is None and running is None and burst is None:
        raise click.UsageError("say what to limit: --rate 200/s, --running 5, or both")
    opened = session.existing_queue(queue)
    opened.limits.set(name, rate_limit=rate, burst=burst, running=running)
    made = next(limit for limit in opened.limits.list() if limit.name == name)
    text = f"{label(queue, name)}  {_what(made.rate_limit, made.running)}"
    print_result({"queue": queue, "limit": _json(made)}, text, as_json=as_json)


@limits.command("remove", short_help="Remove a limit.")
@queue_with(Feature.LIMITS)
@_name_option
@json_option
@click.pass_obj
def remove(session: Session, queue: str, *, name: str | None, as_json: bool) -> None:
    """Remove the limit of QUEUE, or of a name, so that all it holds back starts.

    JSON: {"queue", "name", "removed"}; false if there was none.
    """
    removed = session.existing_queue(queue).limits.remove(name)
    text = f"{label(queue, name)}  {'removed' if removed else 'had no limit'}"
    print_result({"queue": queue, "name": name, "removed": removed}, text, as_json=as_json)


def _state(limit: Limit) -> str:
    if limit.declared is not None and not limit.is_declared:
        declared = _what(limit.declared.rate_limit, limit.declared.running)
        return ", ".join(filter(None, (_closed(limit), f"declared {declared}")))
    return _closed(limit)


def _what(rate_limit: str | None, running: int | None) -> str:
    return f"{rate_limit or 'any rate'}, {running or 'any number'} running"


def _closed(limit: Limit) -> str:
    if limit.paused is not None:
        return pause_text(limit.paused)
    now = datetime.now(UTC)
    if limit.held_until is not None:
        return f"closed {until_text(limit.held_until, now)}"
    if limit.tripped_until is not None:
        return f"tripped {until_text(limit.tripped_until, now)}" if limit.tripped_until > now else "tries the next"
    return "" if limit.spread_until is None else f"spread {until_text(limit.spread_until, now)}"


def _row(limit: Limit) -> list[str]:
    name = "(the queue)" if limit.name is None else clean(limit.name)
    rate = limit.rate_limit or "any"
    numbers = [str(limit.burst) if limit.rate_limit else "", str(limit.running or "any")]
    return [name, rate, *numbers, str(limit.throttled), str(limit.active), _state(limit)]


def _json(limit: Limit) -> dict[str, Any]:
    return {
        "name": limit.name,
        "rate_limit": limit.rate_limit,
        "burst": limit.burst,
        "running": limit.running,
        "paused": pause_json(limit.paused),
        "held_until": iso(limit.held_until),
        "tripped_until": iso(limit.tripped_until),
        "spread_until": iso(limit.spread_until),
        "throttled": limit.throttled,
        "active": limit.active,
        "declared": None if limit.declared is None else asdict(limit.declared),
    }
