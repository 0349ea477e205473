"""The forms of actions: what their fields are called, and one that was refused, to be shown again with its entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class FormField(NamedTuple):
    """A field that somebody fills in."""

    label: str
    option: str
    """What errors of the library call it."""


FIELDS: dict[str, dict[str, FormField]] = {
    "pause": {"duration": FormField("Pause for", "until"), "reason": FormField("Reason", "reason")},
    "reschedule": {"delay": FormField("Due in", "delay"), "at": FormField("Due at (UTC)", "at")},
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
