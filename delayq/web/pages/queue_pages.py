"""The list of queues, and the page of one."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.errors import ServerError
from delayq.queue.inspecting.recent_rates import Readings
from delayq.values.states import State
from delayq.web.access.viewers import Viewer
from delayq.web.queue_source import Snapshot
from delayq.web.site import Site, site_of

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


def list_context(site: Site, snapshot: Snapshot, viewer: Viewer) -> dict[str, Any]:
    """Return what the list of queues shows a viewer."""
    seen = {name: one for name, one in snapshot.queues.items() if site.sees(viewer, name)}
    readings = {name: one for name, one in seen.items() if isinstance(one, Readings)}
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
    found = site.source.read([queue.name]).queues.get(queue.name)
    rates = found.rates if isinstance(found, Readings) else None
    history = queue.history(2)
    figures: dict[str, Any] = {"name": queue.name, "stats": stats, "rates": rates, "states": LISTED}
    more: dict[str, Any] = {"history": history, "slo": stats.slo, "limits": queue.limits.list()}
    return site.page(request, "queue.html", queue=queue.name, **figures, **more, live=f"?queue={queue.name}")


ROUTES = [
    Route("/", show_queues),
    Route("/queue", show_queue),
]
