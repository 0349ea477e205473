"""What a program decides before an occurrence of a schedule fires: whether it does, and with what payload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from delayq.safe_log import SafeLog
from delayq.schedules.calls import ScheduleFire
from delayq.schedules.definition import DECLARED_HEADER, HEADER
from delayq.values.codec import decode_headers, encode_headers, encode_payload
from delayq.values.times import from_millis
from delayq.worker.parts.part import LoopPart, Stage

log = SafeLog("delayq.schedules")

_OWN = (HEADER, DECLARED_HEADER)


@dataclass(slots=True)
class Firing:
    """An occurrence of a schedule that is about to fire. Its `repr` omits payload and headers, which may be private."""

    queue: str
    schedule: str
    """The name of the schedule."""
    due: datetime
    """When its message is due, in UTC."""
    payload: Any = field(repr=False)
    """May be replaced or changed: the message carries what it is then."""
    headers: dict[str, str] = field(repr=False)
    """May be changed."""
    skipped: str | None = None
    """Why it does not fire; None if it does."""

    def skip(self, reason: str = "") -> None:
        """Let it not fire: no message is sent, it does not count, and the log says why."""
        self.skipped = str(reason)


FiringHook = Callable[[Firing], object]


class FiringHooks(LoopPart):
    """Asks the hooks of a program before a schedule fires."""

    stage = Stage.BESIDE

    def __init__(self, hooks: Sequence[FiringHook], queue: Any, name: str) -> None:
        """Ask for the schedules of the queue with this name, whose payloads are those of `queue`."""
        self._hooks, self._queue, self._name = hooks, queue, name

    def before_fire(self, row: ScheduleFire) -> ScheduleFire:
        """Return what is fired in place of one occurrence."""
        due = int(row.occurrences.rpartition(" ")[2])
        headers = decode_headers(row.headers)
        own = {name: headers.pop(name) for name in _OWN if name in headers}
        firing = Firing(self._name, row.name, from_millis(due), self._queue.context.decode(row.payload), headers)
        for hook in self._hooks:
            hook(firing)
            if firing.skipped is not None:
                why = f": {firing.skipped}" if firing.skipped else ""
                log.info("schedule %s skips %s%s", row.name, firing.due, why, extra={"schedule": row.name})
                return row._replace(occurrences="")
        most = self._queue.context.settings.max_payload
        payload = encode_payload(firing.payload, self._queue.producer.encode, most)
        return row._replace(payload=payload, headers=encode_headers({**firing.headers, **own}))
