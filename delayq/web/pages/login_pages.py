"""Logging in with a token, and out."""

from __future__ import annotations

import math

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from delayq.safe_log import SafeLog
from delayq.web.access.protection import session_cookie
from delayq.web.site import site_of

log = SafeLog("delayq.web")


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


ROUTES = [
    Route("/login", show_login, methods=["GET"]),
    Route("/login", log_in, methods=["POST"]),
    Route("/logout", log_out, methods=["POST"]),
]
