"""The schedules of a queue, with the next occurrences of each."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.errors import ConfigurationError
from delayq.schedules.definition import check_schedule
from delayq.schedules.info import SchedulesPage, ScheduleState, rule_text
from delayq.web.action_forms import labelled
from delayq.web.site import site_of

PAGE = 50
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
        page = queue.schedules.page(prefix=prefix, limit=PAGE, cursor=cursor)
    upcoming: dict[str, list[datetime]] = defaultdict(list)
    for schedule in page.schedules:
        if schedule.state is ScheduleState.ACTIVE:
            with suppress(ConfigurationError):  # its rule needs an extra that is not installed here
                upcoming[schedule.name] = list(queue.schedules.next(schedule.name, OCCURRENCES))
    shared: dict[str, Any] = {
        "queue": queue.name,
        "page": page,
        "upcoming": upcoming,
        "rule_text": rule_text,
        "prefix": prefix or "",
        "wrong": wrong,
    }
    return site.page(request, "schedules.html", status=400 if wrong else 200, **shared)


ROUTES = [Route("/schedules", show_schedules)]
