"""`delayq history`: what was delivered in each hour or day, with bars, and how late."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import click

from delayq.broker.engine import Feature
from delayq.cli.support.options import json_option, queue_with
from delayq.cli.support.output import UNLIMITED, console, print_json, print_note, print_rich, table
from delayq.cli.support.session import Session
from delayq.cli.support.zones import chosen_zone
from delayq.queue.inspecting.history import MAX_DAYS, HistoryBucket, QueueHistory
from delayq.queue.inspecting.lateness_report import LatenessCounts, percentile_text
from delayq.values.text import format_duration, iso

MAX_ROWS = 49
"""Rows of a table that shows the empty hours or days as well."""
MAX_BAR = 30
OTHER_COLUMNS = 72
"""Characters of a line beside its bar, at most."""
_FORMATS = {"hour": "%Y-%m-%d %H:%M %Z", "day": "%Y-%m-%d %a"}


@click.command()
@queue_with(Feature.HISTORY)
@click.option("--days", type=click.IntRange(1, MAX_DAYS), default=10, show_default=True, help="Go back so many days.")
@click.option("--buckets", type=click.Choice(["hour", "day"]), help="Show each of these.  [default: hour up to 2 days]")
@json_option
@click.pass_obj
def history(session: Session, queue: str, *, days: int, buckets: Literal["hour", "day"] | None, as_json: bool) -> None:
    """Show what the consumers of QUEUE have done in each hour or day, and how late messages started.

    done is acked or discarded, failed nacked or rejected, released given back or snoozed, if any was, time the average
    of a callback. 99 % of the messages were at
    most as late as p99 says, from the due time to their first start.

    JSON: {"queue", "at", "unit", "buckets": [{"start", "end", "delivered", "acked", "discarded", "nacked", "rejected",
    "released", "callbacks", "busy", "lateness": {"p50", "p90", "p99", "counts": […]}}, …], "total": {…}}; times in
    seconds. A percentile is null without messages, or if it is more than an hour.
    """
    found = session.existing_queue(queue).history(days, buckets, tz=chosen_zone())
    if as_json:
        fields = {"queue": queue, "at": iso(found.at), "unit": found.unit}
        print_json({**fields, "buckets": [*map(_json, found.buckets)], "total": _json(found.total)})
    elif found.total.delivered or found.total.lateness.total:
        print_rich(_table(found))
    else:
        print_note(f"no consumer of {queue} has counted anything since {_label(found, found.buckets[0])}")


def _table(found: QueueHistory) -> Any:
    width = console().width
    released = ["released"] if found.total.released else []
    other = OTHER_COLUMNS + sum(len(title) + 2 for title in released)
    room = MAX_BAR if width >= UNLIMITED else min(MAX_BAR, width - other)
    few = len(found.buckets) <= MAX_ROWS
    shown = [bucket for bucket in found.buckets if few or bucket.delivered or bucket.callbacks]
    highest = max(1, *(bucket.delivered for bucket in shown))
    rows: list[list[str | int]] = [
        [
            _label(found, bucket),
            *(bucket.delivered, bucket.acked + bucket.discarded, bucket.nacked + bucket.rejected),
            *([bucket.released] if released else []),
            "" if bucket.mean_time is None else _duration(bucket.mean_time),
            *(percentile_text(bucket.lateness, share) for share in (0.5, 0.99)),
            *(["█" * round(bucket.delivered * room / highest) or "▏" * (bucket.delivered > 0)] if room > 0 else []),
        ]
        for bucket in shown
    ]
    titles = ["delivered", "done", "failed", *released, "time", "p50 late", "p99 late", *([""] if room > 0 else [])]
    return table([found.unit, *titles], rows)


def _label(found: QueueHistory, bucket: HistoryBucket) -> str:
    return f"{bucket.start:{_FORMATS[found.unit]}}"


def _duration(time: timedelta) -> str:
    seconds = time.total_seconds()
    return "<1ms" if 0 < seconds < 0.0005 else format_duration(seconds)  # noqa: PLR2004 - what is rounded to 0


def _json(bucket: HistoryBucket) -> dict[str, Any]:
    numbers = ("delivered", "acked", "discarded", "nacked", "rejected", "released", "callbacks")
    return {
        "start": bucket.start.isoformat(),
        "end": bucket.end.isoformat(),
        **{name: getattr(bucket, name) for name in numbers},
        "busy": bucket.busy.total_seconds(),
        "lateness": lateness_json(bucket.lateness),
    }


def lateness_json(lateness: LatenessCounts) -> dict[str, Any]:
    """Return percentiles of the lateness in seconds, and the number of messages in each bucket, for JSON."""
    percentiles = {f"p{share}": _seconds(lateness.percentile(share / 100)) for share in (50, 90, 99)}
    return {**percentiles, "counts": list(lateness.numbers)}


def _seconds(late: timedelta | None) -> float | None:
    return None if late is None or late == timedelta.max else late.total_seconds()
