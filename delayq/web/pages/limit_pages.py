"""The limits of a queue and of its names, and which are paused."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.web.site import site_of


def show_limits(request: Request) -> Response:
    """List the limits."""
    site = site_of(request)
    queue = site.queue(request)
    return site.page(request, "limits.html", queue=queue.name, limits=queue.limits.list())


ROUTES = [Route("/limits", show_limits)]
