"""Looking into a work queue without touching it: one item, pages of its two lists."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from delayq.clock import moment
from delayq.config import whole
from delayq.errors import ConfigurationError, shown
from delayq.inspector import MOST_ROWS, PREVIEW
from delayq.workqueue.calls import Seen, Work, look, members
from delayq.workqueue.cleaning import SEARCHED
from delayq.workqueue.item import id_bytes
from delayq.workqueue.keys import Keys

_POSITION = re.compile(r"[0-9]{1,12}")


class ItemState(StrEnum):
    """Where an item is."""

    QUEUED = "queued"
    """It waits to be leased."""
    PROCESSING = "processing"
    """It was leased and is not completed; without a holder its lease has run out, and a clean puts it back."""
    ORPHANED = "orphaned"
    """It is in neither list, since an add was cut off: a clean that comes upon it puts it back."""


LISTED = (ItemState.QUEUED, ItemState.PROCESSING)
"""The states that there is a list of."""


@dataclass(frozen=True, slots=True)
class ItemInfo:
    """An item as it stands in a work queue. Its `repr` leaves the data out, which may be private."""

    id: str
    state: ItemState
    data: bytes = field(repr=False)
    """All of it, or in a page the first 4,096 bytes."""
    size: int
    """Bytes of the data as stored."""
    holder: str | None
    """The session that has leased it."""
    deadline: datetime | None
    """When that lease runs out."""


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Some items of a state, and the cursor of the next page (None at the end)."""

    items: list[ItemInfo]
    cursor: str | None


def get(keys: Keys, id: str) -> Work[ItemInfo | None]:
    """Read one item."""
    seen: list[Seen | None] = yield look(keys, [id_bytes(id)], last=-1, most=SEARCHED)
    return _info(id, seen[0], None)


def page(keys: Keys, state: ItemState | str, *, limit: int, cursor: str | None) -> Work[ItemPage]:
    """Read one page of the items in a state, those first that were there first."""
    if state not in LISTED:
        raise ConfigurationError(f"state of a listed item must be {' or '.join(LISTED)}, not {shown(state)}")
    whole(limit, "limit", 1, MOST_ROWS)
    if cursor and not (isinstance(cursor, str) and _POSITION.fullmatch(cursor)):
        raise ConfigurationError(f"cursor {shown(cursor)} is not one that a page of {state} items ended with")
    state, first = ItemState(state), int(cursor or 0)
    # Both lists are added to at the left.
    list_ = keys.queue if state is ItemState.QUEUED else keys.processing
    listed: list[bytes] = yield members(list_, -first - limit, -first - 1)
    ids = list(dict.fromkeys(reversed(listed)))
    seen: list[Seen | None] = yield look(keys, ids, last=PREVIEW - 1, most=0)
    infos = (_info(id.decode("utf-8", "surrogateescape"), one, state) for id, one in zip(ids, seen, strict=True))
    return ItemPage([info for info in infos if info], str(first + limit) if len(listed) == limit else None)


def _info(id: str, seen: Seen | None, state: ItemState | None) -> ItemInfo | None:
    if seen is None:
        return None
    ends = moment(seen.now + seen.left) if seen.holder and seen.left >= 0 else None
    return ItemInfo(id, state or ItemState(seen.place), seen.data, seen.size, seen.holder or None, ends)
