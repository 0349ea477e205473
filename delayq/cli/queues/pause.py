"""How a pause of a queue, or of a name in it, is shown."""

from __future__ import annotations

from datetime import UTC, datetime

from delayq.cli.support.zones import until_text
from delayq.queue.control.pausing import Pause
from delayq.values.text import clean


def label(queue: str, name: str | None) -> str:
    """Return how output names a queue, or a name in it."""
    return queue if name is None else f"{queue} {clean(name)}"


def pause_text(pause: Pause, now: datetime | None = None) -> str:
    """Return until when a queue is paused, and why."""
    end = "until it is resumed" if pause.until is None else until_text(pause.until, now or datetime.now(UTC))
    return f"paused {end}{f': {clean(pause.reason)}' if pause.reason else ''}"
