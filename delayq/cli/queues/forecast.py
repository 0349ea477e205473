"""`delayq forecast`: what fires in each minute, hour or day, as bars, and the spikes above a rate."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, get_args

import click

from delayq.broker.engine import Feature
from delayq.cli.queues.pause import pause_text
from delayq.cli.support.exit_codes import Exit
from delayq.cli.support.options import RATE, UNTIL, json_option, queue_with
from delayq.cli.support.output import (
    UNLIMITED,
    console,
    json_fields,
    print_details,
    print_json,
    print_note,
    print_rich,
    table,
)
from delayq.cli.support.session import Session
from delayq.cli.support.zones import chosen_zone, exact_time, zoned_iso
from delayq.queue.inspecting.forecast import Forecast, ForecastBucket
from delayq.queue.inspecting.forecast_periods import MILLIS, Unit
from delayq.values.rates import parse_rate
from delayq.values.text import iso, pluralize

MAX_ROWS = 31
"""Rows of a table that shows the empty buckets as well."""
MAX_NAMES = 20
MAX_BAR = 40
OTHER_COLUMNS = 66
"""Characters of a line beside its bar, at most."""
_LONGEST_FIRST: tuple[Unit, ...] = ("day", "hour", "minute")
_FORMATS: dict[Unit, str] = {"minute": "%Y-%m-%d %H:%M %Z", "hour": "%Y-%m-%d %H:%M %Z", "day": "%Y-%m-%d %a"}


@click.command()
@queue_with(Feature.DELAYS)
@click.option(
    "--until", type=UNTIL, metavar="TIME", help="End there: 12h, 2027-01-31T09:00.  [default: 7d; by the minute 6d]"
)
@click.option(
    "--buckets",
    type=click.Choice(get_args(Unit)),
    help="Count in each of these.  [default: minute up to 3h, hour up to 3d, else day; with --above by its rate]",
)
@click.option("--above", type=RATE, metavar="N/UNIT", help="List only what is above this rate, 5000/m; exit with 4.")
@json_option
@click.pass_obj
def forecast(
    session: Session,
    queue: str,
    *,
    until: timedelta | datetime | None,
    buckets: Unit | None,
    above: str | None,
    as_json: bool,
) -> int:
    """Count what fires in QUEUE in each minute, hour or day: messages, retries, and occurrences of schedules.

    What is overdue is in no bucket. Names do not count retries, and are estimated from a sample of 500 messages. If
    the queue has a rate limit, says when its backlog will be gone, and how many will wait at most, by the minute in the
    first 8 h. What limits of names and workers allow is not considered. Messages in the cold tier are taken to be due
    evenly over their day (UTC).

    JSON: {"queue", "at", "until", "unit", "buckets": [{"start", "end", "pending", "retries", "scheduled", "total"}, …],
    "overdue", "throttled", "retrying", "later", "cold", "names": {…}, "sampled", "sampled_of", "scheduled_until",
    "rate_limit", "clear_at", "left", "peak", "peak_at", "peak_until", "paused": as in stats,
    "left_out": {schedule: why}}, and with --above "above" and "spikes", like buckets.
    """
    if above is not None and buckets is None:
        buckets = _unit_of(above)
    end = until if until is not None else "6d" if buckets == "minute" else "7d"
    found = session.existing_queue(queue).forecast(end, buckets, tz=chosen_zone())
    spikes = None if above is None else found.above(above)
    if as_json:
        print_json(_json(queue, found, above, spikes))
    elif spikes is None:
        _print(found)
    elif spikes:
        print_rich(_table(found, spikes))
    else:
        print_note(f"no {found.unit} above {above} until {_label(found.until, found.unit)}")
    if found.scheduled_until is not None:
        print_note(f"schedules occur too often: what they send after {zoned_iso(found.scheduled_until)} is not counted")
    for name, error in found.left_out.items():
        print_note(f"schedule {name} is not counted: {error}")
    return Exit.UNHEALTHY if spikes else Exit.OK


def _unit_of(rate: str) -> Unit:
    """Return the longest unit that is not longer than the time of a rate, or minutes."""
    _, period = parse_rate(rate, "--above")
    return next((unit for unit in _LONGEST_FIRST if MILLIS[unit] <= period), "minute")


def _print(found: Forecast) -> None:
    details = {
        "overdue": f"{found.overdue:,}",
        "throttled": f"{found.throttled:,}" if found.throttled else "",
        "retrying": f"{found.retrying:,}" if found.retrying else "",
        "later": f"{found.later:,} due after {_label(found.until, found.unit)}" if found.later else "",
        "cold": f"{found.cold:,} in files, counted by day (UTC)" if found.cold else "",
        "rate limit": _rate_text(found),
        "queue": pause_text(found.paused, found.at) if found.paused else "",
    }
    print_details(details)
    fires = [bucket for bucket in found.buckets if bucket.total]
    if fires:
        click.echo()
        print_rich(_table(found, found.buckets if len(found.buckets) <= MAX_ROWS else fires))
    else:
        print_note(f"nothing fires until {_label(found.until, found.unit)}")
    if set(found.names) - {""}:
        click.echo()
        named = [(name or "(without a name)", number) for name, number in found.names.items()]
        others = sum(number for _, number in named[MAX_NAMES:])
        rows = named[:MAX_NAMES] + ([("(others)", others)] if others else [])
        about = f"messages without retries{'' if found.sampled == found.sampled_of else ', about'}"
        print_rich(table(["name", about], rows))
        if found.sampled < found.sampled_of:
            print_note(f"names: from a sample of {found.sampled:,} of {found.sampled_of:,} pending messages")


def _table(found: Forecast, buckets: Sequence[ForecastBucket]) -> Any:
    width = console().width
    room = MAX_BAR if width >= UNLIMITED else min(MAX_BAR, width - OTHER_COLUMNS)
    highest = max(bucket.total for bucket in buckets)
    rows: list[list[str | int]] = [
        [
            _label(bucket.start, found.unit),
            *(bucket.pending, bucket.retries, bucket.scheduled, bucket.total),
            *([_bar(bucket.total, highest, room)] if room > 0 else []),
        ]
        for bucket in buckets
    ]
    return table([found.unit, "pending", "retries", "scheduled", "total", *([""] if room > 0 else [])], rows)


def _bar(number: int, highest: int, room: int) -> str:
    return "█" * round(number * room / highest) or "▏" * (number > 0)


def _label(at: datetime, unit: Unit) -> str:
    return f"{at:{_FORMATS[unit]}}"


def _rate_text(found: Forecast) -> str:
    if found.rate_limit is None:
        return ""
    if found.clear_at is None:
        end = _label(found.until, found.unit)
        return f"{found.rate_limit}: {pluralize(found.left or 0, 'message')} will wait at the end, {end}"
    peak = _peak_text(found)
    if found.clear_at <= found.at:
        return f"{found.rate_limit}: nothing waits{f' now; {peak}' if peak else ''}"
    return f"{found.rate_limit}: nothing waits any more {exact_time(found.clear_at, found.at)}{peak and f'; {peak}'}"


def _peak_text(found: Forecast) -> str:
    """Return how many will wait later; '' if that is no more than now."""
    if not found.peak or found.peak_at is None or found.peak_at <= found.at:
        return ""
    gone = "" if found.peak_until is None else f", none {exact_time(found.peak_until, found.at)}"
    return f"{pluralize(found.peak, 'message')} will wait {exact_time(found.peak_at, found.at)}{gone}"


def _json(queue: str, found: Forecast, above: str | None, spikes: Sequence[ForecastBucket] | None) -> dict[str, Any]:
    fields = {"queue": queue, **json_fields(found), "until": iso(found.until)}
    fields["buckets"] = [_bucket(bucket) for bucket in found.buckets]
    return fields | ({} if spikes is None else {"above": above, "spikes": [_bucket(bucket) for bucket in spikes]})


def _bucket(bucket: ForecastBucket) -> dict[str, Any]:
    return {**json_fields(bucket), "total": bucket.total}
