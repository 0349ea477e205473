"""What a queue will fire in each minute, hour or day."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.web.site import site_of

SPANS = {"1h": "minute", "24h": "hour", "3d": "hour", "7d": "day", "30d": "day"}
"""How far ahead to look, and in which buckets."""
FORMATS = {"minute": "%H:%M", "hour": "%d %b %H:%M", "day": "%a %d %b"}
MAX_NAMES = 20


def show_forecast(request: Request) -> Response:
    """Show the forecast as columns and as a table."""
    site = site_of(request)
    queue = site.queue(request)
    span = request.query_params.get("until", "24h")
    if span not in SPANS:
        raise HTTPException(400, f"The forecast is for {', '.join(SPANS)}.")
    unit: Any = SPANS[span]
    found = queue.forecast(span, unit)
    named = [(name or "(without a name)", count) for name, count in found.names.items()][:MAX_NAMES]
    shared: dict[str, Any] = {
        "queue": queue.name,
        "span": span,
        "spans": SPANS,
        "forecast": found,
        "format": FORMATS[found.unit],
    }
    return site.page(request, "forecast.html", **shared, named=named if set(found.names) - {""} else [])


ROUTES = [Route("/forecast", show_forecast)]
