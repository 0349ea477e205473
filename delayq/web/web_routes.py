"""Puts the pages, their protection and the figures together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from delayq.options import QueueOptions
from delayq.web import (
    action_routes,
    dead_pages,
    forecast_pages,
    limit_pages,
    live_route,
    login_pages,
    message_pages,
    queue_pages,
    schedule_pages,
    search_pages,
    worker_pages,
)
from delayq.web.access import Access
from delayq.web.protection import Protection
from delayq.web.queue_source import QueueSource
from delayq.web.site import Site, errors
from delayq.web.viewers import Viewer

PAGES = (
    login_pages,
    queue_pages,
    message_pages,
    dead_pages,
    search_pages,
    worker_pages,
    schedule_pages,
    forecast_pages,
    limit_pages,
    live_route,
    action_routes,
)


def make_app(
    options: QueueOptions, access_options: dict[str, Any], *, write: bool, reveal: bool, shown: Viewer
) -> Starlette:
    """Return the dashboard."""
    access = Access(**access_options)
    source = QueueSource(options, reveal=reveal)
    routes: list[Route | Mount] = [route for module in PAGES for route in module.ROUTES]
    routes.append(Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")))
    app = Starlette(routes=routes, middleware=[Middleware(Protection, access=access)], exception_handlers={**errors})
    app.state.site = Site(source, access, write=write, shown=shown)
    return app
