"""Pages over all queues that a viewer sees: dead letters, and searches; one that cannot be read is named on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from delayq.errors import ConfigurationError, DelayqError, NoReplyError, ServerError
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.queue.inspecting.readings import Readings
from delayq.queue.sweeps.search import WHERE
from delayq.web.message_pages import MAX_SEARCHED, PAGE, payload_line
from delayq.web.site import Site, one_at_a_time, site_of

MAX_QUEUES = 50
"""Queues that one request reads; a link goes on with the next."""
OF_EACH = 10
"""Dead messages that are listed of each queue; its own page has all."""
MAX_REFUSED = 20
"""Queues that cannot be read which a page names."""


class Row(NamedTuple):
    """A message, with its queue and where the text was found in it, if there is one."""

    queue: str
    message: MessageInfo
    where: tuple[str, ...] = ()


class _QueueWalk:
    """Reads queues by their names, as long as a page has room and the request may read more."""

    def __init__(self, site: Site, request: Request) -> None:
        snapshot = site.live.all.snapshot()
        self._site, self._request = site, request
        viewer = request.state.viewer
        self.seen = {name: one for name, one in sorted(snapshot.queues.items()) if site.sees(viewer, name)}
        self.refused = {name: str(one) for name, one in self.seen.items() if isinstance(one, ServerError)}
        self.rows: list[Row] = []
        self.next_queue: str | None = None
        """The queue with which the next page begins; None at the end."""
        self.next_cursor: str | None = None

    @property
    def room(self) -> int:
        """Rows that the page still has."""
        return PAGE - len(self.rows)

    def dead(self) -> Mapping[str, int]:
        """Return how many messages are dead in each queue that has some."""
        readings = {name: one for name, one in self.seen.items() if isinstance(one, Readings)}
        return {name: one.stats.counts.dead for name, one in readings.items() if one.stats and one.stats.counts.dead}

    def from_cursor(self, names: Iterator[str], *, needs: int = 1) -> Iterator[tuple[str, str | None]]:
        """Yield the queues of this page that can be read and have room, the first with the cursor of the request."""
        first, cursor = (self._request.query_params.get(name) or None for name in ("from", "cursor"))
        names = (name for name in names if first is None or name >= first)
        for name in islice(names, MAX_QUEUES):
            if self.rows and self.room < needs:
                self.next_queue = name
                return
            if name not in self.refused:
                yield name, cursor if name == first else None
        self.next_queue = next(names, None)

    def read(self, name: str, read: Any) -> Any:
        """Return what is read of a queue; None, and why on the page, if it cannot be read or is gone."""
        queue = self._site.source.queue(name)
        try:
            return None if queue is None else read(queue)
        except (NoReplyError, ConfigurationError):  # not the fault of this queue
            raise
        except DelayqError as error:
            self.refused[name] = str(error)
            return None

    def page(self, template: str, **context: Any) -> Response:
        """Return the page."""
        shown: dict[str, Any] = {
            "rows": self.rows,
            "refused_queues": dict(islice(self.refused.items(), MAX_REFUSED)),
            "next_queue": self.next_queue,
            "next_cursor": self.next_cursor,
            "payload_line": payload_line,
        }
        return self._site.page(self._request, template, **shown, **context)


@one_at_a_time
def show_all_dead(request: Request) -> Response:
    """List the first dead messages of each queue."""
    walk = _QueueWalk(site_of(request), request)
    dead = walk.dead()
    for name, _ in walk.from_cursor(iter(dead), needs=OF_EACH):
        limit = min(OF_EACH, walk.room)
        page = walk.read(name, lambda queue, limit=limit: queue.dead.list(limit=limit))
        walk.rows += [Row(name, message) for message in page.messages] if page else []
    return walk.page("all_dead.html", of_each=OF_EACH, dead=dead, total=sum(dead.values()))


@one_at_a_time
def show_all_search(request: Request) -> Response:
    """Ask for a text, and list the messages of all queues that contain it."""
    site = site_of(request)
    text = request.query_params.get("text", "")
    where = [one for one in request.query_params.getlist("in") if one in WHERE] or list(WHERE)
    walk = _QueueWalk(site, request)
    searched = 0
    for name, cursor in walk.from_cursor(iter(walk.seen if text else ())):
        asked: dict[str, Any] = {"limit": walk.room, "max_searched": MAX_SEARCHED - searched, "cursor": cursor}
        page = walk.read(name, lambda queue, asked=asked: queue.search(text, where=where, **asked))
        if page is None:
            continue
        searched += page.searched
        walk.rows += [Row(name, match.message, match.where) for match in page.matches]
        if page.cursor is not None:
            walk.next_queue, walk.next_cursor = name, page.cursor
            break
        if searched >= MAX_SEARCHED:
            walk.next_queue = next((one for one in walk.seen if one > name), None)
            break
    return walk.page("all_search.html", places=WHERE, where=where, text=text, searched=searched)
