"""What all pages share: who looks, which queue is meant, how a page is made, and what becomes of an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from delayq.errors import ConfigurationError, DelayqError, NoReplyError
from delayq.web.access import Access, FailedLogins
from delayq.web.live_figures import LiveQueues
from delayq.web.queue_source import QueueSource
from delayq.web.shown.rendering import RefusedForm, make_environment
from delayq.web.shown.shown_times import zone_of
from delayq.web.viewers import Viewer

if TYPE_CHECKING:
    from delayq.queue.delay_queue import DelayQueue

NOTE = "delayq-web-note"
"""The cookie that takes what an action has done to the next page."""
MAX_NOTE = 300


class Site:
    """The parts of one dashboard."""

    def __init__(self, source: QueueSource, access: Access, *, write: bool, shown: Viewer) -> None:
        """Show the queues of `source` that `shown` sees; act on them if `write`."""
        self.source = source
        self.access = access
        self.live = LiveQueues(source)
        self.failed_logins = FailedLogins()
        self.reads: CapacityLimiter | None = None
        """Admits one of the requests that read many messages; made by the first, as it belongs to the event loop."""
        self._write = write
        self._shown = shown
        self._templates = make_environment()

    def may_write(self, viewer: Viewer | None) -> bool:
        """Return whether a viewer may act."""
        return self._write and viewer is not None and viewer.write

    def check_form(self, request: Request, token: object) -> None:
        """Raise 403 for a form that is not from a page of this session, by the token in it."""
        if not self.access.allows_form(request.state.session, request.state.viewer, token):
            raise HTTPException(403, "This form is out of date: load the page again.")

    def sees(self, viewer: Viewer, queue: str) -> bool:
        """Return whether a queue exists for a viewer."""
        return self._shown.sees(queue) and viewer.sees(queue)

    def queue(self, request: Request, name: str | None = None) -> DelayQueue[Any]:
        """Return the queue that a request is about; raise 404 if it does not exist, at least for this viewer."""
        wanted = request.query_params.get("queue", "") if name is None else name
        queue = self.source.queue(wanted) if self.sees(request.state.viewer, wanted) else None
        if queue is None:
            raise HTTPException(404, "There is no such queue.")
        request.state.queue = queue.name
        return queue

    def fragment(self, template: str, **context: Any) -> str:
        """Return a part of a page."""
        return self._templates.get_template(template).render(context)

    def page(self, request: Request, template: str, *, status: int = 200, **context: Any) -> Response:
        """Return a page."""
        viewer: Viewer | None = getattr(request.state, "viewer", None)
        note = unquote(request.cookies.get(NOTE, ""))
        root = request.scope.get("root_path", "")
        refused: RefusedForm | None = getattr(request.state, "refused", None)
        shared = {
            "root": root,
            "viewer": viewer,
            "may_write": self.may_write(viewer),
            "has_login": self.access.has_login,
            "form_token": self.access.form_token(request.state.session, viewer),
            "page_query": request.url.query,
            "note": note,
            "refused": refused,
            "zone": zone_of(request),
            "live": None,
            "wait": 0,
            "queue": getattr(request.state, "queue", None),
        }
        response = HTMLResponse(self.fragment(template, **{**shared, **context}), 400 if refused else status)
        if note:
            response.delete_cookie(NOTE, path=root or "/", httponly=True, samesite="strict")
        return response

    def done(self, request: Request, path: str, note: str) -> Response:
        """Return to a page after an action, and say there what it has done."""
        root = request.scope.get("root_path", "")
        response = RedirectResponse(root + path, 303)
        response.set_cookie(
            NOTE, quote(note[:MAX_NOTE]), max_age=60, path=root or "/", httponly=True, samesite="strict"
        )
        return response


def site_of(request: Request) -> Site:
    """Return the dashboard that serves a request."""
    site: Site = request.app.state.site
    return site


def one_at_a_time(page: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Let the requests for pages that read many messages wait for each other, without holding a thread meanwhile."""

    @wraps(page)
    async def show(request: Request) -> Response:
        site = site_of(request)
        site.reads = site.reads or CapacityLimiter(1)
        return await to_thread.run_sync(page, request, limiter=site.reads)

    return show


def show_error(request: Request, error: Exception) -> Response:
    """Return the page of an error, with the status that it stands for."""
    status, text = 500, "The dashboard has failed; its log says why."
    if isinstance(error, HTTPException):
        status, text = error.status_code, error.detail
    elif isinstance(error, NoReplyError):
        status, text = 503, "Redis does not answer."
    elif isinstance(error, ConfigurationError):
        status, text = 400, str(error)
    elif isinstance(error, DelayqError):
        status, text = 502, str(error)
    return site_of(request).page(request, "error.html", status=status, status_code=status, text=text)


errors = dict.fromkeys((HTTPException, DelayqError), show_error)
