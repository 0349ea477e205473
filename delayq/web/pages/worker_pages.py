"""Who consumes a queue, and on what messages."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.web.site import site_of

MAX_RUNNING = 5
"""Running messages that are listed of each worker."""


def show_workers(request: Request) -> Response:
    """List the workers."""
    site = site_of(request)
    queue = site.queue(request)
    workers = queue.workers()
    versions = sorted({worker.version for worker in workers if worker.state != "silent"})
    shared: dict[str, Any] = {"queue": queue.name, "workers": workers, "versions": versions, "max_running": MAX_RUNNING}
    return site.page(request, "workers.html", **shared)


ROUTES = [Route("/workers", show_workers)]
