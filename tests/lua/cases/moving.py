"""What is on its way to another partition: batches in `moving`, and the notes of those that have arrived."""

from __future__ import annotations

from delayq.broker.move_calls import SentOff
from tests.support.scripts import NOW, T, World

TARGET, SOURCE = "reminders#3", "reminders#0"
ON_ITS_WAY = SentOff("1", [T])
"""The reply to what has been sent off alone."""


def packed(*cells: str | int) -> str:
    """Return cells as a batch has them."""
    return "".join(f"{len(str(cell))}:{cell}" for cell in cells)


def message(
    id: str = "a",
    at: int | str = NOW + 60_000,
    record: str = "",
    left: str = "2",
    payload: str = "A",
    headers: str = "ha",
    text: str = "name=a",
    error: str = "",
    after: str = "",
    place: str = "",
    entries: dict[str, str] | None = None,
) -> str:
    """Return a message as a batch has it; tokens in the record are from `T`."""
    record = " ".join(str(T + int(word[1:])) if word.startswith("T") else word for word in record.split(" "))
    gathered = [cell for entry in (entries or {}).items() for cell in entry]
    cells = (id, at, record, left, payload, headers, text, error, after, place)
    return packed("message", *cells, len(gathered) // 2, *gathered)


def record(state: str, due: int = -5) -> str:
    """Return the record of a message that was delivered twice, see `states`."""
    return f"{state} {NOW + due} 2 T-9 T-7 w"


def sent_off(batch: str, kind: str = "messages", number: int = T, before: tuple[int, ...] = ()) -> World:
    """Return what `moving` has after a batch was sent off, behind others."""
    fields = {"last": str(number), f"order {kind} {TARGET}": " ".join(map(str, (*before, number)))}
    return World(moving=fields | {f"{kind} {TARGET} {number}": batch})


def arrived(number: int = T, kind: str = "messages") -> World:
    """Return the note of the batch that has arrived last."""
    return World(moving={f"from {kind} {SOURCE}": str(number)})
