"""Times as a page shows and reads them: in the time zone of who looks, which the browser tells in a cookie."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.requests import Request

from delayq.errors import ConfigurationError
from delayq.values.text import relative_time

ZONE = "delayq-web-zone"
"""The cookie with the name of the time zone of the browser; the script of the pages sets it."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")
MAX_NAME = 64
_ISO = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3,6})?Z")


def zone_of(request: Request) -> tzinfo:
    """Return the time zone of who looks: UTC without JavaScript, and for one that this machine does not know."""
    name = request.cookies.get(ZONE, "")
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):  # no such zone, or a folder of them
        return UTC


def zone_name(zone: tzinfo) -> str:
    """Return what a page calls a time zone, such as `Europe/Berlin`."""
    return str(zone)


def exact_in(zone: tzinfo, at: datetime, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time in a zone, with the name or the offset that it has then."""
    there = at.astimezone(zone)
    name = there.tzname() or ""
    return f"{there:{form}} {'UTC' if name[:1] in '+-' else ''}{name}"


def time_in(text: str, name: str, zone: tzinfo) -> datetime | None:
    """Return a time of a form, in the zone of the page unless it has one; None for none.

    Of a time that the clocks show twice it is the first. Raises `ConfigurationError` for what is no time.
    """
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{name} must look like 2027-01-31T09:00, not {text!r:.60}") from None
    if at.utcoffset() is not None:
        return at
    try:
        return at.replace(tzinfo=zone).astimezone(UTC)
    except OverflowError:  # the first or the last day of all
        return at.replace(tzinfo=UTC)


def _zone(context: Context) -> tzinfo:
    zone: tzinfo = context["zone"]
    return zone


@pass_context
def exact(context: Context, at: datetime | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time in the zone of the page; '' for None."""
    return "" if at is None else exact_in(_zone(context), at, form)


@pass_context
def exact_millis(context: Context, at: datetime) -> str:
    """Return a time in the zone of the page, with milliseconds."""
    return exact_in(_zone(context), at, f"%Y-%m-%d %H:%M:%S.{at.microsecond // 1000:03}")


@pass_context
def zoned(context: Context, text: str) -> str:
    """Return a text with its times, in ISO 8601 and in UTC, in the zone of the page."""
    zone = _zone(context)
    return _ISO.sub(lambda found: exact_in(zone, datetime.fromisoformat(found[0])), text)


@pass_context
def time_of(context: Context, at: datetime | None, now: datetime | None = None) -> Markup:
    """Return a time relative to now, which shows the exact one to the mouse alone; '' for None."""
    return _time(context, Markup('<time datetime="{utc}" title="{exact}">{relative}</time>'), at, now)


@pass_context
def both_times(context: Context, at: datetime | None, now: datetime | None = None) -> Markup:
    """Return a time relative to now, and below it the exact one, for everybody; '' for None."""
    return _time(context, Markup('{relative} <time class="exact" datetime="{utc}">{exact}</time>'), at, now)


def _time(context: Context, form: Markup, at: datetime | None, now: datetime | None) -> Markup:
    """Return a form with a time in it: relative to now, exact to the second, and for programs; '' for None."""
    if at is None:
        return Markup("")
    relative = relative_time(at, now or datetime.now(UTC))
    return form.format(utc=at.astimezone(UTC).isoformat(), exact=exact_in(_zone(context), at), relative=relative)
