"""Server-sent events: the parts of pages that change, as HTML."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.web.live_figures import LiveFigures
from delayq.web.pages.queue_pages import figures_context, list_context
from delayq.web.queue_source import Snapshot
from delayq.web.site import site_of

LASTS = 600.0
"""Seconds after which a stream ends; browsers open another one, so that who may no longer look is told."""
PING = 15
"""Seconds between two signs of life."""
RETRY = 1000
"""Milliseconds after which a browser connects again."""


async def show_live(request: Request) -> Response:
    """Send the list of queues, or the figures of one, whenever they change."""
    site, viewer = site_of(request), request.state.viewer
    root, name = request.scope.get("root_path", ""), request.query_params.get("queue")
    if name is not None and not site.sees(viewer, name):
        raise HTTPException(404, "There is no such queue.")

    def make(snapshot: Snapshot) -> str:
        if name is None:
            return site.fragment("queue_rows.html", root=root, **list_context(site, snapshot, viewer))
        shown = figures_context(snapshot, name)
        return "" if shown is None else site.fragment("queue_figures.html", root=root, **shown)

    figures = site.live.all if name is None else site.live.of(name)
    key = (root, name, tuple(viewer.queues))
    return EventSourceResponse(_events(figures, key, make), ping=PING, headers={"X-Accel-Buffering": "no"})


async def _events(
    live: LiveFigures, key: tuple[object, ...], make: Callable[[Snapshot], str]
) -> AsyncIterator[ServerSentEvent]:
    ends = asyncio.get_running_loop().time() + LASTS
    before = None
    async with aclosing(live.watch()) as readings:
        async for reading in readings:
            part = reading.part(key, make)
            if part != before:
                before = part
                trouble = "Redis does not answer" if reading.snapshot is None else "the queue is gone"
                kind = "figures" if part else "trouble"
                yield ServerSentEvent(part or trouble, event=kind, retry=RETRY)
            if asyncio.get_running_loop().time() > ends:
                return


ROUTES = [Route("/live", show_live)]
