"""The list of queues, and the pages of one: figures, schedules, forecast, limits, workers."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from datetime import datetime
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from delayq.errors import ConfigurationError, ServerError
from delayq.queue.inspecting.readings import Readings
from delayq.schedules.definition import check_schedule
from delayq.schedules.info import SchedulesPage, ScheduleState, rule_text
from delayq.values.states import State
from delayq.web.queue_source import Snapshot
from delayq.web.shown.rendering import labelled
from delayq.web.shown.shown_times import zone_of
from delayq.web.site import Site, site_of
from delayq.web.viewers import Viewer

MAX_RUNNING = 5
"""Running messages that are listed of each worker."""


def show_workers(request: Request) -> Response:
    """List the workers."""
    site = site_of(request)
    queue = site.queue(request)
    workers = queue.workers()
    versions = sorted({worker.version for worker in workers if worker.state != "silent"})
    shared: dict[str, Any] = {"workers": workers, "versions": versions, "max_running": MAX_RUNNING}
    return site.page(request, "workers.html", **shared)


def show_limits(request: Request) -> Response:
    """List the limits."""
    site = site_of(request)
    queue = site.queue(request)
    return site.page(request, "limits.html", limits=queue.limits.list())


SPANS = {"1h": "minute", "24h": "hour", "3d": "hour", "7d": "day", "30d": "day"}
"""How far ahead to look, and in which buckets."""
MAX_NAMES = 20


def show_forecast(request: Request) -> Response:
    """Show the forecast as columns and as a table."""
    site = site_of(request)
    queue = site.queue(request)
    span = request.query_params.get("until", "24h")
    if span not in SPANS:
        raise HTTPException(400, f"The forecast is for {', '.join(SPANS)}.")
    unit: Any = SPANS[span]
    found = queue.forecast(span, unit, tz=zone_of(request))
    named = [(name or "(without a name)", count) for name, count in found.names.items()][:MAX_NAMES]
    shared: dict[str, Any] = {
        "span": span,
        "spans": SPANS,
        "forecast": found,
    }
    return site.page(request, "forecast.html", **shared, named=named if set(found.names) - {""} else [])


SCHEDULES = 50
"""Schedules that a page lists."""
OCCURRENCES = 3
"""Next occurrences that are listed of each."""


def show_schedules(request: Request) -> Response:
    """List a page of the schedules."""
    site = site_of(request)
    queue = site.queue(request)
    prefix = request.query_params.get("prefix") or None
    cursor = request.query_params.get("cursor") or None
    wrong, page = "", SchedulesPage([], None)
    try:
        if prefix is not None:
            check_schedule(prefix)
    except ConfigurationError as error:
        wrong = labelled(str(error), "schedule name", "Names that begin with")
    else:
        page = queue.schedules.page(prefix=prefix, limit=SCHEDULES, cursor=cursor)
    upcoming: dict[str, list[datetime]] = defaultdict(list)
    for schedule in page.schedules:
        if schedule.state is ScheduleState.ACTIVE:
            with suppress(ConfigurationError):  # its rule needs an extra that is not installed here
                upcoming[schedule.name] = list(queue.schedules.next(schedule.name, OCCURRENCES))
    shared: dict[str, Any] = {
        "page": page,
        "upcoming": upcoming,
        "rule_text": rule_text,
        "prefix": prefix or "",
        "wrong": wrong,
    }
    return site.page(request, "schedules.html", status=400 if wrong else 200, **shared)


LISTED = (
    State.PENDING,
    State.READY,
    State.ACTIVE,
    State.BACKOFF,
    State.RETRY,
    State.THROTTLED,
    State.COMPLETED,
)
"""The states with a list of their messages; the dead letter has a page of its own."""


def _calm(readings: Readings) -> int:
    """Return how little there is to do about a queue: those in trouble are listed first."""
    stats = readings.stats
    if stats is None or stats.nobody_consumes:
        return 0
    if stats.counts.paused and stats.counts.overdue:
        return 1
    return 2 if stats.counts.dead else 3


def list_context(site: Site, snapshot: Snapshot, viewer: Viewer) -> dict[str, Any]:
    """Return what the list of queues shows a viewer."""
    seen = {name: one for name, one in snapshot.queues.items() if site.sees(viewer, name)}
    readable = {name: one for name, one in seen.items() if isinstance(one, Readings)}
    readings = dict(sorted(readable.items(), key=lambda item: (_calm(item[1]), item[0])))
    refused = {name: str(one) for name, one in seen.items() if isinstance(one, ServerError)}
    return {"at": snapshot.at, "readings": readings, "refused": refused}


def figures_context(snapshot: Snapshot, name: str) -> dict[str, Any] | None:
    """Return what the page of a queue shows of its figures; None if the queue is gone or cannot be read."""
    found = snapshot.queues.get(name)
    if not isinstance(found, Readings) or found.stats is None:
        return None
    return {"name": name, "stats": found.stats, "rates": found.rates, "states": LISTED}


def show_queues(request: Request) -> Response:
    """List the queues."""
    site = site_of(request)
    context = list_context(site, site.live.all.snapshot(), request.state.viewer)
    return site.page(request, "queues.html", **context, live="?view=queues")


def show_queue(request: Request) -> Response:
    """Show the figures of a queue, and its last two days."""
    site = site_of(request)
    queue = site.queue(request)
    stats = queue.stats()
    history, rates = queue.history(2, tz=zone_of(request)), site.source.noted(queue.name, stats).rates
    figures: dict[str, Any] = {"name": queue.name, "stats": stats, "rates": rates, "states": LISTED}
    more: dict[str, Any] = {"history": history, "slo": stats.slo, "limits": queue.limits.list()}
    return site.page(request, "queue.html", **figures, **more, live=f"?queue={queue.name}")
