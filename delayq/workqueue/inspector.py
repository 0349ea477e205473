"""Reading a work queue without changing it: one item, pages of its two lists."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, short_repr
from delayq.queue.inspecting.inspector import MAX_ROWS, PREVIEW
from delayq.values.checks import check_int
from delayq.values.times import from_millis
from delayq.workqueue.calls import ItemView, WorkQueueCalls
from delayq.workqueue.cleaner import MAX_SEARCHED
from delayq.workqueue.item import id_bytes

_POSITION = re.compile(r"[0-9]{1,12}")


class ItemState(StrEnum):
    """Where an item is."""

    QUEUED = "queued"
    """It waits to be leased."""
    PROCESSING = "processing"
    """It was leased and is not completed. Without a holder its lease has expired, and a clean requeues it."""
    ORPHANED = "orphaned"
    """It is in neither list, because an add was cut off. A clean that finds it requeues it."""


@dataclass(frozen=True, slots=True)
class ItemInfo:
    """An item of a work queue at one moment. Its `repr` leaves out the data, which may be private."""

    id: str
    state: ItemState
    data: bytes = field(repr=False)
    """All bytes; in a page, the first 4,096."""
    size: int
    """Bytes of the data as stored."""
    holder: str | None
    """The session that has leased it."""
    deadline: datetime | None
    """When that lease expires."""


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Some items of a state, and the cursor of the next page (None on the last page)."""

    items: list[ItemInfo]
    cursor: str | None


def get(calls: WorkQueueCalls, id: str) -> Operation[ItemInfo | None]:
    """Read one item."""
    ((view,),) = yield [calls.view([id_bytes(id)], last=-1, max_searched=MAX_SEARCHED)]
    return _info(id, view, None)


def page(calls: WorkQueueCalls, state: ItemState | str, *, limit: int, cursor: str | None) -> Operation[ItemPage]:
    """Read one page of the items in a state, the oldest first."""
    calls.capabilities.check_state(state)
    check_int(limit, "limit", 1, MAX_ROWS)
    if cursor and not (isinstance(cursor, str) and _POSITION.fullmatch(cursor)):
        raise ConfigurationError(f"cursor must be one that list({str(state)!r}) returned, not {short_repr(cursor)}")
    state, first = ItemState(state), int(cursor or 0)
    key = calls.keys.queue if state is ItemState.QUEUED else calls.keys.processing
    (listed,) = yield [calls.ids(key, -first - limit, -first - 1)]  # both lists are added to at the left
    ids: list[bytes] = list(dict.fromkeys(reversed(listed)))
    (views,) = yield [calls.view(ids, last=PREVIEW - 1, max_searched=0)]
    infos = (_info(id.decode("utf-8", "surrogateescape"), view, state) for id, view in zip(ids, views, strict=True))
    return ItemPage([info for info in infos if info], str(first + limit) if len(listed) == limit else None)


def _info(id: str, view: ItemView | None, state: ItemState | None) -> ItemInfo | None:
    if view is None:
        return None
    ends = from_millis(view.now + view.remaining) if view.holder and view.remaining >= 0 else None
    return ItemInfo(id, state or ItemState(view.location), view.data, view.size, view.holder or None, ends)
