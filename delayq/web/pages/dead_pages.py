"""The dead letter: its groups, and the messages of each."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.queue.dead_groups import check_group
from delayq.queue.dead_letter import DeadFilter
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.web.pages.message_pages import PAGE
from delayq.web.pages.payload_view import payload_line
from delayq.web.site import one_at_a_time, site_of

MAX_GROUPED = 500
"""Dead messages up to which the page groups them by itself; of more, a link asks for it: all of them are read."""
MAX_PAGES = 20
"""Pages of the dead letter that are read to find the messages of a group for one page."""


@one_at_a_time
def show_dead(request: Request) -> Response:
    """Group the dead letter, and list a page of it or of a group."""
    site = site_of(request)
    queue = site.queue(request)
    group = request.query_params.get("group") or None
    if group is not None:
        check_group(group)
    dead = queue.counts().dead
    grouped = dead <= MAX_GROUPED or request.query_params.get("grouped") == "yes"
    wanted = DeadFilter(None, None, group)
    messages: list[MessageInfo] = []
    cursor = request.query_params.get("cursor") or None
    for _ in range(MAX_PAGES if group else 1):
        page = queue.dead.list(limit=PAGE, cursor=cursor)
        messages += [message for message in page.messages if wanted.matches(message)]
        cursor = page.cursor
        if cursor is None or len(messages) >= PAGE:
            break
    groups = []
    if grouped and dead:
        groups = queue.dead.groups()
    return site.page(
        request,
        "dead.html",
        queue=queue.name,
        dead=dead,
        groups=groups,
        is_grouped=grouped,
        group=group,
        messages=messages,
        cursor=cursor,
        payload_line=payload_line,
    )


ROUTES = [Route("/dead", show_dead)]
