"""How schedules stand in Redis, as the scripts that read them answer it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Standing(NamedTuple):
    """A schedule as it stands: its next time (ms, None for none), definition and payload, and what it has fired."""

    name: str
    next: int | None
    spec: bytes
    revision: str
    fired: int
    last: int
    """The time of its last occurrence (ms, 0 for none)."""
    paused: bool


class DueSchedules(NamedTuple):
    """The schedules that are due, whether those are all, and the server's time (ms)."""

    now: int
    complete: bool
    schedules: list[Standing]


class SchedulePage(NamedTuple):
    """A page of schedules, the cursor of the next one ('0' at the end), and the server's time (ms)."""

    now: int
    cursor: str
    schedules: list[Standing]


def read_due(answer: list[Any], limit: int) -> DueSchedules:
    """Return what `schedules_due` read, up to a limit."""
    now, number, *_ = answer
    found = _standing(answer)
    return DueSchedules(now, len(found) == number < limit, found)


def read_schedules(answer: list[Any]) -> SchedulePage:
    """Return what `schedules_page` read."""
    return SchedulePage(answer[0], answer[1].decode(), _standing(answer))


def _standing(answer: list[Any]) -> list[Standing]:
    found = []
    for name, time, spec, state in zip(*(answer[at::4] for at in range(2, 6)), strict=True):
        revision, fired, last, paused = state.decode().split() or ("0", 0, 0, "0")
        next_ = int(time) if time else None
        found.append(Standing(name.decode(), next_, spec, revision, int(fired), int(last), paused == "1"))
    return found
