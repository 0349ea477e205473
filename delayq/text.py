"""What people read: text made safe for a terminal, times as seen from now, payloads at a glance."""

from __future__ import annotations

import re
from datetime import UTC, datetime

LONGEST_PREVIEW = 200
"""Characters of a payload shown in a table."""

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC and the like: titles, links
    r"|\x1b[ -/]*[0-~]?"
)
# Controls, half characters, and what turns the reading direction around.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def clean(text: str, *, lines: bool = False) -> str:
    """Return a text without terminal escapes and control characters; on one line, unless `lines` are to be kept."""
    text = text.replace("\r\n", "\n")
    if not lines:
        text = re.sub(r"[\t\n\r\v\f]+", " ", text)
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def iso(at: datetime | None) -> str | None:
    """Return a time for machines: ISO 8601 in UTC, with milliseconds."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(seconds: float) -> str:
    """Return a duration in its two largest units."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    step = 3600 if seconds >= 86_400 else 60 if seconds >= 3600 else 1  # noqa: PLR2004 - a day, an hour
    whole = int(seconds / step + 0.5) * step
    days, hours, minutes, rest = whole // 86_400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    parts = [f"{number}{unit}" for number, unit in ((days, "d"), (hours, "h"), (minutes, "m"), (rest, "s"))]
    first = next((at for at, part in enumerate(parts) if part[0] != "0"), 3)
    return " ".join(part for part in parts[first : first + 2] if part[0] != "0" or first == len(parts) - 1)


def when(at: datetime | None, now: datetime) -> str:
    """Return a time as seen from now: "in 3h 12m", "2m 5s ago"."""
    if at is None:
        return ""
    seconds = (at - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"


def exactly(at: datetime | None, now: datetime) -> str:
    """Return a time as seen from now and as the clock has it."""
    return "" if at is None else f"{when(at, now)}  ({at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC)"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 message", "1,234 messages"."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def preview(payload: bytes, size: int) -> str:
    """Return a payload at a glance: its text on one line, or the first bytes of one that is no text."""
    try:
        # The end may have been cut off within a character.
        text = payload.decode("utf-8", "strict" if len(payload) == size else "ignore")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return f"{counted(size, 'byte')}: {payload[:16].hex(' ')}{' …' if size > 16 else ''}"  # noqa: PLR2004
    return cut(clean(text), LONGEST_PREVIEW, more=len(payload) < size)


def cut(text: str, longest: int, *, more: bool = False) -> str:
    """Return a text of at most so many characters, with an ellipsis if it goes on."""
    return text[: longest - 1] + "…" if more or len(text) > longest else text
