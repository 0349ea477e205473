"""Lists of messages by state, and the page of one message with its whole story."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.broker.keys import check_stored_id
from delayq.errors import ConfigurationError
from delayq.queue.inspecting.inspector import check_period
from delayq.queue.sweeps.selection import WAITING
from delayq.values.states import State
from delayq.web.action_forms import labelled
from delayq.web.pages.message_story import read_story
from delayq.web.pages.payload_view import payload_line, payload_view, value_view
from delayq.web.pages.queue_pages import LISTED
from delayq.web.site import site_of, time_in

PAGE = 50
"""Messages that a page lists."""
PERIOD = {"due_from": "Due from (UTC)", "due_to": "Before (UTC)"}
"""The fields that select messages by their due times, and what the page calls them."""

_OFFSET = re.compile(r"[0-9]{1,18}")
"""An offset of the event log in the address of a page."""


def show_messages(request: Request) -> Response:
    """List a page of the messages in a state."""
    site = site_of(request)
    queue = site.queue(request)
    state = request.query_params.get("state", State.PENDING)
    if state not in LISTED:
        raise HTTPException(404, "There is no such state.")
    between = {name: request.query_params.get(name, "") for name in PERIOD}
    due, wrong = _period(between) if state == State.PENDING else ({}, "")
    cursor = request.query_params.get("cursor") or None
    page = None if wrong else queue.list(state, limit=PAGE, cursor=cursor, **due)
    counts = queue.counts()
    return site.page(
        request,
        "messages.html",
        status=400 if wrong else 200,
        queue=queue.name,
        state=State(state),
        states=LISTED,
        counts=counts,
        page=page,
        payload_line=payload_line,
        between=between,
        labels=PERIOD,
        wrong=wrong,
    )


def _period(between: Mapping[str, str]) -> tuple[dict[str, datetime | None], str]:
    """Return the times of the form, and what is wrong with them, as the page calls them; '' for nothing."""
    due: dict[str, datetime | None] = {}
    try:
        due = {name: time_in(text, name) for name, text in between.items()}
        low, high = due.values()
        wrong = "due_from is after due_to" if low and high and low > high else ""
        if not wrong:
            check_period(low, high)
    except ConfigurationError as error:
        wrong = str(error)
    return due, re.sub(r"due_\w+", lambda found: f'"{PERIOD.get(found[0], found[0])}"', wrong, count=2)


def show_message(request: Request) -> Response:
    """Show a message: its record, its payload and result, and what the event log says."""
    site = site_of(request)
    queue = site.queue(request)
    id = request.query_params.get("id", "")
    try:
        check_stored_id(id)
    except ConfigurationError as error:
        wrong = labelled(str(error), "id", "Id of a message")
        return site.page(request, "no_message.html", status=400, queue=queue.name, id=id, wrong_id=wrong)
    message = queue.get(id)
    after = request.query_params.get("after", "")
    story = read_story(site.source, queue.name, id, message, int(after) if _OFFSET.fullmatch(after) else None)
    if message is None and not story.events and story.is_whole:
        wrong = "There is no such message, and the event log does not know it."
        return site.page(request, "no_message.html", status=404, queue=queue.name, id=id, wrong_id=wrong)
    shown = None if message is None or message.state is State.COMPLETED else payload_view(message)
    result = None if message is None or message.result is None else value_view(message.result)
    progress = None if message is None or message.progress is None else value_view(message.progress)
    return site.page(
        request,
        "message.html",
        queue=queue.name,
        id=id,
        message=message,
        story=story,
        payload=shown,
        result=result,
        progress=progress,
        waits=message is not None and message.state in WAITING,
    )


ROUTES = [
    Route("/messages", show_messages),
    Route("/message", show_message),
]
