"""Pages from templates: everything is escaped, what could mislead a reader is left out; forms keep wrong entries."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from jinja2 import DictLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from delayq.queue.inspecting.lateness_report import percentile_text
from delayq.values.text import clean, format_duration, pluralize, relative_time
from delayq.web.charts import Column, columns, period_text


class FormField(NamedTuple):
    """A field that somebody fills in."""

    label: str
    option: str
    """What errors of the library call it."""


FIELDS: dict[str, dict[str, FormField]] = {
    "pause": {"duration": FormField("Pause for", "until"), "reason": FormField("Reason", "reason")},
    "reschedule": {"delay": FormField("Due in", "delay"), "at": FormField("Due at (UTC)", "at")},
    "schedule": {"duration": FormField("Pause for", "until")},
    "redrive": {"rate": FormField("Rate", "rate")},
    "limit": {
        "name": FormField("Name", "name"),
        "rate_limit": FormField("Rate", "rate_limit"),
        "running": FormField("At a time", "running"),
    },
}
"""The fields of each action, by their names in the form."""


def labelled(error: str, option: str, label: str) -> str:
    """Return an error that begins with the name of an option with what the page calls the field in its place."""
    return f'"{label}"{error.removeprefix(option)}'


class RefusedForm:
    """A form with a wrong entry: what it contained, and what is wrong."""

    def __init__(self, action: str, entries: Mapping[str, str], error: str) -> None:
        """Take the error of the library, which begins with the option that is wrong, if it is one."""
        self.entries = entries
        self.field = ""
        self.text = error[:1].upper() + error[1:]
        self.is_shown = False
        """Whether a form on the page has shown it."""
        self._action = action
        option = error.partition(" ")[0]
        for name, field in FIELDS.get(action, {}).items():
            if field.option == option:
                self.field, self.text = name, labelled(error, option, field.label)

    def is_of(self, action: str, hidden: Mapping[str, object]) -> bool:
        """Return whether it came from a form of this action with these hidden fields."""
        return self._action == action and all(self.entries.get(name) == str(one) for name, one in hidden.items())


class ActionForm:
    """What a page shows in the form of an action: labels, and the entries and the error of one that was refused."""

    def __init__(self, action: str, refused: RefusedForm | None) -> None:
        """Show nothing in the fields, or what was in the refused one."""
        self._fields = FIELDS.get(action, {})
        self._refused = refused

    @property
    def error(self) -> str:
        """What is wrong; '' for nothing."""
        return self._refused.text if self._refused else ""

    def label(self, name: str) -> str:
        """Return what a field is called."""
        return self._fields[name].label

    def entry(self, name: str) -> str:
        """Return what a field contains."""
        return self._refused.entries.get(name, "") if self._refused else ""

    def is_wrong(self, name: str) -> bool:
        """Return whether this field is to be mended."""
        return self._refused is not None and self._refused.field == name


def action_form(refused: RefusedForm | None, action: str, hidden: Mapping[str, object]) -> ActionForm:
    """Return the form of an action; the first one that fits shows what was refused."""
    if refused is None or refused.is_shown or not refused.is_of(action, hidden):
        return ActionForm(action, None)
    refused.is_shown = True
    return ActionForm(action, refused)


_SMALL = 10


def _finalize(value: Any) -> Any:
    return clean(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value


def number(value: float) -> str:
    """Return a number with thousands separated; a small fraction with one digit."""
    if isinstance(value, float) and 0 < value < _SMALL:
        return f"{value:.1f}".removesuffix(".0")
    return f"{round(value):,}"


def duration(time: timedelta | float | None) -> str:
    """Return a duration in its two largest units; '' for None."""
    if time is None:
        return ""
    seconds = time.total_seconds() if isinstance(time, timedelta) else time
    return format_duration(max(0.0, seconds)) or "0s"


def time_of(at: datetime | None, now: datetime | None = None) -> Markup:
    """Return a time relative to now, which shows the exact one in UTC to the mouse alone; '' for None."""
    return _time(Markup('<time datetime="{utc}" title="{exact}">{relative}</time>'), at, now)


def both_times(at: datetime | None, now: datetime | None = None) -> Markup:
    """Return a time relative to now, and below it the exact one in UTC, for everybody; '' for None."""
    return _time(Markup('{relative} <time class="exact" datetime="{utc}">{exact}</time>'), at, now)


def _time(form: Markup, at: datetime | None, now: datetime | None) -> Markup:
    """Return a form with a time in it: relative to now, exact to the second, and for programs; '' for None."""
    if at is None:
        return Markup("")
    utc = at.astimezone(UTC)
    relative, exact = relative_time(at, now or datetime.now(UTC)), f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    return form.format(utc=utc.isoformat(), exact=exact, relative=relative)


def exact(at: datetime | None) -> str:
    """Return a time in UTC, with milliseconds; '' for None."""
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"


def query(**parameters: object) -> str:
    """Return the query of a link, without parameters that are None or empty."""
    return "?" + urlencode({name: value for name, value in parameters.items() if value not in (None, "")})


def _source(files: PackageLoader, name: str) -> str:
    source, _, _ = files.get_source(Environment(autoescape=True), name)
    return source


def make_environment() -> Environment:
    """Return the environment of the templates, which are read now: their files may be replaced, or be gone, later."""
    files = PackageLoader("delayq.web")
    environment = Environment(
        loader=DictLoader({name: _source(files, name) for name in files.list_templates()}),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, duration=duration, exact=exact, plural=pluralize)
    environment.globals.update(
        time_of=time_of,
        both_times=both_times,
        percentile=percentile_text,
        column=Column,
        columns=columns,
        period_text=period_text,
        query=query,
        action_form=action_form,
    )
    return environment
