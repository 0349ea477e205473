"""Makes the app of the dashboard, and names the extra where it is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from delayq.errors import ConfigurationError, short_repr
from delayq.options import QueueOptions
from delayq.values.checks import check_bool
from delayq.web.viewers import Viewer, check_token

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request


def web_app(
    *,
    write: bool = False,
    reveal: bool = False,
    token: str | None = None,
    viewers: Sequence[Viewer] | None = None,
    proxy_header: str | None = None,
    viewer_of: Callable[[Request], Viewer | str | None] | None = None,
    hosts: Sequence[str] = (),
    queues: Sequence[str] = ("*",),
    **options: Unpack[QueueOptions],
) -> Starlette:
    """Return the dashboard as an ASGI app, to be served by itself or mounted into another one.

    Who may look is said in one of four ways: all that log in with `token`, or with the tokens of `viewers`; all that
    a proxy names in `proxy_header`; all that `viewer_of` names when it is given a request, in a thread, for programs
    with a login of their own. Without any, only requests from this machine to `localhost` are answered. With
    `viewers`, only those may look, and each sees its queues alone.

    It changes nothing unless `write` is true, and hides what queues redact unless `reveal` is. `hosts` are the names
    under which browsers reach it, beside `localhost`: requests for others are refused, or `["*"]` allows all. `queues`
    are patterns of the queues that anybody sees. Takes the options of a queue that say where it is: `url` or `redis`,
    `prefix`, and `deadline`, by default 5 s. Connects at the first request, needs the rights of an inspector, and to
    act those of an admin.

    Raises `ConfigurationError`, also if the extra `web` is not installed.
    """
    check_bool(write, "write")
    check_bool(reveal, "reveal")
    if isinstance(hosts, str) or not all(isinstance(host, str) for host in hosts):
        raise ConfigurationError(f"hosts must be a list of names, not {short_repr(hosts)}")
    if viewers is not None and not viewers:
        raise ConfigurationError("viewers must name somebody")
    viewers = viewers or ()
    known = [*viewers] if token is None else [*viewers, Viewer("token", token=check_token(token))]
    access: dict[str, Any] = {"viewers": known, "header": proxy_header, "viewer_of": viewer_of, "hosts": hosts}
    try:
        import python_multipart  # noqa: F401 - forms need it

        from delayq.web.web_routes import make_app
    except ImportError as error:
        raise ConfigurationError("the dashboard needs the extra: pip install 'delayq[web]'") from error
    return make_app(options, access, write=write, reveal=reveal, shown=Viewer("all", queues))
