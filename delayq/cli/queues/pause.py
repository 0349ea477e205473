"""`delayq pause` and `delayq resume`: hold back all messages of a queue, and let them go on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from delayq.broker.engine import Feature
from delayq.cli.support.options import DURATION, UNTIL, json_option, queue_with
from delayq.cli.support.output import print_result
from delayq.cli.support.session import Session
from delayq.cli.support.zones import until_text
from delayq.queue.control.pausing import Pause
from delayq.values.text import clean, iso


@click.command()
@queue_with(Feature.PAUSE)
@click.option("--name", metavar="NAME", help="Pause the messages with this name only.")
@click.option("--until", type=UNTIL, metavar="TIME", help="End by itself: 2h, or 2027-01-31T09:00.")
@click.option("--reason", default="", help="Say why; it is shown wherever the pause is.")
@json_option
@click.pass_obj
def pause(
    session: Session, queue: str, *, name: str | None, until: timedelta | datetime | None, reason: str, as_json: bool
) -> None:
    """Pause QUEUE: no callback starts in any process, and no lease is given; all else goes on.

    Callbacks that run end as usual. Workers return what they have claimed and not started. Again: change the end and
    the reason. With --name, only messages of this name do not start, and others overtake them.

    JSON: {"queue", "paused": {"until", "reason"}}, and "name" with --name.
    """
    made = session.existing_queue(queue).pause(until, name=name, reason=reason)
    fields = {"queue": queue} | ({} if name is None else {"name": name}) | {"paused": pause_json(made)}
    print_result(fields, f"{label(queue, name)}  {pause_text(made)}", as_json=as_json)


@click.command()
@queue_with(Feature.PAUSE)
@click.option("--name", metavar="NAME", help="End the pause of this name.")
@click.option("--spread", type=DURATION, metavar="TIME", help="Start what waits evenly over this time: 10m.")
@json_option
@click.pass_obj
def resume(session: Session, queue: str, *, name: str | None, spread: timedelta | None, as_json: bool) -> None:
    """End the pause of QUEUE, also that of a breaker: idle workers go on at once.

    JSON: {"queue", "resumed"}, and "name" with --name; false if there was no pause.
    """
    resumed = session.existing_queue(queue).resume(name=name, spread=spread)
    fields = {"queue": queue} | ({} if name is None else {"name": name}) | {"resumed": resumed}
    text = f"{label(queue, name)}  {'resumed' if resumed else 'was not paused'}"
    print_result(fields, text, as_json=as_json)


def label(queue: str, name: str | None) -> str:
    """Return how output names a queue, or a name in it."""
    return queue if name is None else f"{queue} {clean(name)}"


def pause_text(pause: Pause, now: datetime | None = None) -> str:
    """Return until when a queue is paused, and why."""
    end = "until it is resumed" if pause.until is None else until_text(pause.until, now or datetime.now(UTC))
    return f"paused {end}{f': {clean(pause.reason)}' if pause.reason else ''}"


def pause_json(pause: Pause | None) -> dict[str, Any] | None:
    """Return a pause for JSON; None for none."""
    return None if pause is None else {"until": iso(pause.until), "reason": pause.reason}
