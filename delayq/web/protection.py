"""What every request goes through: host, origin, viewer and session are checked, and headers added to the reply."""

from __future__ import annotations

from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from delayq.web.access import COOKIE, SESSION_LASTS, Access

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without it, forms would be sent with the origin `null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
MAX_BODY = 65_536
"""Bytes of a form."""
_PUBLIC = ("/login", "/static/")
"""What is served without a viewer."""


def route_of(scope: Scope) -> str:
    """Return the path of a request within the dashboard."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) or "/"


def session_cookie(scope: Scope, value: str) -> str:
    """Return the header that sets the cookie of a session; '' ends it."""
    cookie: SimpleCookie = SimpleCookie({COOKIE: value})
    attributes: dict[str, Any] = {"path": scope.get("root_path", "") or "/", "httponly": True, "samesite": "strict"}
    attributes |= {"max-age": SESSION_LASTS if value else 0, "secure": scope["scheme"] == "https"}
    cookie[COOKIE].update(attributes)
    return cookie[COOKIE].OutputString()


class Protection:
    """ASGI middleware around the whole dashboard."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        """Protect `app`."""
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on with `viewer` and `session` in its state."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        session = request.cookies.get(COOKIE, "")
        cookie = ""
        is_static = route_of(scope).startswith("/static/")
        if not session and not is_static:
            session = self._access.session()
            cookie = session_cookie(scope, session)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-cache" if is_static else "no-store")
                if cookie and COOKIE not in headers.get("Set-Cookie", ""):
                    headers.append("Set-Cookie", cookie)
            await send(message)

        state: dict[str, Any] = scope.setdefault("state", {})
        state["session"] = session
        refused = self._refusal(request)
        if refused is None:
            state["viewer"] = await self._access.find_viewer(request)
            refused = self._missing_viewer(request)
        await (refused or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("Host", "")
        if not self._access.allows_host(host):
            return PlainTextResponse("this host is not served: start delayq web with --hostname\n", 421)
        if not self._access.allows_client(request.scope.get("client"), request.headers):
            return PlainTextResponse("only this machine may look: start delayq web with a token\n", 403)
        if request.method not in ("GET", "HEAD") and not _is_same_origin(request, host):
            return PlainTextResponse(f"{_origin_problem(request, host)}\n", 403)
        if request.method not in ("GET", "HEAD") and not _is_short(request):
            return PlainTextResponse("the form is too long\n", 413)
        return None

    def _missing_viewer(self, request: Request) -> Response | None:
        route = route_of(request.scope)
        if request.state.viewer is not None or route.startswith(_PUBLIC):
            return None
        if not self._access.has_login:
            return PlainTextResponse("you may not look at this dashboard\n", 403)
        if request.method != "GET" or route == "/live":
            return PlainTextResponse("log in first\n", 401)
        query = f"?{request.url.query}" if request.url.query else ""
        target = f"{request.scope.get('root_path', '')}/login?next={quote(route + query, safe='')}"
        return RedirectResponse(target, 303)


def _is_same_origin(request: Request, host: str) -> bool:
    """Return whether a request that changes something is from a page of the dashboard: browsers say so."""
    origin = request.headers.get("Origin")
    if origin is None:
        return request.headers.get("Sec-Fetch-Site") == "same-origin"
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # such as http://[
        return False


def _origin_problem(request: Request, host: str) -> str:
    """Return why the origin of a request is not that of the dashboard; programs that set headers pass."""
    if "Origin" in request.headers or "Sec-Fetch-Site" in request.headers:
        return "the request is from another website"
    return f"the request lacks the header Origin, which browsers send: Origin: {request.url.scheme}://{host}"


def _is_short(request: Request) -> bool:
    """Return whether the body of a request says its length, and that is the length of a form."""
    length = request.headers.get("Content-Length", "")
    return length.isascii() and length.isdecimal() and len(length) <= len(str(MAX_BODY)) and int(length) <= MAX_BODY
