"""Pages of messages: lists by state, the dead letter, searches, and one message with its whole story."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from delayq.broker.keys import check_stored_id
from delayq.errors import ConfigurationError
from delayq.privacy.ciphertext import describe_encrypted
from delayq.privacy.redaction import preview
from delayq.queue.dead_groups import check_group
from delayq.queue.dead_letter import DeadFilter
from delayq.queue.inspecting.decoded_payload import decode_payload, payload_text
from delayq.queue.inspecting.inspector import check_period
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.queue.sweeps.search import WHERE
from delayq.queue.sweeps.selection import WAITING
from delayq.values.states import State
from delayq.values.text import clean
from delayq.web.edited_payload import edit_form
from delayq.web.message_story import MAX_KEPT, read_story
from delayq.web.queue_pages import LISTED
from delayq.web.shown.rendering import labelled
from delayq.web.shown.shown_times import time_in, zone_name, zone_of
from delayq.web.site import one_at_a_time, site_of

MAX_SHOWN = 200_000
"""Characters of a payload on the page of its message."""


class PayloadView(NamedTuple):
    """A payload as text, and how it was encoded: json, text, base64, encrypted or redacted."""

    text: str
    encoding: str
    is_cut: bool


def payload_line(message: MessageInfo) -> str:
    """Return a payload as one line, for a table."""
    return preview(message.payload or b"", message.size)


def payload_view(message: MessageInfo) -> PayloadView:
    """Return the payload of a message in full, JSON with indents, as `delayq show` does."""
    return value_view(message.payload or b"", message.size)


def value_view(stored: Any, size: int | None = None) -> PayloadView:
    """Return stored bytes in full; `size` is more if they were cut."""
    size = len(stored) if size is None else size
    value, encoding, is_cut = decode_payload(stored, size)
    if encoding == "encrypted":
        return PayloadView(describe_encrypted(size), encoding, is_cut=False)
    text = payload_text(value, encoding)
    return PayloadView(clean(text[:MAX_SHOWN], lines=True), encoding, is_cut or len(text) > MAX_SHOWN)


PAGE = 50
"""Messages that a page lists."""
PERIOD = {"due_from": "Due from ({zone})", "due_to": "Before ({zone})"}
"""The fields that select messages by their due times, and what the page calls them."""

_OFFSET = re.compile(r"[0-9]{1,18}")
"""An offset of the event log in the address of a page."""
_OFFSETS = re.compile(rf"[0-9]{{1,18}}(?:-[0-9]{{1,18}}){{0,{MAX_KEPT - 1}}}")
"""Those of the entries that parts of the log have had of a message."""


def show_messages(request: Request) -> Response:
    """List a page of the messages in a state."""
    site = site_of(request)
    queue = site.queue(request)
    state = request.query_params.get("state", State.PENDING)
    if state not in LISTED:
        raise HTTPException(404, "There is no such state.")
    between = {name: request.query_params.get(name, "") for name in PERIOD}
    zone = zone_of(request)
    labels = {name: label.format(zone=zone_name(zone)) for name, label in PERIOD.items()}
    due, wrong = _period(between, labels, zone) if state == State.PENDING else ({}, "")
    cursor = request.query_params.get("cursor") or None
    page = None if wrong else queue.list(state, limit=PAGE, cursor=cursor, **due)
    counts = queue.counts()
    return site.page(
        request,
        "messages.html",
        status=400 if wrong else 200,
        state=State(state),
        states=LISTED,
        counts=counts,
        page=page,
        payload_line=payload_line,
        between=between,
        labels=labels,
        wrong=wrong,
    )


def _period(
    between: Mapping[str, str], labels: Mapping[str, str], zone: tzinfo
) -> tuple[dict[str, datetime | None], str]:
    """Return the times of the form, and what is wrong with them, as the page calls them; '' for nothing."""
    due: dict[str, datetime | None] = {}
    try:
        due = {name: time_in(text, name, zone) for name, text in between.items()}
        low, high = due.values()
        wrong = "due_from is after due_to" if low and high and low > high else ""
        if not wrong:
            check_period(low, high)
    except ConfigurationError as error:
        wrong = str(error)
    return due, re.sub(r"due_\w+", lambda found: f'"{labels.get(found[0], found[0])}"', wrong, count=2)


def show_message(request: Request) -> Response:
    """Show a message: its record, its payload and result, and what the event log says."""
    site = site_of(request)
    queue = site.queue(request)
    id = request.query_params.get("id", "")
    try:
        check_stored_id(id)
    except ConfigurationError as error:
        wrong = labelled(str(error), "id", "Id of a message")
        return site.page(request, "no_message.html", status=400, id=id, wrong_id=wrong)
    message = queue.get(id)
    after = request.query_params.get("after", "")
    known = request.query_params.get("found", "")
    found = [int(one) for one in known.split("-")] if _OFFSETS.fullmatch(known) else []
    begin = int(after) if _OFFSET.fullmatch(after) else None
    story = read_story(site.source, queue.name, id, message, after=begin, found=found)
    if message is None and not story.events and story.is_whole:
        wrong = "There is no such message, and the event log does not know it."
        return site.page(request, "no_message.html", status=404, id=id, wrong_id=wrong)
    shown = None if message is None or message.state is State.COMPLETED else payload_view(message)
    result = None if message is None or message.result is None else value_view(message.result)
    progress = None if message is None or message.progress is None else value_view(message.progress)
    return site.page(
        request,
        "message.html",
        id=id,
        message=message,
        story=story,
        max_kept=MAX_KEPT,
        payload=shown,
        result=result,
        progress=progress,
        why=() if message is None or message.state in (State.DEAD, State.COMPLETED) else queue.why(id).reasons,
        waits=message is not None and message.state in WAITING,
        edits=None if message is None or shown is None else edit_form(message, *shown[:2], is_cut=shown.is_cut),
    )


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
        dead=dead,
        groups=groups,
        is_grouped=grouped,
        group=group,
        messages=messages,
        cursor=cursor,
        payload_line=payload_line,
    )


MAX_SEARCHED = 2_000
"""Messages that one request reads, so that it takes a moment; a link goes on with the next."""


@one_at_a_time
def show_search(request: Request) -> Response:
    """Ask for a text, and list the messages that contain it."""
    site = site_of(request)
    queue = site.queue(request)
    text = request.query_params.get("text", "")
    where = [one for one in request.query_params.getlist("in") if one in WHERE] or list(WHERE)
    cursor = request.query_params.get("cursor") or None
    page = None
    if text:
        page = queue.search(text, where=where, limit=PAGE, max_searched=MAX_SEARCHED, cursor=cursor)
    shared: dict[str, Any] = {"places": WHERE, "where": where, "text": text, "found": page}
    return site.page(request, "search.html", **shared, payload_line=payload_line)
