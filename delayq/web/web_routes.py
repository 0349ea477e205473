"""Puts the pages, their protection and the figures together; logins, and what changes while somebody looks."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from http import HTTPStatus
from pathlib import Path
from typing import Any

from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from delayq.options import QueueOptions
from delayq.queue.consuming.loaded import load_all
from delayq.safe_log import SafeLog
from delayq.web.access import Access
from delayq.web.action_routes import act
from delayq.web.live_figures import LiveFigures
from delayq.web.message_pages import show_dead, show_message, show_messages, show_search
from delayq.web.protection import Protection, session_cookie
from delayq.web.queue_pages import (
    figures_context,
    list_context,
    show_forecast,
    show_limits,
    show_queue,
    show_queues,
    show_schedules,
    show_workers,
)
from delayq.web.queue_source import QueueSource, Snapshot
from delayq.web.several_pages import show_all_dead, show_all_search
from delayq.web.shown.shown_times import zone_name, zone_of
from delayq.web.site import Site, errors, site_of
from delayq.web.viewers import Viewer

log = SafeLog("delayq.web")
_Show = Callable[[Request], Awaitable[Response]]


def _target(text: str | None) -> str:
    """Return where to go after a login: a path of the dashboard, and nowhere else."""
    return text if text and text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() else "/"


def show_login(request: Request) -> Response:
    """Ask for the token."""
    site = site_of(request)
    if not site.access.has_login:
        raise HTTPException(404, "There is nothing to log in to.")
    return site.page(request, "login.html", next=_target(request.query_params.get("next")), wrong=False)


async def log_in(request: Request) -> Response:
    """Check the token, and begin a session."""
    site = site_of(request)
    form = await request.form(max_files=0, max_fields=10)
    target = _target(str(form.get("next", "")))
    if not site.access.has_login:
        raise HTTPException(404, "There is nothing to log in to.")
    site.check_form(request, form.get("form_token"))
    client = request.client.host if request.client else "unknown"
    if wait := math.ceil(site.failed_logins.wait(client)):  # also for the right token: else guessing were as fast
        reply = site.page(request, "login.html", status=429, next=target, wrong=False, wait=wait)
        reply.headers["Retry-After"] = str(wait)
        return reply
    viewer = site.access.log_in(str(form.get("token", "")))
    if viewer is None:
        site.failed_logins.add(client)
        log.warning("a login from %s was refused", client, extra={"client": client})
        return site.page(request, "login.html", status=403, next=target, wrong=True)
    site.failed_logins.forget(client)
    log.info("%s has logged in from %s", viewer.name, client, extra={"viewer": viewer.name, "client": client})
    response = RedirectResponse(request.scope.get("root_path", "") + target, 303)
    response.headers.append("Set-Cookie", session_cookie(request.scope, site.access.session(viewer)))
    return response


async def log_out(request: Request) -> Response:
    """End the session."""
    site = site_of(request)
    form = await request.form(max_files=0, max_fields=10)
    site.check_form(request, form.get("form_token"))
    site.access.log_out(request.state.session)
    response = RedirectResponse(f"{request.scope.get('root_path', '')}/login", 303)
    response.headers.append("Set-Cookie", session_cookie(request.scope, ""))
    return response


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
    shared: dict[str, Any] = {"root": root, "zone": zone_of(request)}
    if name is not None and not site.sees(viewer, name):
        raise HTTPException(404, "There is no such queue.")

    def make(snapshot: Snapshot) -> str:
        if name is None:
            return site.fragment("queue_rows.html", **shared, **list_context(site, snapshot, viewer))
        shown = figures_context(snapshot, name)
        return "" if shown is None else site.fragment("queue_figures.html", **shared, **shown)

    figures = site.live.all if name is None else site.live.of(name)
    key = (root, name, tuple(viewer.queues), zone_name(shared["zone"]))
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


def _one_or_all(one: _Show, of_all: _Show) -> _Show:
    """Return what shows a page of the queue that a request names, or of all queues."""

    async def show(request: Request) -> Response:
        return await (one if "queue" in request.query_params else of_all)(request)

    return show


ROUTES = [
    Route("/login", show_login, methods=["GET"]),
    Route("/login", log_in, methods=["POST"]),
    Route("/logout", log_out, methods=["POST"]),
    Route("/", show_queues),
    Route("/queue", show_queue),
    Route("/messages", show_messages),
    Route("/message", show_message),
    Route("/dead", _one_or_all(show_dead, show_all_dead)),
    Route("/search", _one_or_all(show_search, show_all_search)),
    Route("/workers", show_workers),
    Route("/schedules", show_schedules),
    Route("/forecast", show_forecast),
    Route("/limits", show_limits),
    Route("/live", show_live),
    Route("/do/{action}", act, methods=["POST"]),
]
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
    routes: list[Route | Mount] = [*ROUTES, Mount("/static", routes=[_static_route(path) for path in STATIC.iterdir()])]
    load_all()
    app = Starlette(routes=routes, middleware=[Middleware(Protection, access=access)], exception_handlers={**errors})
    app.state.site = Site(source, access, write=write, shown=shown)
    return app
