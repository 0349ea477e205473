"""The dashboard within Django's admin: its login, its permissions, at its address."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from delayq.errors import ConfigurationError
from delayq.web.dashboard import web_app
from delayq.web.viewers import Viewer

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_NAME = 100


def with_dashboard(application: Any, *, backend: str = "default", admin: str = "/admin", **options: Any) -> Any:
    """Return an ASGI application: the dashboard at `/admin/delayq/dashboard/`, and all else by `application`.

    Use it in `asgi.py`, around `get_asgi_application()`. It asks for the login of the admin. Staff with the permission
    `delayq.view_dashboard` sees the queues of a `backend` of TASKS; with `delayq.change_dashboard` it may act. `admin`
    is the path of the admin. Other options are those of `web_app`. Raises `ConfigurationError` for a backend that is
    not delayq's, and without the extra `web`.
    """
    from django.conf import settings

    from delayq.django.backend import DelayqBackend
    from delayq.django.tasks_api import task_backends

    found = task_backends[backend]
    if not isinstance(found, DelayqBackend):
        raise ConfigurationError(f"TASKS[{backend!r}] is no DelayqBackend: its queues are elsewhere")
    given: dict[str, Any] = {"write": True, "hosts": settings.ALLOWED_HOSTS, **found.place}
    if found.queues:
        given["queues"] = sorted(found.queues)
    dashboard = web_app(viewer_of=_viewer_of, **{**given, **options})
    from starlette.applications import Starlette
    from starlette.routing import Mount

    path = f"{admin.rstrip('/')}/delayq/dashboard"
    mounted = _LoginFirst(dashboard, f"{admin.rstrip('/')}/login/")
    return Starlette(routes=[Mount(path, app=mounted), Mount("/", app=application)])


def _viewer_of(request: Request) -> Viewer | None:
    """Return who is logged in to the admin and may look; called in a thread."""
    from django.conf import settings
    from django.contrib.auth import get_user
    from django.db import close_old_connections
    from django.http import HttpRequest

    asked = HttpRequest()
    store = import_module(settings.SESSION_ENGINE).SessionStore
    asked.session = store(request.cookies.get(settings.SESSION_COOKIE_NAME))
    close_old_connections()
    try:
        user = get_user(asked)
        if not (user.is_active and user.is_staff and user.has_perm("delayq.view_dashboard")):
            return None
        return Viewer(user.get_username()[:MAX_NAME], write=user.has_perm("delayq.change_dashboard"))
    finally:
        close_old_connections()


class _LoginFirst:
    """Leads who may not look at a page to the login of the admin."""

    def __init__(self, app: Any, login: str) -> None:
        self._app, self._login = app, login

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refused = False

        async def answer(message: Any) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and message["status"] in (401, 403):
                refused = scope["method"] == "GET"
                if refused:
                    location = f"{self._login}?next={quote(scope['path'])}".encode()
                    message = {
                        **message,
                        "status": 302,
                        "headers": [(b"location", location), (b"content-length", b"0")],
                    }
            elif refused:
                message = {**message, "body": b""}
            await send(message)

        await self._app(scope, receive, answer)
