"""Pages from templates: everything is escaped, what could mislead a reader is left out; forms keep wrong entries."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, timedelta, tzinfo
from typing import Any, NamedTuple
from urllib.parse import urlencode

from jinja2 import DictLoader, Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from delayq.queue.inspecting.lateness_report import percentile_text
from delayq.values.text import clean, format_duration, pluralize
from delayq.web.shown.charts import Column, columns, period_text
from delayq.web.shown.labels import encoding_label, event_label, totals_of
from delayq.web.shown.shown_times import both_times, exact, exact_millis, time_of, zone_name, zoned


class FormField(NamedTuple):
    """A field that somebody fills in."""

    label: str
    """What pages call it, with `{zone}` for the time zone of who looks."""
    option: str
    """What errors of the library call it."""

    def label_in(self, zone: tzinfo) -> str:
        """Return its label on a page with times in a zone."""
        return self.label.format(zone=zone_name(zone))


FIELDS: dict[str, dict[str, FormField]] = {
    "pause": {"duration": FormField("Pause for", "until"), "reason": FormField("Reason", "reason")},
    "reschedule": {"delay": FormField("Due in", "delay"), "at": FormField("Due at ({zone})", "at")},
    "edit": {
        "payload": FormField("Payload", "payload"),
        "name": FormField("Name", "name"),
        "priority": FormField("Priority", "priority"),
    },
    "schedule": {"duration": FormField("Pause for", "until")},
    "messages": {"delay": FormField("Due in", "delay")},
    "redrive": {"rate": FormField("Rate", "rate")},
    "limit": {
        "name": FormField("Name", "name"),
        "rate_limit": FormField("Rate", "rate_limit"),
        "running": FormField("At a time", "running"),
        "in_order": FormField("In order, for the keys of a name such as account:*", "in_order"),
    },
}
"""The fields of each action, by their names in the form."""


def labelled(error: str, option: str, label: str) -> str:
    """Return an error that begins with the name of an option with what the page calls the field in its place."""
    return f'"{label}"{error.removeprefix(option)}'


class RefusedForm:
    """A form with a wrong entry: what it contained, and what is wrong."""

    def __init__(self, action: str, entries: Mapping[str, str], error: str, zone: tzinfo) -> None:
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
                self.field, self.text = name, labelled(error, option, field.label_in(zone))

    def is_of(self, action: str, hidden: Mapping[str, object]) -> bool:
        """Return whether it came from a form of this action with these hidden fields."""
        return self._action == action and all(self.entries.get(name) == str(one) for name, one in hidden.items())


class ActionForm:
    """What a page shows in the form of an action: labels, and the entries and the error of one that was refused."""

    def __init__(self, action: str, refused: RefusedForm | None, zone: tzinfo = UTC) -> None:
        """Show nothing in the fields, or what was in the refused one."""
        self._zone = zone
        self._fields = FIELDS.get(action, {})
        self._refused = refused

    @property
    def error(self) -> str:
        """What is wrong; '' for nothing."""
        return self._refused.text if self._refused else ""

    def label(self, name: str) -> str:
        """Return what a field is called."""
        return self._fields[name].label_in(self._zone)

    def entry(self, name: str, given: str = "") -> str:
        """Return what a field contains: what was refused, or what it is given."""
        return self._refused.entries.get(name, "") if self._refused else given

    def is_chosen(self, message: str) -> bool:
        """Return whether a message was chosen."""
        return self._refused is not None and message in getattr(self._refused.entries, "chosen", ())

    def is_wrong(self, name: str) -> bool:
        """Return whether this field is to be mended."""
        return self._refused is not None and self._refused.field == name


@pass_context
def action_form(context: Context, refused: RefusedForm | None, action: str, hidden: Mapping[str, object]) -> ActionForm:
    """Return the form of an action; the first one that fits shows what was refused."""
    zone: tzinfo = context["zone"]
    if refused is None or refused.is_shown or not refused.is_of(action, hidden):
        return ActionForm(action, None, zone)
    refused.is_shown = True
    return ActionForm(action, refused, zone)


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
    environment.filters.update(
        number=number,
        duration=duration,
        exact=exact,
        exact_millis=exact_millis,
        zoned=zoned,
        zone_name=zone_name,
        plural=pluralize,
        event=event_label,
        encoding=encoding_label,
    )
    environment.globals.update(
        time_of=time_of,
        both_times=both_times,
        percentile=percentile_text,
        column=Column,
        columns=columns,
        totals_of=totals_of,
        period_text=period_text,
        query=query,
        action_form=action_form,
    )
    return environment
