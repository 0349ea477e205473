"""Searching messages for a text, a limited number at a time."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.queue.sweeps.search import WHERE
from delayq.web.pages.payload_view import payload_line
from delayq.web.site import one_at_a_time, site_of

LIMIT = 50
MAX_SEARCHED = 2_000
"""Messages that one request reads, so that it takes a moment; a link goes on with the next."""


@one_at_a_time
def show_search(request: Request) -> Response:
    """Ask for a text, and list the messages that contain it."""
    site = site_of(request)
    queue = site.queue(request)
    text = request.query_params.get("text", "")
    where = [one for one in request.query_params.getlist("in") if one in WHERE] or list(WHERE)
    cursor = request.query_params.get("cursor") or None
    page = None
    if text:
        page = queue.search(text, where=where, limit=LIMIT, max_searched=MAX_SEARCHED, cursor=cursor)
    shared: dict[str, Any] = {"queue": queue.name, "places": WHERE, "where": where, "text": text, "found": page}
    return site.page(request, "search.html", **shared, payload_line=payload_line)


ROUTES = [Route("/search", show_search)]
