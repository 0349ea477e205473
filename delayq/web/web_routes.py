"""Puts the pages, their protection and the figures together."""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from delayq.options import QueueOptions
from delayq.queue.consuming.loaded import load_all
from delayq.web.access.access import Access
from delayq.web.access.protection import Protection
from delayq.web.access.viewers import Viewer
from delayq.web.pages import (
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
from delayq.web.queue_source import QueueSource
from delayq.web.site import Site, errors

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


STATIC = Path(__file__).parent / "static"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}


def _static_route(path: Path) -> Route:
    """Return the route of a file, which is read once: it may be replaced, or be gone, while the dashboard runs."""
    body, kind = path.read_bytes(), _TYPES[path.suffix]
    headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"'}

    async def serve(request: Request) -> Response:
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(body, headers=headers, media_type=kind)

    return Route(f"/{path.name}", serve)


def make_app(
    options: QueueOptions, access_options: dict[str, Any], *, write: bool, reveal: bool, shown: Viewer
) -> Starlette:
    """Return the dashboard."""
    access = Access(**access_options)
    source = QueueSource(options, reveal=reveal)
    routes: list[Route | Mount] = [route for module in PAGES for route in module.ROUTES]
    routes.append(Mount("/static", routes=[_static_route(path) for path in STATIC.iterdir()]))
    load_all()
    app = Starlette(routes=routes, middleware=[Middleware(Protection, access=access)], exception_handlers={**errors})
    app.state.site = Site(source, access, write=write, shown=shown)
    return app
